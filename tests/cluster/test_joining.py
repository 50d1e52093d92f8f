"""Nodes that come when the log does not reach back to the beginning: they take the state that another has left."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from cluster_nodes import ClusterNodes
from log_servers import until
from wire import P

COUNT = 600
DOWN = "declaring a node down that is silent node=c"
FOREVER = (P.SESSION_EXPIRY, 100_000)


def fill(cluster: ClusterNodes, node: str, begin: int, count: int) -> None:
    client = cluster.client(node)
    client.connect("")
    for number in range(begin, begin + count):
        client.publish(f"t/{number}", b"x" * 100 + str(number).encode(), qos=1, retain=True)
    client.cut()


def retained_at(cluster: ClusterNodes, node: str, count: int) -> set[str]:
    client = cluster.client(node)
    client.connect("")
    client.subscribe("t/#", qos=1)
    topics = {message.topic for message in client.messages(count)}
    client.cut()
    return topics


def first_of(cluster: ClusterNodes, node: str) -> int:
    status, body = cluster[node].look("/api/v1/cluster")
    return int(json.loads(body)["log"]["first"]) if status == 200 else 0


def are_equal(cluster: ClusterNodes, node: str) -> bool:
    """Whether all nodes hold the same at one moment, as a node has heard it."""
    url = f"http://127.0.0.1:{cluster[node].http_port}/api/v1/cluster/verify"
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=120) as answer:
        return bool(json.load(answer)["equal"])


def test_new_and_late_nodes_take_the_state_of_another_when_the_log_was_cut(tmp_path: Path) -> None:
    with ClusterNodes(tmp_path, http=True, cluster__log_size="16KiB", cluster__node_timeout=5) as cluster:
        sleeper = cluster.client("b")
        sleeper.connect("sleeper", clean=False, properties=[FOREVER])
        sleeper.subscribe("wake/#", qos=1)
        sleeper.cut()
        fill(cluster, "a", 0, COUNT // 2)
        cluster["c"].kill()
        until(lambda: DOWN in cluster["a"].output + cluster["b"].output, "c is declared down")
        caller = cluster.client("a")
        caller.connect("")
        caller.publish("wake/up", b"now", qos=1)
        fill(cluster, "a", COUNT // 2, COUNT // 2)
        until(lambda: first_of(cluster, "a") > 100, "the log was cut")
        cluster["c"].start()  # it knows the first half, and the log does not go on from there
        assert "taking the state of another node" in cluster["c"].output
        assert len(retained_at(cluster, "c", COUNT)) == COUNT
        woken = cluster.client("c")
        assert woken.connect("sleeper", clean=False, properties=[FOREVER]).session_present
        assert [message.payload for message in woken.messages(1)] == [b"now"]
        woken.cut()
        fill(cluster, "c", COUNT, 10)
        assert len(retained_at(cluster, "b", COUNT + 10)) == COUNT + 10
        assert are_equal(cluster, "a")
