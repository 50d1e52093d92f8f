"""Nodes that are cut off from the log or stand still, and clusters that lose several parts at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from broker_process import Unique
from cluster_nodes import ClusterNodes
from log_servers import until
from wire import Disconnect, P, PubAck, WireClient

FOREVER = (P.SESSION_EXPIRY, 100_000)
SERVER_UNAVAILABLE = 0x88
USE_ANOTHER_SERVER = 0x9C
NODE_TIMEOUT_S = 5
SILENT = "declaring a node down that is silent node=a"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNodes]:
    folder = tmp_path_factory.mktemp("cluster")
    with ClusterNodes(folder, cluster__node_timeout=NODE_TIMEOUT_S, cluster__reads="local") as cluster:
        yield cluster


@pytest.fixture
def cluster(running: ClusterNodes) -> Iterator[ClusterNodes]:
    running.start()
    with running.shown():
        yield running
    for node in running:
        for client in node.clients:
            client.cut()
        node.clients.clear()


def visit(cluster: ClusterNodes, node: str, client_id: str = "") -> WireClient:
    client = cluster.client(node)
    client.connect(client_id)
    return client


def welcome(cluster: ClusterNodes, node: str, client_id: str) -> WireClient:
    """A client with a session, as soon as a node lets it in."""

    def come() -> WireClient | None:
        client = cluster.client(node)
        answer = client.connect(client_id, check=False, clean=False, properties=[FOREVER])
        return client if answer.code == 0 else None

    return until(come, f"node {node} lets {client_id} in")


def count_all(cluster: ClusterNodes, node: str, topic_filter: str, count: int) -> set[bytes]:
    client = visit(cluster, node)
    client.subscribe(topic_filter, qos=1)
    return {message.payload for message in client.messages(count)}


def test_a_node_without_quorum_acknowledges_nothing_shows_what_it_has_and_then_sends_its_clients_away(
    cluster: ClusterNodes, unique: Unique
) -> None:
    writer = welcome(cluster, "a", unique.client("w"))
    reader = visit(cluster, "a", unique.client("r"))
    writer.publish(unique.topic("before"), b"before", qos=1, retain=True)
    for server in (cluster.servers[0], cluster.servers[1]):
        server.kill()
    writer.send_publish(unique.topic("during"), b"during", qos=1, retain=True, packet_id=77)
    reader.subscribe(unique.topic("#"), qos=1)
    assert reader.messages(1)[0].payload == b"before"
    cluster["a"].wait_output("sending clients away: the cluster has no quorum")
    answers = writer.drain_until_closed()
    assert [packet.reason for packet in answers if isinstance(packet, Disconnect)] == [USE_ANOTHER_SERVER]
    assert not any(isinstance(packet, PubAck) for packet in answers)
    newcomer = cluster.client("a")
    assert newcomer.connect("", check=False).code == SERVER_UNAVAILABLE
    cluster.servers.start()
    back = welcome(cluster, "b", unique.client("w"))
    back.send_publish(unique.topic("during"), b"during", qos=1, retain=True, packet_id=77, dup=True)
    back.expect(PubAck, packet_id=77)
    for node in "abc":
        welcome(cluster, node, unique.client(node))
        assert count_all(cluster, node, unique.topic("#"), 2) == {b"before", b"during"}


def test_a_node_that_stood_still_for_too_long_drops_its_clients_and_joins_anew(
    cluster: ClusterNodes, unique: Unique
) -> None:
    held = welcome(cluster, "a", unique.client("s"))
    held.subscribe(unique.topic(), qos=1)
    before = {by: cluster[by].output.count(SILENT) for by in "bc"}
    cluster["a"].pause()
    until(lambda: any(cluster[by].output.count(SILENT) > before[by] for by in "bc"), "node a is declared down")
    moved = welcome(cluster, "b", unique.client("s"))
    moved.publish(unique.topic(), b"meanwhile", qos=1, retain=True)
    assert moved.messages(1)[0].payload == b"meanwhile"
    cluster["a"].resume()
    assert any(isinstance(packet, Disconnect) for packet in held.drain_until_closed())
    cluster["a"].wait_output("starting again as another instance")
    again = welcome(cluster, "a", unique.client("x"))
    again.subscribe(unique.topic(), qos=1)
    assert again.messages(1)[0].payload == b"meanwhile"
    moved.ping()  # nobody has taken the session away from where it is now


def test_of_three_nodes_one_goes_on_alone(cluster: ClusterNodes, unique: Unique) -> None:
    sub = welcome(cluster, "a", unique.client("s"))
    sub.subscribe(unique.topic("#"), qos=1)
    cluster["a"].kill()
    visit(cluster, "b").publish(unique.topic("1"), b"1", qos=1, retain=True)
    cluster["b"].kill()
    writer = visit(cluster, "c")
    writer.publish(unique.topic("2"), b"2", qos=1, retain=True)
    back = welcome(cluster, "c", unique.client("s"))
    assert [message.payload for message in back.messages(2)] == [b"1", b"2"]
    cluster["a"].start()
    assert count_all(cluster, "a", unique.topic("#"), 2) == {b"1", b"2"}


def test_a_log_server_that_dies_stops_nothing_for_long(cluster: ClusterNodes, unique: Unique) -> None:
    writer = visit(cluster, "a", unique.client("w"))
    cluster.servers.meta_leader()
    for number in range(60):
        writer.send_publish(unique.topic(str(number)), f"{number}", qos=1, retain=True)
        if number == 20:
            cluster.servers[0].kill()
        if number == 40:
            cluster.servers[0].start()
    for _ in range(60):
        writer.expect(PubAck)
    assert count_all(cluster, "c", unique.topic("#"), 60) == {b"%d" % number for number in range(60)}


def test_what_was_acknowledged_is_there_after_everything_was_killed(cluster: ClusterNodes, unique: Unique) -> None:
    sub = welcome(cluster, "b", unique.client("s"))
    sub.subscribe(unique.topic("#"), qos=1)
    sub.cut()
    acknowledged: set[bytes] = set()
    stop = threading.Event()

    def write() -> None:
        client = visit(cluster, "a", unique.client("w"))
        number = 0
        while not stop.is_set():
            number += 1
            try:
                client.publish(unique.topic(str(number)), f"{number}", qos=1, retain=True)
            except (AssertionError, OSError):
                return
            acknowledged.add(b"%d" % number)

    thread = threading.Thread(target=write)
    thread.start()
    until(lambda: len(acknowledged) > 200, "200 were acknowledged")
    for server in cluster.servers:
        server.kill()
    for node in cluster:
        node.kill()
    stop.set()
    thread.join()
    cluster.start()
    for name in "abc":
        client = visit(cluster, name)
        client.subscribe(unique.topic("#"), qos=1)
        found: set[bytes] = set()
        while not acknowledged <= found:
            found.add(client.messages(1)[0].payload)
    back = welcome(cluster, "c", unique.client("s"))
    queued: set[bytes] = set()
    while not acknowledged <= queued:
        queued.add(back.messages(1)[0].payload)
