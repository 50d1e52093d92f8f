"""MQTT 5.0 section 4.8.2: shared subscriptions."""

import pytest

import wire
from broker_process import Unique
from v5_client import KEEP, Connect5
from wire import P, Publish, PubRel, WireClient


def group(unique: Unique, topic: str = "t") -> str:
    return f"$share/{unique}/{unique.topic(topic)}"


def waiting(client: WireClient) -> list[Publish]:
    """The messages that have come to a client by now, unacknowledged."""
    return [packet for packet in client.barrier() if isinstance(packet, Publish)]


@pytest.mark.clause("5.0", "MQTT-4.8.2-1", "MQTT-4.8.2-2")
@pytest.mark.parametrize("name", ["g", "0", "a b", "$x", "é", "share"])
def test_any_other_share_name_works(connect5: Connect5, unique: Unique, name: str) -> None:
    client = connect5()
    client.subscribe(f"$share/{name}/{unique.topic('+')}", qos=1)
    client.publish(unique.topic("a"), b"1", qos=1)
    client.expect(Publish, topic=unique.topic("a"), payload=b"1")


@pytest.mark.clause("5.0", "MQTT-4.8.2-1")
def test_each_message_goes_to_one_member_of_each_group(connect5: Connect5, unique: Unique) -> None:
    members, others, publisher = [connect5() for _ in range(3)], [connect5() for _ in range(2)], connect5()
    for member in members:
        member.subscribe(f"$share/one/{unique.topic()}")
    for other in others:
        other.subscribe(f"$share/two/{unique.topic()}")
    for number in range(30):
        publisher.publish(unique.topic(), str(number))
    wanted = sorted(str(number).encode() for number in range(30))
    for clients in (members, others):
        shares = [waiting(client) for client in clients]
        assert sorted(message.payload for share in shares for message in share) == wanted
        assert all(shares), f"expected every member to have a share, got {[len(share) for share in shares]}"


@pytest.mark.clause("5.0", "MQTT-4.8.2-3")
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_a_member_gets_messages_at_no_more_than_its_granted_qos(
    connect5: Connect5, unique: Unique, granted: int, published: int
) -> None:
    client = connect5()
    client.subscribe(group(unique), qos=granted)
    client.publish(unique.topic(), b"1", qos=published)
    client.expect(Publish, qos=min(granted, published))


@pytest.mark.clause("5.0", "MQTT-4.8.2-3")
def test_members_of_one_group_keep_their_own_granted_qos(connect5: Connect5, unique: Unique) -> None:
    members = [connect5() for _ in range(3)]
    for granted, member in enumerate(members):
        member.subscribe(group(unique), qos=granted)
    publisher = connect5()
    for _ in range(12):
        publisher.publish(unique.topic(), b"1", qos=2)
    got = [waiting(member) for member in members]
    assert sum(map(len, got)) == 12
    for granted, messages in enumerate(got):
        assert {message.qos for message in messages} <= {granted}


@pytest.mark.clause("5.0", "MQTT-4.8.2-4")
def test_a_qos_2_delivery_that_has_begun_is_finished_with_the_same_member(connect5: Connect5, unique: Unique) -> None:
    one = connect5(unique.client("one"), properties=KEEP)
    one.subscribe(group(unique), qos=2)
    publisher = connect5()
    publisher.publish(unique.topic(), b"begun", qos=2)
    begun = one.expect(Publish, payload=b"begun")
    other = connect5(unique.client("other"))
    other.subscribe(group(unique), qos=2)
    one.cut()
    again = connect5(unique.client("one"), clean=False, properties=KEEP)
    message = again.expect(Publish, payload=b"begun", dup=True, packet_id=begun.packet_id)
    again.ack(message)
    again.expect_no_message()
    other.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-4.8.2-5")
@pytest.mark.parametrize("released", [False, True], ids=["before PUBREC", "after PUBREC"])
def test_a_qos_2_delivery_that_dies_with_its_session_goes_to_nobody_else(
    connect5: Connect5, unique: Unique, released: bool
) -> None:
    one = connect5(unique.client("one"), properties=KEEP)
    one.subscribe(group(unique), qos=2)
    publisher = connect5()
    publisher.publish(unique.topic(), b"begun", qos=2)
    begun = one.expect(Publish, payload=b"begun")
    assert begun.packet_id is not None
    if released:
        one.send(wire.pubrec(begun.packet_id))
        one.expect(PubRel)
    other = connect5(unique.client("other"))
    other.subscribe(group(unique), qos=2)
    one.disconnect(0x00, [(P.SESSION_EXPIRY, 0)])
    assert not connect5(unique.client("one"), clean=False).connack.session_present  # type: ignore[union-attr]
    other.expect_no_message()
    publisher.publish(unique.topic(), b"next", qos=2)
    other.expect(Publish, payload=b"next")


@pytest.mark.clause("5.0", "MQTT-4.8.2-6")
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("reason", [0x80, 0x83, 0x87, 0x97], ids=hex)
def test_a_message_that_a_member_refuses_goes_to_nobody_else(
    connect5: Connect5, unique: Unique, qos: int, reason: int
) -> None:
    one, publisher = connect5(), connect5()
    one.subscribe(group(unique), qos=qos)
    publisher.publish(unique.topic(), b"refused", qos=qos)
    message = one.expect(Publish, payload=b"refused")
    other = connect5()
    other.subscribe(group(unique), qos=qos)
    assert message.packet_id is not None
    one.send((wire.puback if qos == 1 else wire.pubrec)(message.packet_id, reason))
    one.expect_no_message()
    other.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-4.8.2-1", "MQTT-3.10.4-1")
def test_a_shared_and_a_plain_subscription_end_separately(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.subscribe(unique.topic())
    client.subscribe(group(unique))
    client.publish(unique.topic(), b"both")
    assert [message.payload for message in client.messages(2)] == [b"both", b"both"]
    assert client.unsubscribe(unique.topic()).codes == [0x00]
    client.publish(unique.topic(), b"shared")
    client.expect(Publish, payload=b"shared")
    client.expect_no_message()
    assert client.unsubscribe(group(unique)).codes == [0x00]
    client.publish(unique.topic(), b"none")
    client.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-4.8.2-1", "MQTT-3.3.1-9")
def test_a_shared_subscription_is_sent_no_retained_messages(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.publish(unique.topic(), b"1", retain=True)
    client.subscribe(group(unique))
    client.expect_no_message()
