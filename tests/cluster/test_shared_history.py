"""Three nodes and one history: each row once, while its writers are killed, and the same answer about the past from
every node.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from cluster_nodes import ClusterNodes
from holdfast.storage.history_options import number_of
from log_servers import until

HOLDER = "holdfast-holder"


def publish(cluster: ClusterNodes, node: str, first: int, last: int) -> None:
    client = cluster.client(node)
    client.connect("")
    for number in range(first, last + 1):
        client.publish(f"t/{number}", b"%d" % number, qos=1, retain=True)
    client.cut()


def payloads(place: Path) -> list[int]:
    try:
        table = DeltaTable(place).to_pyarrow_table(columns=["offset", "payload"])
    except TableNotFoundError:
        return []
    assert len(set(table["offset"].to_pylist())) == table.num_rows, "a row is there twice"
    return sorted(int(payload) for payload in table["payload"].to_pylist())


def writer(place: Path) -> str:
    number = DeltaTable(place).transaction_version(HOLDER)
    return next(name for name in "abc" if number_of(name) == number)


def test_one_table_has_every_row_once_while_its_writers_are_killed(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    settings: dict[str, Any] = {"history__enable": True, "history__path": str(place), "cluster__node_timeout": 5}
    with ClusterNodes(tmp_path / "nodes", http=True, **settings) as cluster:
        publish(cluster, "a", 1, 50)
        until(lambda: payloads(place) == [*range(1, 51)], "the table has what was published")
        first = writer(place)
        cluster[first].kill()
        others = [name for name in "abc" if name != first]
        publish(cluster, others[0], 51, 100)
        until(lambda: payloads(place) == [*range(1, 101)], "another node has stepped in")
        second = writer(place)
        assert second in others
        cluster[first].start()
        publish(cluster, first, 101, 120)
        until(lambda: payloads(place) == [*range(1, 121)], "the rest is there")
        assert writer(place) == second, "the one that came back leaves the writing to the other"

        def past(name: str) -> int:
            status, body = cluster[name].look(f"/api/v1/history?topic={quote('t/51')}")
            return len(json.loads(body)["rows"]) if status == 200 else -1

        third = next(name for name in others if name != second)
        cluster[third].kill()
        shutil.rmtree(cluster[third].folder)
        cluster[third].start()
        publish(cluster, third, 121, 130)
        until(lambda: payloads(place) == [*range(1, 131)], "a node that begins with nothing leaves the table as it was")

        for name in "abc":
            until(lambda name=name: past(name) == 1, f"node {name} finds it in the history")  # type: ignore[misc]
        # nobody holds on to a journal because others write the table
        for node in cluster:
            assert "loss" not in node.output


def test_a_node_that_was_killed_with_its_history_writes_what_the_table_lacked(tmp_path: Path) -> None:
    with ClusterNodes(tmp_path, names=("a",), log_count=1, history__enable=True) as cluster:
        node = cluster["a"]
        place = node.folder / "history"
        publish(cluster, "a", 1, 10)
        until(lambda: payloads(place) == [*range(1, 11)], "the table has what was published")
        processes = psutil.Process(node.running.process.pid).children(recursive=True)
        [history] = [one for one in processes if "history" in " ".join(one.cmdline()[-3:])]
        history.suspend()
        publish(cluster, "a", 11, 20)
        # before that the node would read it from the log again
        until(lambda: any(b"t/20" in file.read_bytes() for file in (node.folder / "journal").glob("*.hfj")), "written")
        node.running.kill(with_followers=False)
        history.kill()
        node.start()
        publish(cluster, "a", 21, 30)
        until(lambda: 30 in payloads(place), "the table goes on")
        assert payloads(place) == [*range(1, 31)]
