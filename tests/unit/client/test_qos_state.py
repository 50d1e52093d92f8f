import pytest

from holdfast.client.qos_state import QosState
from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, V311, Ack, Packet, Publish


def shape(packet: Packet | None) -> tuple[int, int, int] | None:
    if isinstance(packet, Publish):
        return (packet.kind, packet.packet_id, packet.dup)
    if packet is None:
        return None
    assert isinstance(packet, Ack)
    return (packet.kind, packet.packet_id, packet.reason)


def started(state: QosState, qos: int, payload: bytes = b"x") -> Publish:
    publish = Publish(b"t", payload, qos)
    state.start(publish)
    return publish


def test_qos_1_takes_a_place_until_puback() -> None:
    state = QosState(V311, 1)
    publish = started(state, 1)
    assert publish.packet_id == 1
    assert not state.has_room
    assert state.on_ack(Ack(PUBACK, 1)) == (None, True)
    assert state.has_room


def test_qos_2_takes_a_place_until_pubcomp() -> None:
    state = QosState(V311, 1)
    started(state, 2)
    reply, done = state.on_ack(Ack(PUBREC, 1))
    assert (shape(reply), done) == ((PUBREL, 1, 0), False)
    assert not state.has_room
    assert state.on_ack(Ack(PUBCOMP, 1)) == (None, True)
    assert state.has_room


def test_refused_pubrec_ends_the_message() -> None:
    state = QosState(V5, 1)
    started(state, 2)
    assert state.on_ack(Ack(PUBREC, 1, 0x97)) == (None, True)


@pytest.mark.parametrize(("qos", "kind"), [(2, PUBACK), (1, PUBREC), (1, PUBCOMP)])
def test_answer_of_another_qos_is_a_protocol_error(qos: int, kind: int) -> None:
    state = QosState(V311, 1)
    started(state, qos)
    with pytest.raises(ProtocolError, match=f"QoS {qos}"):
        state.on_ack(Ack(kind, 1))


def test_unknown_pubrec_is_released_so_that_the_server_can_forget_it() -> None:
    assert shape(QosState(V5, 1).on_ack(Ack(PUBREC, 9))[0]) == (PUBREL, 9, 0x92)
    assert shape(QosState(V311, 1).on_ack(Ack(PUBREC, 9))[0]) == (PUBREL, 9, 0)
    assert QosState(V5, 1).on_ack(Ack(PUBACK, 9)) == (None, False)


def test_ids_in_use_are_passed_over_and_the_count_wraps_to_1() -> None:
    state = QosState(V311, 100)
    started(state, 1)
    request = state.request_id()
    assert request == 2
    for _ in range(0xFFFF - 2):
        publish = started(state, 1)
        state.on_ack(Ack(PUBACK, publish.packet_id))
    assert publish.packet_id == 0xFFFF
    assert started(state, 1).packet_id == 3
    state.request_done(request)


def test_repeat_of_a_qos_2_message_is_answered_and_not_handed_over() -> None:
    state = QosState(V311, 1)
    publish = Publish(b"t", b"x", 2, packet_id=5)
    assert state.on_publish(publish) == (True, None)
    assert shape(state.accept(publish)) == (PUBREC, 5, 0)
    wanted, reply = state.on_publish(publish)
    assert (wanted, shape(reply)) == (False, (PUBREC, 5, 0))
    assert shape(state.on_ack(Ack(PUBREL, 5))[0]) == (PUBCOMP, 5, 0)
    assert state.on_publish(publish) == (True, None)


def test_accepting_answers_by_qos() -> None:
    state = QosState(V311, 1)
    assert state.accept(Publish(b"t", b"x")) is None
    assert shape(state.accept(Publish(b"t", b"x", 1, packet_id=3))) == (PUBACK, 3, 0)


@pytest.mark.clause("3.1.1", "MQTT-4.4.0-1")
@pytest.mark.clause("5.0", "MQTT-4.4.0-1")
def test_resumed_session_gets_everything_again_in_order() -> None:
    state = QosState(V311, 10)
    for qos in (1, 2, 2, 1):
        started(state, qos)
    state.on_ack(Ack(PUBREC, 2))
    again = [shape(packet) for packet in state.resume(session_present=True)]
    assert again == [(3, 1, True), (PUBREL, 2, 0), (3, 3, True), (3, 4, True)]


def test_lost_session_gets_unreleased_messages_as_new() -> None:
    state = QosState(V311, 10)
    started(state, 1)
    started(state, 2)
    state.on_ack(Ack(PUBREC, 2))
    state.accept(Publish(b"t", b"x", 2, packet_id=7))
    assert state.forget_released() == [2]
    assert [shape(packet) for packet in state.resume(session_present=False)] == [(3, 1, False)]
    assert state.on_publish(Publish(b"t", b"new", 2, packet_id=7)) == (True, None)


def test_a_message_that_the_server_has_goes_on_with_pubrel() -> None:
    state = QosState(V5, 10)
    for qos in (2, 1, 2):
        started(state, qos)
    assert state.unanswered() == [1, 3]
    state.release(1)
    assert state.unanswered() == [3]
    assert [shape(packet) for packet in state.resume(session_present=True)][:1] == [(PUBREL, 1, 0)]


def test_withdrawn_message_gives_its_place_back() -> None:
    state = QosState(V311, 1)
    state.withdraw(started(state, 1).packet_id)
    assert state.has_room
    assert state.unacknowledged == 0
