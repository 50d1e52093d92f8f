"""`holdfast cluster`: what it shows and how it ends; a broker alone becomes a cluster, and a node one that is alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import wire
from broker_process import BrokerProcess
from cluster_nodes import ClusterNodes
from command_line import holdfast, holdfast_process
from http_api import LISTEN, Api
from log_servers import LogServers, until
from wire import WireClient

pytestmark = pytest.mark.timeout(400)


def url_of(cluster: ClusterNodes, name: str) -> str:
    return f"http://127.0.0.1:{cluster[name].http_port}"


def receive(client: WireClient, count: int) -> dict[str, bytes]:
    """So many messages, acknowledged."""
    found: dict[str, bytes] = {}
    for _ in range(count):
        publish = client.expect(wire.Publish, timeout=60)
        if publish.packet_id is not None:
            client.send(wire.puback(publish.packet_id))
        found[publish.topic] = publish.payload
    return found


def test_status_drain_remove_and_verify_say_what_they_find_and_end_accordingly(tmp_path: Path) -> None:
    with ClusterNodes(tmp_path, http=True) as cluster:
        at_a = ("--url", url_of(cluster, "a"))
        until(lambda: holdfast("cluster", "status", *at_a).returncode == 0, "all nodes are ready and known")
        shown = holdfast("cluster", "status", *at_a).stdout.splitlines()
        assert shown[0].startswith("cluster holdfast, seen from node a")
        assert [line.split()[:2] for line in shown[3:6]] == [["a", "ready"], ["b", "ready"], ["c", "ready"]]
        told = json.loads(holdfast("cluster", "status", *at_a, "--json").stdout)
        assert {node["name"]: node["up"] for node in told["nodes"]} == {"a": True, "b": True, "c": True}

        equal = holdfast("cluster", "verify", *at_a)
        assert (equal.returncode, equal.stdout.splitlines()[-1]) == (0, "all nodes are equal")

        running = holdfast("cluster", "remove", "b", *at_a)
        assert running.returncode == 1
        assert "stop it first" in running.stderr
        drained = holdfast("cluster", "drain", "b", *at_a)
        assert (drained.returncode, "node b is drained" in drained.stdout) == (0, True)
        until(lambda: holdfast("cluster", "status", *at_a).returncode == 1, "a node that is drained is not ready")
        assert "b: drained" in holdfast("cluster", "status", *at_a).stdout
        cluster["b"].stop()
        until(lambda: holdfast("cluster", "remove", "b", *at_a).returncode == 0, "b is silent and can be removed")
        until(lambda: holdfast("cluster", "status", *at_a).returncode == 0, "the other two are all there is")
        unknown = holdfast("cluster", "drain", "b", *at_a)
        assert unknown.returncode == 1
        assert "there is no node 'b', expected one of a, c" in unknown.stderr
    nobody = holdfast("cluster", "status", *at_a)
    assert (nobody.returncode, "--url names another node" in nobody.stderr) == (1, True)


def test_what_a_broker_alone_has_stored_begins_a_cluster_and_a_node_goes_on_alone(
    tmp_path: Path, start_broker: Callable[..., BrokerProcess]
) -> None:
    data = tmp_path / "nodes" / "a"
    broker = start_broker(data=data)
    absent = broker.client()
    absent.connect("absent", clean=False)
    absent.subscribe("queue/#", qos=1)
    absent.disconnect()
    connected = broker.client()
    connected.connect("connected", clean=False)
    connected.subscribe("other/#", qos=1)
    publisher = broker.client()
    publisher.connect("publisher")
    for n in range(20):
        publisher.publish(f"kept/{n}", b"%d" % n, qos=1, retain=True)
    publisher.publish("queue/1", b"waits", qos=1)
    broker.kill()

    cluster = ClusterNodes(tmp_path / "nodes")
    cluster.servers.start()
    where = ("--data", str(data), "--cluster", ",".join(cluster.servers.urls), "--node", "a")
    refused = holdfast_process("serve", *where, "--listen", "tcp://127.0.0.1:0")
    assert refused.returncode == 1
    assert "holdfast cluster init" in refused.stderr
    for _ in range(2):  # one that was broken off can be begun again
        done = holdfast_process("cluster", "init", *where, "--json")
        assert done.returncode == 0, done.stderr
        offset = json.loads(done.stdout)["offset"]
    changed = holdfast_process("retained", "rm", "kept/1", "--data", str(data))
    assert changed.returncode == 1
    assert "node 'a' of a cluster" in changed.stderr

    with cluster:
        for name in "abc":
            reader = cluster.client(name, version=4)
            reader.connect(f"reader-{name}")
            reader.subscribe("kept/#")
            assert receive(reader, 20) == {f"kept/{n}": b"%d" % n for n in range(20)}
        again = cluster.client("b", version=4)
        assert again.connect("connected", clean=False).session_present
        absent = cluster.client("c", version=4)
        assert absent.connect("absent", clean=False).session_present
        assert receive(absent, 1) == {"queue/1": b"waits"}
        publisher = cluster.client("b", version=4)
        publisher.connect("publisher")
        publisher.publish("kept/20", b"20", qos=1, retain=True)
        publisher.publish("other/1", b"for connected", qos=1)
        assert receive(again, 1) == {"other/1": b"for connected"}
        existing = holdfast_process("cluster", "init", *where)
        assert existing.returncode == 1
        cluster["b"].restart()
        cluster.wait_ready()
        other = tmp_path / "other"
        start_broker(data=other).stop()
        begun = holdfast_process("cluster", "init", "--data", str(other), *where[2:])
        assert begun.returncode == 1
        assert "has" in begun.stderr
        assert "messages already" in begun.stderr

        # The way back: node a alone, with what all nodes had.
        absent_there = cluster.client("c", version=4)
        absent_there.connect("absent", clean=False)
        transient = cluster.client("c", version=4)
        transient.connect("transient")
        transient.subscribe("kept/#")
        cluster["a"].stop()

    alone = start_broker(data=data)
    assert "goes on alone" in alone.output
    reader = alone.client()
    reader.connect("reader")
    reader.subscribe("kept/#")
    assert receive(reader, 21) == {f"kept/{n}": b"%d" % n for n in range(21)}
    back = alone.client()
    assert back.connect("absent", clean=False).session_present
    gone = alone.client()
    assert not gone.connect("transient", clean=False).session_present
    writer = alone.client()
    writer.connect("writer")
    writer.publish("kept/0", b"alone", qos=1, retain=True)
    alone.stop()
    cluster.servers.start()
    try:
        rejoined = holdfast_process("serve", *where, "--listen", "tcp://127.0.0.1:0")
        assert rejoined.returncode == 1
        assert "has what a broker alone has stored" in rejoined.stderr
    finally:
        cluster.servers.close()
    again = start_broker(data=data).client()
    again.connect("reader")
    again.subscribe("kept/0")
    assert receive(again, 1) == {"kept/0": b"alone"}
    assert offset > 20


def test_the_history_of_a_broker_alone_goes_on_in_a_cluster(
    tmp_path: Path, start_broker: Callable[..., BrokerProcess]
) -> None:
    data = tmp_path / "nodes" / "a"
    alone = start_broker(data=data, listen=LISTEN)
    with Api(alone) as api:
        first = api.set("lamp", "off")
        api.set("lamp", "on")
    alone.kill()
    with LogServers(tmp_path / "log", 1) as servers:
        cluster = ClusterNodes(tmp_path / "nodes", names=("a", "b"), servers=servers, http=True, history__enable=True)
        where = ("--data", str(data), "--cluster", servers.urls[0], "--node", "a")
        begun = holdfast_process("cluster", "init", *where, "--set", "cluster.replicas=1")
        assert begun.returncode == 0, begun.stderr
        with cluster, httpx.Client(base_url=url_of(cluster, "a"), timeout=120) as node:
            body = {"topic": "lamp", "payload": "broken", "retain": True, "qos": 1}
            version = node.post("/api/v1/publish", json=body).json()["version"]

            def rows(count: int) -> list[dict[str, Any]] | None:
                found = node.get("/api/v1/history", params={"topic": "lamp"}).json()["rows"]
                return found if len(found) == count else None

            shown = until(lambda: rows(3), "the history has all three publishes")
            assert [(row["text"], row["version"]) for row in shown[::2]] == [("broken", version), ("off", first)]
            asked = {"filter": "lamp", "offset": first, "replace": True, "dry_run": False}
            done = node.post("/api/v1/retained/restore", json=asked).json()
            assert (done["restored"], done["refused"]) == (1, 0)
            assert node.get("/api/v1/retained/message", params={"topic": "lamp"}).json()["text"] == "off"
            found = node.post("/api/v1/cluster/verify").json()
            assert (found["equal"], sorted(found["hashes"])) == (True, ["a", "b"])
            assert until(lambda: rows(4), "the history has the restore")[0]["text"] == "off"
            assert not any("loss" in one.output for one in cluster)
