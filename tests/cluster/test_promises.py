"""What a cluster promises, one by one, on three real log servers and three real nodes.

All tests share one cluster: each leaves it whole, and keeps apart by topics and client ids of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from broker_process import Unique
from cluster_nodes import ClusterNodes
from wire import (
    Closed,
    Disconnect,
    P,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Will,
    WireClient,
    puback,
    pubcomp,
    pubrec,
    pubrel,
    subscribe,
)

FOREVER = (P.SESSION_EXPIRY, 100_000)
TAKEN_OVER = 0x8E
USE_ANOTHER_SERVER = 0x9C
NODE_TIMEOUT_S = 5


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


def stay(cluster: ClusterNodes, node: str, client_id: str, **fields: Any) -> WireClient:
    """A client whose session outlives its connection, at a node: a new one, or taken up there."""
    client = cluster.client(node)
    properties = [FOREVER, *fields.pop("properties", [])]
    client.connect(client_id, clean=False, properties=properties, **fields)
    return client


def visit(cluster: ClusterNodes, node: str, client_id: str) -> WireClient:
    client = cluster.client(node)
    client.connect(client_id)
    return client


def read_retained(cluster: ClusterNodes, node: str, topic_filter: str, count: int) -> dict[str, bytes]:
    """What a client finds that comes to a node now."""
    client = visit(cluster, node, "")
    client.subscribe(topic_filter, qos=1)
    found = {message.topic: message.payload for message in client.messages(count)}
    client.disconnect()
    return found


# 1 and 2: what is acknowledged is kept, and found on any node.


def test_what_was_acknowledged_on_one_node_is_found_at_once_on_any_other(cluster: ClusterNodes, unique: Unique) -> None:
    writer = visit(cluster, "a", unique.client("w"))
    readers = {node: visit(cluster, node, unique.client(node)) for node in "bc"}
    for number in range(40):
        writer.publish(unique.topic(), f"{number}", qos=1, retain=True)
        for reader in readers.values():
            reader.subscribe(unique.topic(), qos=1)
            found = reader.messages(1)[0]
            while not found.retain:  # what it still gets as a subscriber from before
                found = reader.messages(1)[0]
            assert found.payload == b"%d" % number


def test_a_burst_of_retained_messages_is_whole_on_every_node(cluster: ClusterNodes, unique: Unique) -> None:
    writer = visit(cluster, "a", unique.client("w"))
    for number in range(1000):
        writer.send_publish(unique.topic(str(number)), f"{number}", qos=1, retain=True)
    for _ in range(1000):
        writer.expect(PubAck)
    for node in "abc":
        found = read_retained(cluster, node, unique.topic("+"), 1000)
        assert found == {unique.topic(str(number)): b"%d" % number for number in range(1000)}


def test_a_subscriber_who_is_there_hears_of_a_retained_message_of_another_node(
    cluster: ClusterNodes, unique: Unique
) -> None:
    reader = visit(cluster, "b", unique.client("r"))
    reader.subscribe(unique.topic(), qos=1)
    visit(cluster, "a", unique.client("w")).publish(unique.topic(), b"now", qos=1, retain=True)
    assert reader.messages(1)[0].payload == b"now"


def test_what_is_cleared_on_one_node_is_gone_on_all(cluster: ClusterNodes, unique: Unique) -> None:
    visit(cluster, "a", unique.client("w")).publish(unique.topic(), b"here", qos=1, retain=True)
    visit(cluster, "b", unique.client("x")).publish(unique.topic(), b"", qos=1, retain=True)
    for node in "abc":
        reader = visit(cluster, node, unique.client(node))
        reader.subscribe(unique.topic(), qos=1)
        reader.expect_no_message()


def test_the_time_that_a_retained_message_was_held_is_taken_off_its_expiry_on_all_nodes(
    cluster: ClusterNodes, unique: Unique
) -> None:
    writer = visit(cluster, "a", unique.client("w"))
    writer.publish(unique.topic(), b"x", qos=1, retain=True, properties=[(P.MESSAGE_EXPIRY, 1000)])
    threading.Event().wait(2.5)
    left = {}
    for node in "abc":
        reader = visit(cluster, node, unique.client(node))
        reader.subscribe(unique.topic(), qos=1)
        left[node] = int(reader.messages(1)[0].prop(P.MESSAGE_EXPIRY))
    assert all(900 < seconds < 999 for seconds in left.values()), left


def test_an_expired_retained_message_is_gone_on_all_nodes(cluster: ClusterNodes, unique: Unique) -> None:
    writer = visit(cluster, "a", unique.client("w"))
    writer.publish(unique.topic(), b"x", qos=1, retain=True, properties=[(P.MESSAGE_EXPIRY, 1)])
    threading.Event().wait(2.0)
    for node in "abc":
        reader = visit(cluster, node, unique.client(node))
        reader.subscribe(unique.topic(), qos=1)
        reader.expect_no_message()


# 3: one order.


def test_subscribers_on_all_nodes_see_the_messages_of_a_topic_in_one_order(
    cluster: ClusterNodes, unique: Unique
) -> None:
    readers = {node: visit(cluster, node, unique.client(f"r{node}")) for node in "abc"}
    for reader in readers.values():
        reader.subscribe(unique.topic(), qos=1)
    writers = {node: visit(cluster, node, unique.client(f"w{node}")) for node in "abc"}
    for number in range(60):
        for node, writer in writers.items():
            writer.send_publish(unique.topic(), f"{node}{number}", qos=1, retain=True)
    seen = [[message.payload for message in reader.messages(180)] for reader in readers.values()]
    assert seen[0] == seen[1] == seen[2]
    assert len(set(seen[0])) == 180


def test_a_message_nobody_has_to_keep_reaches_subscribers_on_the_other_nodes(
    cluster: ClusterNodes, unique: Unique
) -> None:
    readers = [visit(cluster, node, unique.client(node)) for node in "abc"]
    for reader in readers:
        reader.subscribe(unique.topic(), qos=0)
    writer = visit(cluster, "a", unique.client("w"))
    waiting = dict(enumerate(readers))
    for number in range(600):  # until all nodes know who wants it
        writer.send_publish(unique.topic(), f"{number}", qos=0)
        for index, reader in list(waiting.items()):
            with suppress(TimeoutError):
                assert isinstance(reader.recv(0.1), Publish)
                del waiting[index]
        if not waiting:
            return
    raise AssertionError(f"subscribers {sorted(waiting)} got nothing")


# 4: sessions go on anywhere, and QoS 2 is exactly once.


def test_a_session_goes_on_at_another_node_with_all_that_it_had(cluster: ClusterNodes, unique: Unique) -> None:
    name = unique.client("s")
    sub = stay(cluster, "a", name, properties=[(P.RECEIVE_MAXIMUM, 2)])
    sub.subscribe(unique.topic("#"), qos=2)
    writer = visit(cluster, "b", unique.client("w"))
    for number in range(5):
        writer.publish(unique.topic(str(number)), f"{number}", qos=2)
    first, second = sub.expect(Publish, payload=b"0"), sub.expect(Publish, payload=b"1")
    sub.send(pubrec(first.packet_id or 0))
    sub.expect(PubRel, packet_id=first.packet_id)
    own = sub.send_publish(unique.topic("own"), b"mine", qos=2)
    sub.expect(PubRec, packet_id=own)
    sub.cut()
    back = stay(cluster, "c", name, properties=[(P.RECEIVE_MAXIMUM, 2)])
    assert back.connack is not None
    assert back.connack.session_present
    back.expect(PubRel, packet_id=first.packet_id)
    again = back.expect(Publish, payload=b"1")
    assert again.dup
    assert again.packet_id == second.packet_id
    back.send_publish(unique.topic("own"), b"mine", qos=2, packet_id=own, dup=True)
    back.expect(PubRec, packet_id=own)
    back.send(pubrel(own or 0))
    back.expect(PubComp, packet_id=own)
    back.send(pubcomp(first.packet_id or 0))
    back.ack(again)
    assert [message.payload for message in back.messages(4)] == [b"2", b"3", b"4", b"mine"]
    back.expect_no_message()


def test_a_received_message_is_finished_on_another_node_when_the_first_is_killed_in_any_phase(
    cluster: ClusterNodes, unique: Unique
) -> None:
    name = unique.client("s")
    sub = stay(cluster, "a", name)
    sub.subscribe(unique.topic(), qos=2)
    visit(cluster, "b", unique.client("w")).publish(unique.topic(), b"once", qos=2)
    message = sub.expect(Publish)
    number = message.packet_id or 0
    cluster["a"].kill()  # before PUBREC
    sub = stay(cluster, "b", name)
    again = sub.expect(Publish)
    assert (again.packet_id, again.dup) == (number, True)
    sub.send(pubrec(number))
    sub.expect(PubRel, packet_id=number)
    cluster["a"].start()
    cluster.wait_ready()
    cluster["b"].kill()  # before PUBCOMP
    sub = stay(cluster, "c", name)
    sub.expect(PubRel, packet_id=number)
    sub.send(pubcomp(number))
    sub.ping()
    sub.disconnect()
    sub = stay(cluster, "a", name)
    sub.expect_no_message()


@pytest.mark.parametrize("phase", ["before PUBREC", "after PUBREC", "after PUBREL"])
def test_a_publish_counts_once_when_its_node_is_killed(cluster: ClusterNodes, unique: Unique, phase: str) -> None:
    watch = visit(cluster, "b", unique.client("r"))
    watch.subscribe(unique.topic("#"), qos=2)
    name = unique.client("w")
    writer = stay(cluster, "a", name)
    for number in range(1, 6):
        writer.send_publish(unique.topic(), f"{number}", qos=2, packet_id=number)
    if phase != "before PUBREC":
        for number in range(1, 6):
            writer.expect(PubRec, packet_id=number)
    if phase == "after PUBREL":
        for number in range(1, 6):
            writer.send(pubrel(number))
        writer.expect(PubComp, packet_id=1)
    cluster["a"].kill()
    writer = stay(cluster, "c", name)
    for number in range(1, 6):
        if phase == "before PUBREC":
            writer.send_publish(unique.topic(), f"{number}", qos=2, packet_id=number, dup=True)
            writer.expect(PubRec, packet_id=number)
        writer.send(pubrel(number))
        writer.expect(PubComp, packet_id=number)
    writer.publish(unique.topic("end"), b"end", qos=2)
    assert [message.payload for message in watch.messages(6)] == [b"1", b"2", b"3", b"4", b"5", b"end"]


def test_a_queue_outlives_the_node_that_its_client_was_connected_to(cluster: ClusterNodes, unique: Unique) -> None:
    name = unique.client("s")
    sub = stay(cluster, "a", name)
    sub.subscribe(unique.topic(), qos=1)
    cluster["a"].kill()
    writer = visit(cluster, "b", unique.client("w"))
    for number in range(100):
        writer.send_publish(unique.topic(), f"{number}", qos=1)
    for _ in range(100):
        writer.expect(PubAck)
    back = stay(cluster, "c", name)
    assert [message.payload for message in back.messages(100)] == [b"%d" % number for number in range(100)]


def test_a_snapshot_that_moves_in_the_middle_is_completed_without_repeats(
    cluster: ClusterNodes, unique: Unique
) -> None:
    writer = visit(cluster, "a", unique.client("w"))
    for number in range(300):
        writer.send_publish(unique.topic(f"{number:03d}"), b"x", qos=1, retain=True)
    for _ in range(300):
        writer.expect(PubAck)
    name = unique.client("s")
    window = [(P.RECEIVE_MAXIMUM, 10)]
    sub = stay(cluster, "a", name, properties=window)
    sub.send(subscribe(9, [(unique.topic("+"), 1)], version=5))
    sub.expect(SubAck)
    finished = [message.topic for message in sub.messages(120)]
    cluster["a"].kill()
    sub = stay(cluster, "b", name, properties=window)
    found = sub.messages(100)
    cluster["b"].kill()
    cluster["a"].start()
    sub = stay(cluster, "c", name, properties=window)
    topics = {*finished, *(message.topic for message in found)}
    new = [message.topic for message in found if not message.dup]
    while len(topics) < 300:
        message = sub.messages(1)[0]
        if not message.dup:
            new.append(message.topic)
        topics.add(message.topic)
    rest = [packet for packet in sub.barrier() if isinstance(packet, Publish) and not packet.dup]
    assert not rest
    assert len(new) == len(set(new))
    # Acknowledgements that died with their node are the only reason to send something again, and it is marked.
    assert not set(finished) & set(new)


# 5: connected once.


def test_whoever_connects_on_another_node_takes_the_session_over(cluster: ClusterNodes, unique: Unique) -> None:
    name = unique.client("s")
    older = visit(cluster, "a", name)
    newer = visit(cluster, "b", name)
    older.expect_disconnect(TAKEN_OVER)
    newest = visit(cluster, "c", name)
    newer.expect_disconnect(TAKEN_OVER)
    newest.ping()


def test_of_many_who_connect_with_one_name_at_once_one_stays(cluster: ClusterNodes, unique: Unique) -> None:
    name = unique.client("s")
    clients = [cluster.client(node) for node in "abc" for _ in range(4)]

    def come(client: WireClient) -> None:
        with suppress(AssertionError, OSError):
            client.connect(name)

    threads = [threading.Thread(target=come, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    def stays(client: WireClient) -> bool:
        try:
            client.barrier()
        except (AssertionError, OSError):
            return False
        return True

    ends = []
    for client in clients:
        with suppress(Closed, OSError, TimeoutError):
            packet = client.recv(5.0)
            if isinstance(packet, Disconnect):
                ends.append(packet.reason)
    assert sum(stays(client) for client in clients) == 1
    assert set(ends) == {TAKEN_OVER}


# 6: wills.


@pytest.mark.parametrize("delay", [0, 2])
def test_the_will_of_a_client_whose_node_is_killed_is_published_once(
    cluster: ClusterNodes, unique: Unique, delay: int
) -> None:
    watch = visit(cluster, "b", unique.client("r"))
    watch.subscribe(unique.topic("#"), qos=1)
    will = Will(unique.topic("will"), b"gone", 1, properties=[(P.WILL_DELAY, delay)])
    stay(cluster, "a", unique.client("w"), will=will)
    cluster["a"].kill()
    assert watch.messages(1)[0].payload == b"gone"
    cluster["a"].start()
    cluster.wait_ready()
    visit(cluster, "c", unique.client("x")).publish(unique.topic("end"), b"end", qos=1)
    assert watch.messages(1)[0].payload == b"end"


def test_a_client_that_is_back_on_another_node_before_the_delay_is_over_has_no_will_published(
    cluster: ClusterNodes, unique: Unique
) -> None:
    watch = visit(cluster, "b", unique.client("r"))
    watch.subscribe(unique.topic("#"), qos=1)
    will = Will(unique.topic("will"), b"gone", 1, properties=[(P.WILL_DELAY, 60)])
    stay(cluster, "a", unique.client("w"), will=will)
    cluster["a"].kill()
    back = stay(cluster, "c", unique.client("w"))
    cluster["a"].start()
    cluster.wait_ready()
    back.publish(unique.topic("end"), b"end", qos=1)
    assert watch.messages(1)[0].payload == b"end"


# Shared subscriptions.


def test_a_group_loses_no_message_when_a_node_with_members_is_killed(cluster: ClusterNodes, unique: Unique) -> None:
    members = {node: stay(cluster, node, unique.client(node)) for node in "abc"}
    for node in "abc":
        visit(cluster, node, unique.client(f"t{node}")).subscribe(f"$share/other/{unique.topic('#')}", qos=1)
    for member in members.values():
        member.subscribe(f"$share/g/{unique.topic('#')}", qos=1)
    writer = visit(cluster, "b", unique.client("w"))
    got: set[bytes] = set()
    for number in range(150):
        writer.send_publish(unique.topic(str(number)), f"{number}", qos=1)
        if number == 75:
            cluster["a"].kill()
    for _ in range(150):
        writer.expect(PubAck)
    members["a"] = stay(cluster, "c", unique.client("a"))  # with what it had been given before
    while len(got) < 150:
        for member in members.values():
            with suppress(TimeoutError):
                packet = member.recv(0.2)
                if isinstance(packet, Publish):
                    got.add(packet.payload)
                    member.send(puback(packet.packet_id or 0))
    assert got == {b"%d" % number for number in range(150)}


def test_what_a_transient_member_had_not_acknowledged_goes_to_another_when_its_node_is_killed(
    cluster: ClusterNodes, unique: Unique
) -> None:
    lost = visit(cluster, "a", unique.client("a"))
    lost.subscribe(f"$share/g/{unique.topic()}", qos=1)
    writer = visit(cluster, "b", unique.client("w"))
    for number in range(10):
        writer.publish(unique.topic(), f"{number}", qos=1)
    for number in range(10):
        lost.expect(Publish, payload=b"%d" % number)
    other = visit(cluster, "c", unique.client("c"))
    other.subscribe(f"$share/g/{unique.topic()}", qos=1)
    cluster["a"].kill()
    assert [message.payload for message in other.messages(10)] == [b"%d" % number for number in range(10)]
