"""How messages reach a session: QoS, the window, the queue behind it, and what is sent again."""

from collections.abc import Callable
from typing import Any

import pytest

import wire
from core_broker import CoreBroker, CoreClient
from wire import P, Publish, PubRel

Start = Callable[..., CoreBroker]
BOTH = pytest.mark.parametrize("version", [4, 5], ids=["v311", "v5"])
KIB = 1024


def window(size: int) -> list[wire.Property]:
    return [(P.RECEIVE_MAXIMUM, size)]


def under_way(client: CoreClient) -> list[Publish]:
    """The messages that have arrived, not acknowledged."""
    found = client.arrived()
    return [packet for packet in found if isinstance(packet, Publish)]


def told(messages: list[Publish]) -> list[str]:
    return [message.payload.decode() for message in messages]


def id_of(message: Publish) -> int:
    assert message.packet_id is not None
    return message.packet_id


def reader_and_writer(broker: CoreBroker, qos: int = 1, **fields: Any) -> tuple[CoreClient, CoreClient]:
    reader = broker.join("reader", **fields)
    reader.subscribe("#", qos=qos)
    return reader, broker.join("writer")


# QoS and copies


@pytest.mark.parametrize("sent", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_copy_has_the_lower_of_sent_and_granted_qos(broker: CoreBroker, sent: int, granted: int) -> None:
    reader, writer = reader_and_writer(broker, granted)
    writer.publish("a", b"1", qos=sent)
    assert reader.copies() == [("a", "1", min(sent, granted), False)]


@BOTH
def test_overlapping_subscriptions_are_one_copy_at_the_highest_qos(broker: CoreBroker, version: int) -> None:
    reader = broker.join("reader", version)
    for topic_filter, qos in (("a/b", 0), ("a/+", 2), ("#", 1)):
        reader.subscribe(topic_filter, qos=qos)
    broker.join("writer").publish("a/b", b"1", qos=2)
    assert reader.copies() == [("a/b", "1", 2, False)]


def test_one_copy_names_every_subscription_that_matches(broker: CoreBroker) -> None:
    reader = broker.join("reader")
    for number, topic_filter in enumerate(("a/b", "a/+", "other"), start=1):
        reader.subscribe(topic_filter, properties=[(P.SUBSCRIPTION_ID, number)])
    broker.join("writer").publish("a/b", b"1")
    (message,) = under_way(reader)
    assert sorted(message.props(P.SUBSCRIPTION_ID)) == [1, 2]


def test_a_client_with_no_local_is_not_sent_its_own_messages(broker: CoreBroker) -> None:
    client, other = broker.join("client"), broker.join("other")
    client.subscribe("a", no_local=True)
    client.publish("a", b"mine")
    other.publish("a", b"theirs")
    assert client.payloads() == ["theirs"]


def test_of_overlapping_subscriptions_only_those_with_no_local_are_left_out(broker: CoreBroker) -> None:
    client = broker.join("client")
    client.subscribe("a", qos=2, no_local=True, properties=[(P.SUBSCRIPTION_ID, 1)])
    client.subscribe("#", qos=1, properties=[(P.SUBSCRIPTION_ID, 2)])
    client.publish("a", b"mine", qos=2)
    (message,) = under_way(client)
    assert (message.qos, message.props(P.SUBSCRIPTION_ID)) == (1, [2])


@pytest.mark.parametrize("as_published", [False, True])
def test_a_live_copy_carries_retain_only_on_request(broker: CoreBroker, as_published: bool) -> None:
    reader = broker.join("reader")
    reader.subscribe("a", retain_as_published=as_published)
    broker.join("writer").publish("a", b"1", retain=True)
    assert reader.copies() == [("a", "1", 0, as_published)]


def test_a_receiver_with_aliases_is_sent_a_topic_once(broker: CoreBroker) -> None:
    reader, writer = reader_and_writer(broker, properties=[(P.TOPIC_ALIAS_MAXIMUM, 1)])
    for topic in ("a", "b", "a", "b"):
        writer.publish(topic, b"1")
    sent = [(message.topic, message.prop(P.TOPIC_ALIAS)) for message in under_way(reader)]
    assert sent == [("a", 1), ("b", None), ("", 1), ("b", None)]


# The window


@pytest.mark.parametrize("qos", [1, 2])
def test_no_more_is_under_way_than_the_client_takes(broker: CoreBroker, qos: int) -> None:
    reader, writer = reader_and_writer(broker, qos, properties=window(2))
    for number in range(5):
        writer.publish("a", str(number), qos=qos)
    first, second = under_way(reader)
    reader.ack(second)
    assert reader.payloads() == ["2"], "an acknowledgement makes room for one, whichever it is for"
    reader.ack(first)
    assert reader.payloads() == ["3"]


@pytest.mark.parametrize(("asked", "most"), [(None, 3), (2, 2), (10, 3)])
def test_the_window_is_the_smaller_of_what_either_side_allows(start: Start, asked: int | None, most: int) -> None:
    broker = start(limits__max_inflight=3)
    reader, writer = reader_and_writer(broker, properties=window(asked) if asked else [])
    for number in range(5):
        writer.publish("a", str(number), qos=1)
    assert len(under_way(reader)) == most


def test_qos_0_needs_no_window(broker: CoreBroker) -> None:
    reader, writer = reader_and_writer(broker, properties=window(1))
    writer.publish("a", b"1", qos=1)
    writer.publish("b", b"2", qos=0)
    assert reader.payloads() == ["1", "2"]


def test_qos_0_does_not_overtake_what_waits_of_its_topic(broker: CoreBroker) -> None:
    reader, writer = reader_and_writer(broker, properties=window(1))
    for payload, qos in (("1", 1), ("2", 1), ("3", 0)):
        writer.publish("a", payload, qos=qos)
    (first,) = under_way(reader)
    reader.ack(first)
    assert reader.copies() == [("a", "2", 1, False)]
    reader.ack(Publish(topic="a", qos=1, packet_id=2))
    assert reader.copies() == [("a", "3", 0, False)]


def test_a_refused_message_leaves_the_window(broker: CoreBroker) -> None:
    reader, writer = reader_and_writer(broker, 2, properties=window(1))
    for number in range(2):
        writer.publish("a", str(number), qos=2)
    (first,) = under_way(reader)
    reader.send(wire.pubrec(id_of(first), 0x97))
    assert reader.payloads() == ["1"]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("packet", [wire.puback, wire.pubcomp, wire.pubrec], ids=["PUBACK", "PUBCOMP", "PUBREC"])
def test_only_the_answer_that_is_due_moves_the_window(
    broker: CoreBroker, qos: int, packet: Callable[[int], bytes]
) -> None:
    reader, writer = reader_and_writer(broker, qos, properties=window(1))
    for number in range(2):
        writer.publish("a", str(number), qos=qos)
    (first,) = under_way(reader)
    reader.send(packet(id_of(first)))
    is_due = qos == 1 and packet is wire.puback
    assert told(under_way(reader)) == (["1"] if is_due else [])


@pytest.mark.parametrize(("version", "reason"), [(4, 0), (5, 0x92)])
def test_a_pubrec_for_nothing_is_answered_all_the_same(broker: CoreBroker, version: int, reason: int) -> None:
    reader = broker.join("reader", version)
    reader.send(wire.pubrec(9))
    assert reader.arrived() == [PubRel(packet_id=9, reason=reason)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_too_large_for_the_client_counts_as_sent(broker: CoreBroker, qos: int) -> None:
    reader, writer = reader_and_writer(broker, qos, properties=[*window(1), (P.MAXIMUM_PACKET_SIZE, 50)])
    writer.publish("a", b"x" * 60, qos=qos)
    writer.publish("a", b"fits", qos=qos)
    assert reader.payloads() == ["fits"]


@pytest.mark.parametrize(("payload", "fits"), [(43, True), (44, False)])
def test_the_largest_packet_of_a_client_is_counted_to_the_byte(broker: CoreBroker, payload: int, fits: bool) -> None:
    reader, writer = reader_and_writer(broker, 0, properties=[(P.MAXIMUM_PACKET_SIZE, 49)])
    writer.publish("a", b"x" * payload)
    found = under_way(reader)
    assert len(found) == fits
    assert all(len(message.raw) == 49 for message in found)


# The queue


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_absent_client_is_kept_messages_with_an_acknowledgement(broker: CoreBroker, qos: int) -> None:
    reader, writer = reader_and_writer(broker, 2, keep=True)
    reader.cut()
    for number in range(3):
        writer.publish("a", str(number), qos=qos)
    assert broker.join("reader", keep=True).payloads() == (["0", "1", "2"] if qos else [])


def test_a_full_queue_drops_the_newest(start: Start) -> None:
    broker = start(limits__max_queued_messages=2)
    reader, writer = reader_and_writer(broker, keep=True)
    reader.cut()
    for number in range(4):
        writer.publish("a", str(number), qos=1)
    assert broker.join("reader", keep=True).payloads() == ["0", "1"]


def test_a_queue_is_bounded_by_bytes_of_topic_and_payload(start: Start) -> None:
    broker = start(limits__max_queued_bytes=20)
    reader, writer = reader_and_writer(broker, keep=True)
    reader.cut()
    for payload in ("123456789", "987654321", "x"):
        writer.publish("a", payload, qos=1)
    assert broker.join("reader", keep=True).payloads() == ["123456789", "987654321"]


def test_what_waits_too_long_in_the_queue_is_not_sent(broker: CoreBroker) -> None:
    reader, writer = reader_and_writer(broker, keep=True)
    reader.cut()
    writer.publish("a", b"short", qos=1, properties=[(P.MESSAGE_EXPIRY, 10)])
    writer.publish("a", b"long", qos=1, properties=[(P.MESSAGE_EXPIRY, 11)])
    broker.pass_time(10)
    (message,) = under_way(broker.join("reader", keep=True))
    assert (message.payload, message.prop(P.MESSAGE_EXPIRY)) == (b"long", 1)


@pytest.mark.parametrize(("waited", "left"), [(0, 10), (0.001, 10), (1, 9), (8.999, 2), (9, 1), (9.999, 1)])
def test_what_is_left_of_an_interval_is_rounded_up(broker: CoreBroker, waited: float, left: int) -> None:
    reader, writer = reader_and_writer(broker, keep=True)
    reader.cut()
    writer.publish("a", b"1", qos=1, properties=[(P.MESSAGE_EXPIRY, 10)])
    broker.pass_time(waited)
    (message,) = under_way(broker.join("reader", keep=True))
    assert message.prop(P.MESSAGE_EXPIRY) == left


# Sending again


@pytest.mark.parametrize("qos", [1, 2])
def test_a_resumed_session_is_sent_again_what_was_under_way(broker: CoreBroker, qos: int) -> None:
    reader, writer = reader_and_writer(broker, qos, keep=True)
    for number in range(3):
        writer.publish("a", str(number), qos=qos)
    first = under_way(reader)
    reader.cut()
    again = under_way(broker.join("reader", keep=True))
    assert [(m.packet_id, m.payload, m.dup) for m in again] == [(m.packet_id, m.payload, True) for m in first]


def test_what_was_under_way_goes_before_what_waits(broker: CoreBroker) -> None:
    reader, writer = reader_and_writer(broker, keep=True)
    writer.publish("a", b"1", qos=1)
    reader.cut()
    writer.publish("a", b"2", qos=1)
    again = under_way(broker.join("reader", keep=True))
    assert [(m.payload, m.dup) for m in again] == [(b"1", True), (b"2", False)]


def test_a_release_that_was_not_answered_is_sent_again_and_the_message_is_not(broker: CoreBroker) -> None:
    reader, writer = reader_and_writer(broker, 2, keep=True)
    writer.publish("a", b"1", qos=2)
    (message,) = under_way(reader)
    reader.send(wire.pubrec(id_of(message)))
    reader.cut()
    assert broker.join("reader", keep=True).arrived() == [PubRel(packet_id=id_of(message))]


def test_sending_again_keeps_to_the_window_of_the_new_connection(broker: CoreBroker) -> None:
    reader, writer = reader_and_writer(broker, keep=True)
    for number in range(4):
        writer.publish("a", str(number), qos=1)
    reader.cut()
    back = broker.join("reader", keep=True, properties=window(2))
    first, second = under_way(back)
    assert told([first, second]) == ["0", "1"]
    back.ack(first)
    back.ack(second)
    assert told(under_way(back)) == ["2", "3"]


def test_qos_0_does_not_overtake_what_is_yet_to_be_sent_again(broker: CoreBroker) -> None:
    reader, writer = reader_and_writer(broker, keep=True)
    for number in range(3):
        writer.publish("a", str(number), qos=1)
    reader.cut()
    back = broker.join("reader", keep=True, properties=window(1))
    writer.publish("a", b"live", qos=0)
    for _ in range(3):
        (message,) = under_way(back)
        assert message.payload != b"live"
        back.ack(message)
    assert back.payloads() == ["live"]


def test_what_has_become_too_large_is_not_sent_again_and_frees_its_place(broker: CoreBroker) -> None:
    reader, writer = reader_and_writer(broker, keep=True)
    writer.publish("a", b"x" * 60, qos=1)
    writer.publish("a", b"small", qos=1)
    reader.cut()
    back = broker.join("reader", keep=True, properties=[*window(1), (P.MAXIMUM_PACKET_SIZE, 50)])
    assert told(under_way(back)) == ["small"]


def test_nothing_is_sent_again_while_the_connection_lasts(broker: CoreBroker) -> None:
    reader, writer = reader_and_writer(broker, 2)
    writer.publish("a", b"1", qos=2)
    assert reader.payloads() == ["1"]
    broker.pass_time(3600)
    assert reader.arrived() == []


# Slow readers


def test_a_reader_that_does_not_read_misses_qos_0_beyond_its_outbox(start: Start) -> None:
    broker = start(limits__max_outbox_bytes=4096)
    reader, writer = reader_and_writer(broker, 0)
    broker.world.block(reader.link)
    for number in range(10):
        writer.publish("a", f"{number}" + "x" * KIB)
    broker.world.unblock(reader.link)
    assert [payload[0] for payload in reader.payloads()] == ["0", "1", "2", "3"]


def test_what_has_an_acknowledgement_waits_for_a_slow_reader(start: Start) -> None:
    broker = start(limits__max_outbox_bytes=4096)
    reader, writer = reader_and_writer(broker)
    broker.world.block(reader.link)
    for number in range(10):
        writer.publish("a", f"{number}" + "x" * KIB, qos=1)
    broker.world.unblock(reader.link)
    arrived = under_way(reader)
    for _ in range(10):
        if len(arrived) == 10:
            break
        for message in arrived:
            reader.ack(message)
        arrived += under_way(reader)
    assert [message.payload[:1] for message in arrived] == [b"%d" % number for number in range(10)]


# Shared subscriptions


def members(broker: CoreBroker, *names: str, qos: int = 1, **fields: Any) -> list[CoreClient]:
    joined = [broker.join(name, **fields) for name in names]
    for member in joined:
        member.subscribe("$share/g/a", qos=qos)
    return joined


def test_a_group_is_sent_each_message_once_in_turn(broker: CoreBroker) -> None:
    one, two = members(broker, "one", "two")
    writer = broker.join("writer")
    for number in range(4):
        writer.publish("a", str(number), qos=1)
    assert (one.payloads(), two.payloads()) == (["0", "2"], ["1", "3"])


def test_groups_and_ordinary_subscribers_do_not_take_from_each_other(broker: CoreBroker) -> None:
    (member,) = members(broker, "member")
    other, plain = broker.join("other"), broker.join("plain")
    other.subscribe("$share/h/a", qos=1)
    plain.subscribe("a")
    broker.join("writer").publish("a", b"1", qos=1)
    assert [client.payloads() for client in (member, other, plain)] == [["1"]] * 3


def test_members_that_are_there_go_before_those_that_are_not(broker: CoreBroker) -> None:
    absent, present = members(broker, "absent", "present", keep=True)
    absent.cut()
    writer = broker.join("writer")
    for number in range(3):
        writer.publish("a", str(number), qos=1)
    assert present.payloads() == ["0", "1", "2"]


def test_a_member_whose_window_is_full_is_passed_over(broker: CoreBroker) -> None:
    full, free = members(broker, "full", "free", properties=window(1))
    writer = broker.join("writer")
    writer.publish("a", b"0", qos=1)
    writer.publish("a", b"1", qos=1)
    free.ack(under_way(free)[0])
    writer.publish("a", b"2", qos=1)
    assert (full.payloads(), free.payloads()) == (["0"], ["2"])


def test_a_group_whose_members_are_all_absent_keeps_messages_for_one(broker: CoreBroker) -> None:
    (member,) = members(broker, "member", keep=True)
    member.cut()
    broker.join("writer").publish("a", b"1", qos=1)
    assert broker.join("member", keep=True).payloads() == ["1"]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_leaving_member_did_not_acknowledge_goes_to_another_at_qos_1(broker: CoreBroker, qos: int) -> None:
    leaving, staying = members(broker, "leaving", "staying", qos=2)
    broker.join("writer").publish("a", b"1", qos=qos)
    assert leaving.payloads() == ["1"]
    leaving.cut()
    assert staying.payloads() == (["1"] if qos == 1 else []), "at QoS 2 it might come twice"


def test_what_waits_for_a_member_that_unsubscribes_goes_to_another(broker: CoreBroker) -> None:
    leaving, staying = members(broker, "leaving", "staying", properties=window(1))
    writer = broker.join("writer")
    for number in range(3):
        writer.publish("a", str(number), qos=1)
    (mine,), (other,) = under_way(leaving), under_way(staying)
    assert told([mine, other]) == ["0", "1"]
    leaving.unsubscribe("$share/g/a")
    leaving.ack(mine)
    staying.ack(other)
    assert (leaving.payloads(), staying.payloads()) == ([], ["2"])
