import pytest

from holdfast.client.exchange import Exchange
from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, V311, Ack, Packet, Publish


def shape(packet: Packet | None) -> tuple[int, int, int] | None:
    if isinstance(packet, Publish):
        return (packet.kind, packet.packet_id, packet.dup)
    if packet is None:
        return None
    assert isinstance(packet, Ack)
    return (packet.kind, packet.packet_id, packet.reason)


def started(exchange: Exchange, qos: int, payload: bytes = b"x") -> Publish:
    publish = Publish(b"t", payload, qos)
    exchange.start(publish)
    return publish


def test_qos_1_takes_a_place_until_puback() -> None:
    exchange = Exchange(V311, 1)
    publish = started(exchange, 1)
    assert publish.packet_id == 1
    assert not exchange.has_room
    assert exchange.on_ack(Ack(PUBACK, 1)) == (None, True)
    assert exchange.has_room


def test_qos_2_takes_a_place_until_pubcomp() -> None:
    exchange = Exchange(V311, 1)
    started(exchange, 2)
    reply, done = exchange.on_ack(Ack(PUBREC, 1))
    assert (shape(reply), done) == ((PUBREL, 1, 0), False)
    assert not exchange.has_room
    assert exchange.on_ack(Ack(PUBCOMP, 1)) == (None, True)
    assert exchange.has_room


def test_refused_pubrec_ends_the_message() -> None:
    exchange = Exchange(V5, 1)
    started(exchange, 2)
    assert exchange.on_ack(Ack(PUBREC, 1, 0x97)) == (None, True)


@pytest.mark.parametrize(("qos", "kind"), [(2, PUBACK), (1, PUBREC), (1, PUBCOMP)])
def test_answer_of_another_qos_is_a_protocol_error(qos: int, kind: int) -> None:
    exchange = Exchange(V311, 1)
    started(exchange, qos)
    with pytest.raises(ProtocolError, match=f"QoS {qos}"):
        exchange.on_ack(Ack(kind, 1))


def test_unknown_pubrec_is_released_so_that_the_server_can_forget_it() -> None:
    assert shape(Exchange(V5, 1).on_ack(Ack(PUBREC, 9))[0]) == (PUBREL, 9, 0x92)
    assert shape(Exchange(V311, 1).on_ack(Ack(PUBREC, 9))[0]) == (PUBREL, 9, 0)
    assert Exchange(V5, 1).on_ack(Ack(PUBACK, 9)) == (None, False)


def test_ids_in_use_are_passed_over_and_the_count_wraps_to_1() -> None:
    exchange = Exchange(V311, 100)
    started(exchange, 1)
    request = exchange.request_id()
    assert request == 2
    for _ in range(0xFFFF - 2):
        publish = started(exchange, 1)
        exchange.on_ack(Ack(PUBACK, publish.packet_id))
    assert publish.packet_id == 0xFFFF
    assert started(exchange, 1).packet_id == 3
    exchange.request_done(request)


def test_repeat_of_a_qos_2_message_is_answered_and_not_handed_over() -> None:
    exchange = Exchange(V311, 1)
    publish = Publish(b"t", b"x", 2, packet_id=5)
    assert exchange.on_publish(publish) == (True, None)
    assert shape(exchange.accept(publish)) == (PUBREC, 5, 0)
    wanted, reply = exchange.on_publish(publish)
    assert (wanted, shape(reply)) == (False, (PUBREC, 5, 0))
    assert shape(exchange.on_ack(Ack(PUBREL, 5))[0]) == (PUBCOMP, 5, 0)
    assert exchange.on_publish(publish) == (True, None)


def test_accepting_answers_by_qos() -> None:
    exchange = Exchange(V311, 1)
    assert exchange.accept(Publish(b"t", b"x")) is None
    assert shape(exchange.accept(Publish(b"t", b"x", 1, packet_id=3))) == (PUBACK, 3, 0)


@pytest.mark.clause("3.1.1", "MQTT-4.4.0-1")
@pytest.mark.clause("5.0", "MQTT-4.4.0-1")
def test_resumed_session_gets_everything_again_in_order() -> None:
    exchange = Exchange(V311, 10)
    for qos in (1, 2, 2, 1):
        started(exchange, qos)
    exchange.on_ack(Ack(PUBREC, 2))
    again = [shape(packet) for packet in exchange.resume(session_present=True)]
    assert again == [(3, 1, True), (PUBREL, 2, 0), (3, 3, True), (3, 4, True)]


def test_lost_session_gets_unreleased_messages_as_new() -> None:
    exchange = Exchange(V311, 10)
    started(exchange, 1)
    started(exchange, 2)
    exchange.on_ack(Ack(PUBREC, 2))
    exchange.accept(Publish(b"t", b"x", 2, packet_id=7))
    assert exchange.forget_released() == [2]
    assert [shape(packet) for packet in exchange.resume(session_present=False)] == [(3, 1, False)]
    assert exchange.on_publish(Publish(b"t", b"new", 2, packet_id=7)) == (True, None)


def test_withdrawn_message_gives_its_place_back() -> None:
    exchange = Exchange(V311, 1)
    exchange.withdraw(started(exchange, 1).packet_id)
    assert exchange.has_room
    assert exchange.unacknowledged == 0
