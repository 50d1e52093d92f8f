"""What a new subscription is sent: the retained set as of its beginning, whole, in step with what is published."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import wire
from core_broker import CoreBroker, CoreClient
from wire import P, Property, Publish

Start = Callable[..., CoreBroker]

MARKER = "$holdfast/snapshot/end"
MARK: Property = (P.USER_PROPERTY, ("holdfast-snapshot", "mark"))
META: Property = (P.USER_PROPERTY, ("holdfast-retained-meta", "on"))
ONE_AT_A_TIME: list[Property] = [(P.RECEIVE_MAXIMUM, 1)]
KIB = 1024


def retain(writer: CoreClient, *messages: str, **fields: Any) -> None:
    for message in messages:
        topic, _, payload = message.partition("=")
        writer.publish(topic, payload, qos=1, retain=True, **fields)


def read(client: CoreClient) -> list[str]:
    """Acknowledge what comes until nothing does: `a=1` for a live message, `a:1` for a retained one."""
    found: list[str] = []
    while packets := client.arrived():
        for packet in packets:
            assert isinstance(packet, Publish), packet
            found.append(f"{packet.topic}{':' if packet.retain else '='}{packet.payload.decode()}")
            client.ack(packet)
    return found


def since(offset: int) -> list[Property]:
    return [(P.USER_PROPERTY, ("holdfast-since", str(offset)))]


def marked(client: CoreClient) -> tuple[list[str], dict[str, Any]]:
    """What came before the end marker, and what the marker says."""
    *copies, last = read(client)
    topic, _, payload = last.partition("=")
    assert topic == MARKER
    return copies, json.loads(payload)


# Completeness and pace


@pytest.mark.parametrize("window", [1, 2, 7])
@pytest.mark.parametrize("qos", [1, 2])
def test_every_message_comes_once_for_any_window(broker: CoreBroker, window: int, qos: int) -> None:
    writer, reader = broker.join("writer"), broker.join("reader", properties=[(P.RECEIVE_MAXIMUM, window)])
    for number in range(20):
        writer.publish(f"t/{number}", b"1", qos=2, retain=True)
    reader.subscribe("t/+", qos=qos)
    assert sorted(read(reader)) == sorted(f"t/{number}:1" for number in range(20))
    assert broker.world.leaks() == []


def test_a_snapshot_waits_for_the_window(broker: CoreBroker) -> None:
    writer, reader = broker.join("writer"), broker.join("reader", properties=[(P.RECEIVE_MAXIMUM, 2)])
    retain(writer, "a=1", "b=1", "c=1")
    reader.subscribe("#", qos=1)
    first, second = reader.arrived()
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    reader.ack(first)
    assert len(reader.arrived()) == 1


def test_a_snapshot_is_not_bounded_by_the_queue_limit(start: Start) -> None:
    broker = start(limits__max_queued_messages=1, limits__max_inflight=2)
    writer, reader = broker.join("writer"), broker.join("reader")
    retain(writer, *(f"t/{number}=1" for number in range(50)))
    reader.subscribe("#", qos=1)
    assert len(read(reader)) == 50


def test_a_snapshot_waits_for_a_reader_that_does_not_read(start: Start) -> None:
    broker = start(limits__max_outbox_bytes=4096)
    writer, reader = broker.join("writer"), broker.join("reader")
    retain(writer, *(f"t/{number}=" + "x" * KIB for number in range(400)))
    broker.world.block(reader.link)
    reader.send(wire.subscribe(1, [("#", 0)], version=5))
    broker.world.unblock(reader.link)
    broker.world.work_off()
    reader.expect(wire.SubAck)
    assert len(read(reader)) == 400


# In step with what is published


def test_what_is_published_after_the_beginning_comes_live(broker: CoreBroker) -> None:
    writer, reader = broker.join("writer"), broker.join("reader", properties=ONE_AT_A_TIME)
    retain(writer, "a=1", "b=1")
    reader.subscribe("#", qos=1)
    retain(writer, "c=1")
    assert sorted(read(reader)) == ["a:1", "b:1", "c=1"]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_plain_message_does_not_come_before_what_is_retained_of_its_topic(broker: CoreBroker, qos: int) -> None:
    writer, reader = broker.join("writer"), broker.join("reader", properties=ONE_AT_A_TIME)
    retain(writer, *(f"t/{number}=old" for number in range(5)))
    reader.subscribe("t/+", qos=1)
    for number in range(5):
        writer.publish(f"t/{number}", b"new", qos=qos)
    seen = read(reader)
    for number in range(5):
        of_topic = [message for message in seen if message.startswith(f"t/{number}")]
        assert of_topic == [f"t/{number}:old", f"t/{number}=new"]


def test_a_copy_does_not_come_before_what_waits_of_its_topic(broker: CoreBroker) -> None:
    writer, reader = broker.join("writer"), broker.join("reader", properties=ONE_AT_A_TIME)
    reader.subscribe("a", qos=1)
    writer.publish("a", b"1", qos=1)
    writer.publish("a", b"2", qos=1)
    retain(writer, "a=3")
    reader.subscribe("+", qos=0)
    assert read(reader) == ["a=1", "a=2", "a=3", "a:3"]


def test_a_topic_that_changes_before_its_turn_is_sent_once_and_new(broker: CoreBroker) -> None:
    writer, reader = broker.join("writer"), broker.join("reader", properties=ONE_AT_A_TIME)
    retain(writer, *(f"t/{number}=old" for number in range(5)))
    reader.subscribe("t/+", qos=1)
    (begun,) = reader.arrived()
    assert isinstance(begun, Publish)
    retain(writer, *(f"t/{number}=new" for number in range(5)))
    reader.ack(begun)
    assert sorted(read(reader)) == [f"t/{number}=new" for number in range(5)]


def test_a_topic_that_is_cleared_before_its_turn_is_not_sent(broker: CoreBroker) -> None:
    writer, reader = broker.join("writer"), broker.join("reader", properties=ONE_AT_A_TIME)
    retain(writer, "a=1", "b=1", "c=1")
    reader.subscribe("#", qos=1)
    (begun,) = reader.arrived()
    assert isinstance(begun, Publish)
    retain(writer, *(f"{topic}=" for topic in "abc"))
    reader.ack(begun)
    assert sorted(read(reader)) == ["a=", "b=", "c="]


def test_a_topic_that_expires_before_its_turn_is_not_sent(broker: CoreBroker) -> None:
    writer, reader = broker.join("writer"), broker.join("reader", properties=ONE_AT_A_TIME)
    retain(writer, "a=1", "b=1", "c=1", properties=[(P.MESSAGE_EXPIRY, 10)])
    reader.subscribe("#", qos=1)
    (begun,) = reader.arrived()
    assert isinstance(begun, Publish)
    broker.pass_time(10)
    reader.ack(begun)
    assert read(reader) == []


def test_a_change_that_a_slow_reader_missed_is_made_up_for_in_the_end(start: Start) -> None:
    broker = start(limits__max_outbox_bytes=4096)
    writer, reader = broker.join("writer"), broker.join("reader")
    retain(writer, *(f"t/{number}=" + "x" * KIB for number in range(20)))
    broker.world.block(reader.link)
    reader.send(wire.subscribe(1, [("#", 0)], version=5))
    writer.publish("plain", b"x" * 8 * KIB)
    retain(writer, "t/7=new", "late=1")
    broker.world.unblock(reader.link)
    broker.world.work_off()
    reader.expect(wire.SubAck)
    seen = read(reader)
    assert [message for message in seen if message.startswith(("t/7", "late"))] == ["t/7:new", "late:1"]


def test_of_its_own_messages_a_client_with_no_local_is_sent_none(broker: CoreBroker) -> None:
    writer, client = broker.join("writer"), broker.join("client")
    retain(writer, "a=1")
    retain(client, "b=1")
    client.subscribe("#", no_local=True)
    assert read(client) == ["a:1"]


# Beginning and end


def test_unsubscribing_ends_a_snapshot(broker: CoreBroker) -> None:
    writer, reader = broker.join("writer"), broker.join("reader", properties=ONE_AT_A_TIME)
    retain(writer, "a=1", "b=1", "c=1")
    reader.subscribe("#", qos=1)
    reader.unsubscribe("#")
    assert len(read(reader)) == 1
    assert broker.world.leaks() == []


def test_subscribing_again_begins_again(broker: CoreBroker) -> None:
    writer, reader = broker.join("writer"), broker.join("reader", properties=ONE_AT_A_TIME)
    retain(writer, "a=1", "b=1")
    reader.subscribe("#", qos=1)
    reader.subscribe("#", qos=1)
    assert sorted(read(reader)) in (["a:1", "a:1", "b:1"], ["a:1", "b:1", "b:1"])


def test_subscribing_again_without_copies_still_gets_those_that_were_due(broker: CoreBroker) -> None:
    writer, reader = broker.join("writer"), broker.join("reader", properties=ONE_AT_A_TIME)
    retain(writer, "a=1", "b=1", "c=1")
    reader.subscribe("#", qos=1)
    reader.subscribe("#", qos=1, retain_handling=2, properties=[(P.SUBSCRIPTION_ID, 5)])
    assert sorted(read(reader)) == ["a:1", "b:1", "c:1"]


def test_a_snapshot_goes_on_when_its_client_is_back(broker: CoreBroker) -> None:
    writer = broker.join("writer")
    reader = broker.join("reader", keep=True, properties=ONE_AT_A_TIME)
    retain(writer, "a=1", "b=1", "c=1")
    reader.subscribe("#", qos=1)
    reader.cut()
    assert sorted(read(broker.join("reader", keep=True))) == ["a:1", "b:1", "c:1"]
    assert broker.world.leaks() == []


def test_a_snapshot_ends_with_its_session(broker: CoreBroker) -> None:
    writer, reader = broker.join("writer"), broker.join("reader", properties=ONE_AT_A_TIME)
    retain(writer, "a=1", "b=1", "c=1")
    reader.subscribe("#", qos=1)
    reader.cut()
    assert broker.world.leaks() == []


# The end marker, and what is known of a copy


def test_the_end_marker_comes_last_and_counts_the_copies(broker: CoreBroker) -> None:
    writer, reader = broker.join("writer"), broker.join("reader", properties=[MARK])
    retain(writer, "a=1", "b=1", "c=1", "c=")
    reader.subscribe("#")
    copies, marker = marked(reader)
    assert sorted(copies) == ["a:1", "b:1"]
    assert {key: marker[key] for key in ("filter", "count", "full")} == {"filter": "#", "count": 2, "full": True}


def test_a_marker_comes_only_to_who_asked_for_it(broker: CoreBroker) -> None:
    reader = broker.join("reader")
    reader.subscribe("#")
    assert read(reader) == []


def test_each_filter_has_its_own_marker_even_for_nothing(broker: CoreBroker) -> None:
    reader = broker.join("reader", properties=[MARK])
    reader.subscribe("a", "b/#")
    markers = [json.loads(message.partition("=")[2]) for message in read(reader)]
    assert [(marker["filter"], marker["count"]) for marker in markers] == [("a", 0), ("b/#", 0)]


def test_a_copy_says_where_it_comes_from_on_request(broker: CoreBroker) -> None:
    writer = broker.join("writer")
    retain(writer, "a=1")
    plain, curious = broker.join("plain"), broker.join("curious", properties=[META])
    for reader in (plain, curious):
        reader.subscribe("a")
    (without,), (told,) = plain.arrived(), curious.arrived()
    assert without.properties == []
    said = dict(told.props(P.USER_PROPERTY))
    assert set(said) == {"hf-offset", "hf-stored-at", "hf-publisher"}
    assert said["hf-publisher"] == "writer"
    assert int(said["hf-offset"]) > 0


# Only what changed


def known_version(broker: CoreBroker) -> int:
    """The version of the retained set, as a client learns it."""
    reader = broker.join("asking", properties=[MARK])
    reader.subscribe("none/such")
    return int(marked(reader)[1]["version"])


def test_since_an_offset_only_changes_and_deletions_are_sent(broker: CoreBroker) -> None:
    writer, reader = broker.join("writer"), broker.join("reader", properties=[MARK])
    retain(writer, "changed=1", "cleared=1", "same=1")
    known = known_version(broker)
    retain(writer, "changed=2", "cleared=", "new=1", "passing=1", "passing=")
    reader.subscribe("#", properties=since(known))
    copies, marker = marked(reader)
    assert sorted(copies) == ["changed:2", "cleared:", "new:1", "passing:"]
    assert (marker["count"], marker["full"]) == (4, False)


def test_since_an_offset_the_deletions_keep_to_the_filter(broker: CoreBroker) -> None:
    writer, reader = broker.join("writer"), broker.join("reader")
    retain(writer, "a/1=1", "b/1=1")
    known = known_version(broker)
    retain(writer, "a/1=", "b/1=")
    reader.subscribe("a/#", properties=since(known))
    assert read(reader) == ["a/1:"]


def test_since_an_offset_what_expired_meanwhile_counts_as_deleted(broker: CoreBroker) -> None:
    writer, reader = broker.join("writer"), broker.join("reader")
    retain(writer, "a=1", properties=[(P.MESSAGE_EXPIRY, 10)])
    known = known_version(broker)
    broker.pass_time(10.2)
    reader.subscribe("#", properties=since(known))
    assert read(reader) == ["a:"]


@pytest.mark.parametrize("ahead", [1, 1000])
def test_an_offset_that_has_not_been_yet_gives_everything(broker: CoreBroker, ahead: int) -> None:
    writer, reader = broker.join("writer"), broker.join("reader", properties=[MARK])
    retain(writer, "a=1")
    reader.subscribe("#", properties=since(known_version(broker) + ahead))
    copies, marker = marked(reader)
    assert (copies, marker["full"]) == (["a:1"], True)


def test_an_offset_from_before_the_remembered_deletions_gives_everything(start: Start) -> None:
    broker = start(limits__delta_tombstones=2)
    writer, reader = broker.join("writer"), broker.join("reader", properties=[MARK])
    retain(writer, "a=1", "b=1", "c=1", "stays=1")
    known = known_version(broker)
    retain(writer, "a=", "b=", "c=")
    reader.subscribe("#", properties=since(known))
    copies, marker = marked(reader)
    assert (copies, marker["full"]) == (["stays:1"], True)


def test_a_topic_that_came_back_is_not_reported_as_deleted(broker: CoreBroker) -> None:
    writer, reader = broker.join("writer"), broker.join("reader")
    retain(writer, "a=1")
    known = known_version(broker)
    retain(writer, "a=", "a=2")
    reader.subscribe("#", properties=since(known))
    assert read(reader) == ["a:2"]
