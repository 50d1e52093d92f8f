"""What broke in clusters of other brokers, as tests of this one, on real log servers and nodes.

| # | what broke elsewhere | here |
|---|---|---|
| 1, 2 | a value that was acknowledged on one node is not seen on another | test_promises: found_at_once_on_any_other |
| 3 | a subscriber who is there hears nothing until it reconnects | test_promises: hears_of_a_retained_message |
| 4 | of a burst of retained messages a node misses some | test_promises: a_burst_of_retained_messages |
| 5, 10 | nodes differ after a partition, and look healed | test_cut_off, and equal_after here |
| 6 | merging two histories crashes | does not apply: there is one log, and nothing to merge |
| 7 | the second partition in a row is not healed | cut_off_again here |
| 8 | without a majority the cluster is dead for good | test_cut_off: a_node_without_quorum |
| 9 | a node that was cut off goes on serving | test_cut_off: stood_still_for_too_long |
| 11 | client ids are blocked, or there twice, after a partition | connects_with_its_name_again here; schedules |
| 12, 13 | the queue dies with the node of its client | test_promises: a_queue_outlives_the_node |
| 14 | what comes while a session moves is lost | keeps_moving here |
| 15 | a snapshot begins again, or repeats, when its session moves | test_promises: a_snapshot_that_moves |
| 16 | a limited rate drops the rest of a snapshot | a_slow_reader here |
| 17, 18 | acknowledged at QoS 1 and lost with a node | test_cut_off: after_everything_was_killed |
| 19 | queues of a node that left are gone | does not apply: no node has queues of its own; see 12 |
| 20 | a queue cannot be moved | does not apply: nothing is moved; see keeps_moving |
| 21, 26 | one node is down, and the others refuse clients | at_once_when_a_node_is_gone here |
| 22 | connecting right after the loss of a node crashes | at_once_when_a_node_is_gone here |
| 23 | after a reconnect only the last messages come, without DUP | test_promises: goes_on_at_another_node |
| 24 | kill -9 of one node blocks the others for minutes | at_once_when_a_node_is_gone here |
| 25 | the log has another shape than the configuration says | test_bad_days: a_stream_with_other_settings |
| 27 | bodies of retained messages are not what was sent | byte_for_byte here |
| 28 | a time-out while many retained messages are loaded | test_promises: a_burst_of_retained_messages |
| 29 | QoS 2 is not resumed as it was, packet ids are used twice | test_promises: finished_on_another_node; schedules |
| 30 | what is cleared on one node is there on another | test_promises: gone_on_all |
| 31 | groups lose messages with their members | test_promises: a_group_loses_no_message |
| 32 | a node that starts alone hangs | starts_alone here |
| 33 | the time held is not taken off the expiry | test_promises: taken_off_its_expiry |

"Here" is this file; `schedules` is tests/model/test_cluster_schedules.py.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from broker_process import Unique
from cluster_nodes import ClusterNodes
from log_servers import until
from wire import P, PubAck, Publish, PubRel, WireClient, pubcomp, pubrec

FOREVER = (P.SESSION_EXPIRY, 100_000)
NODE_TIMEOUT_S = 5
INSTANCE = "starting again as another instance"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNodes]:
    with ClusterNodes(tmp_path_factory.mktemp("cluster"), cluster__node_timeout=NODE_TIMEOUT_S) as cluster:
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


def come(cluster: ClusterNodes, node: str, client_id: str, window: int = 100) -> WireClient:
    client = cluster.client(node)
    client.connect(client_id, clean=False, properties=[FOREVER, (P.RECEIVE_MAXIMUM, window)])
    return client


def visit(cluster: ClusterNodes, node: str) -> WireClient:
    client = cluster.client(node)
    client.connect("")
    return client


def retained(cluster: ClusterNodes, node: str, topic_filter: str, count: int) -> dict[str, bytes]:
    client = visit(cluster, node)
    client.subscribe(topic_filter, qos=1)
    return {message.topic: message.payload for message in client.messages(count)}


def test_a_node_that_is_cut_off_again_and_again_is_equal_after_each_time(cluster: ClusterNodes, unique: Unique) -> None:
    for number in range(1, 3):
        cluster["a"].pause()
        writer = visit(cluster, "b")
        writer.publish(unique.topic(str(number)), f"{number}", qos=1, retain=True)
        writer.publish(unique.topic("same"), f"{number}", qos=1, retain=True)
        until(lambda: "a" not in cluster["b"].heard() and "a" not in cluster["c"].heard(), "the others miss node a")
        cluster["a"].resume()
        until(lambda number=number: cluster["a"].output.count(INSTANCE) >= number, "node a joins anew")  # type: ignore[misc]
        until(lambda: {"a"} <= cluster["b"].heard(), "node b hears node a")
        found = [retained(cluster, node, unique.topic("+"), number + 1) for node in "abc"]
        assert found[0] == found[1] == found[2]
        assert found[0][unique.topic("same")] == b"%d" % number


def test_a_client_connects_with_its_name_again_and_again_while_nodes_come_and_go(
    cluster: ClusterNodes, unique: Unique
) -> None:
    for number in range(4):
        node = "abc"[number % 3]
        client = come(cluster, node, unique.client("s"))
        assert client.connack is not None
        assert client.connack.session_present == (number > 0)
        cluster[node].kill()
        come(cluster, "abc"[(number + 1) % 3], unique.client("s")).ping()
        cluster[node].start()


def test_a_session_that_keeps_moving_gets_every_message_and_each_of_qos_2_once(
    cluster: ClusterNodes, unique: Unique
) -> None:
    name = unique.client("s")
    client = come(cluster, "a", name)
    client.subscribe(unique.topic("#"), qos=2)
    count = 200

    def write() -> None:
        writer = visit(cluster, "b")
        for number in range(count):
            writer.publish(unique.topic(), f"{number}", qos=2)

    thread = threading.Thread(target=write)
    thread.start()
    got: list[bytes] = []
    open_ids: dict[int, bytes] = {}  # what the client knows between connections
    moves = 0
    while len(got) < count:
        try:
            message = client.recv(5.0)
        except TimeoutError:
            continue
        if isinstance(message, Publish):
            assert message.packet_id is not None
            if message.packet_id not in open_ids:
                open_ids[message.packet_id] = message.payload
                got.append(message.payload)
            if random.random() < 0.05:
                moves += 1
                client = come(cluster, "abc"[moves % 3], name)
                continue
        answer(client, message, open_ids)
    thread.join()
    assert got == [b"%d" % number for number in range(count)]
    assert moves > 0


def answer(client: WireClient, packet: object, open_ids: dict[int, bytes]) -> None:
    with suppress(OSError):
        if isinstance(packet, Publish):
            client.send(pubrec(packet.packet_id or 0))
        elif isinstance(packet, PubRel):
            open_ids.pop(packet.packet_id, None)
            client.send(pubcomp(packet.packet_id))


def test_a_slow_reader_gets_its_whole_snapshot_in_the_end(cluster: ClusterNodes, unique: Unique) -> None:
    writer = visit(cluster, "a")
    for number in range(200):
        writer.send_publish(unique.topic(str(number)), random.randbytes(2000), qos=1, retain=True)
    for _ in range(200):
        writer.expect(PubAck)
    reader = cluster.client("b", receive_buffer=4096)
    reader.connect(unique.client("r"), clean=False, properties=[FOREVER, (P.RECEIVE_MAXIMUM, 1)])
    reader.subscribe(unique.topic("+"), qos=1)
    assert len({message.topic for message in reader.messages(200)}) == 200


def test_clients_are_served_at_once_when_a_node_is_gone(cluster: ClusterNodes, unique: Unique) -> None:
    here = come(cluster, "b", unique.client("b"))
    here.subscribe(unique.topic(), qos=1)
    lost = come(cluster, "a", unique.client("a"))
    lost.subscribe(unique.topic(), qos=1)
    cluster["a"].kill()
    # Nobody has found out yet that it is gone.
    back = come(cluster, "c", unique.client("a"))
    come(cluster, "b", unique.client("new")).publish(unique.topic(), b"1", qos=1)
    assert here.messages(1)[0].payload == b"1"
    assert back.messages(1)[0].payload == b"1"


def test_retained_bodies_are_what_was_sent_byte_for_byte_on_all_nodes(cluster: ClusterNodes, unique: Unique) -> None:
    bodies = {unique.topic(str(size)): random.randbytes(size) for size in (1, 2, 127, 128, 16_384, 65_536, 200_000)}
    writer = visit(cluster, "a")
    for topic, body in bodies.items():
        writer.publish(topic, body, qos=1, retain=True)
    cluster["c"].restart()
    for node in "abc":
        assert retained(cluster, node, unique.topic("+"), len(bodies)) == bodies


def test_a_node_that_starts_alone_serves_with_all_that_the_cluster_had(cluster: ClusterNodes, unique: Unique) -> None:
    sub = come(cluster, "a", unique.client("s"))
    sub.subscribe(unique.topic(), qos=1)
    sub.disconnect()
    visit(cluster, "b").publish(unique.topic(), b"1", qos=1, retain=True)
    for node in cluster:
        node.kill()
    cluster["c"].start()
    back = come(cluster, "c", unique.client("s"))
    assert back.messages(1)[0].payload == b"1"
    assert retained(cluster, "c", unique.topic(), 1) == {unique.topic(): b"1"}
