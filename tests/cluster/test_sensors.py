"""MQTT-SN on every node: sensors and MQTT clients of other nodes meet, and one that was asleep wakes elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_process import Unique
from cluster_nodes import ClusterNodes
from log_servers import until
from sn_client import SnClient

VERSIONS = (1, 2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNodes]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    nodes = ClusterNodes(folder, names=("a", "b"), log_count=1)
    try:
        nodes.servers.start()
        for node in nodes:
            node.start("--listen", "udp://127.0.0.1:0")
        nodes.wait_ready()
        for node in nodes:
            until(lambda node=node: "udp" in node.running.ports, f"node {node.name} has sensors")  # type: ignore[misc]
        with nodes.shown():
            yield nodes
    finally:
        nodes.close()


def sensor(cluster: ClusterNodes, node: str, version: int, name: str) -> SnClient:
    return SnClient(cluster[node].running.ports["udp"], version, name)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_sensor_retains_on_one_node_is_found_on_another(
    cluster: ClusterNodes, unique: Unique, version: int
) -> None:
    with sensor(cluster, "a", version, unique.client("s")) as writer:
        writer.connect()
        writer.publish(unique.topic(), b"21.5", qos=1, retain=True)
    reader = cluster.client("b")
    reader.connect("")
    reader.subscribe(unique.topic(), qos=1)
    assert reader.messages(1)[0].payload == b"21.5"
    with sensor(cluster, "b", version, unique.client("t")) as other:
        other.connect()
        other.subscribe(unique.topic(), qos=1)
        other.wait_for(1)
        assert other.messages == [(unique.topic(), b"21.5", 1, True)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_sensor_that_fell_asleep_on_one_node_wakes_on_another(
    cluster: ClusterNodes, unique: Unique, version: int
) -> None:
    expiry_s = 3600 if version == 2 else 0
    with sensor(cluster, "a", version, unique.client("s")) as before:
        before.connect(clean=False, expiry_s=expiry_s)
        before.subscribe(unique.topic("#"), qos=1)
        before.sleep(600)
        publisher = cluster.client("b")
        publisher.connect("")
        for number in range(3):
            publisher.publish(unique.topic(str(number)), b"%d" % number, qos=1)
        with sensor(cluster, "b", version, unique.client("s")) as after:
            after.connect(clean=False, expiry_s=expiry_s)
            after.wait_for(3)
            assert [payload for _, payload, _, _ in after.messages] == [b"0", b"1", b"2"]
        assert before.messages == []
