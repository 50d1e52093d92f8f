"""MQTT 5.0 sections 4.2, 4.13 and 6: the byte stream, broken packets, and the stream inside WebSocket frames."""

from collections.abc import Callable, Iterator

import pytest

import wire
from broker_process import BrokerProcess, Unique
from v5_client import Connect5, Open5, expect_dropped
from wire import ConnAck, PingResp, Publish, SubAck, WireClient
from wire_websocket import BINARY, CONTINUATION, TEXT, WebSocket

Dial = Callable[..., WebSocket]


def conversation(unique: Unique) -> bytes:
    topic = unique.topic()
    return (
        wire.connect(unique.client(), version=5, will=wire.Will(topic, b"w"))
        + wire.subscribe(1, [(topic, 1)], version=5)
        + wire.publish(topic, b"payload", qos=1, packet_id=2, version=5)
        + wire.pingreq()
    )


def expect_conversation(client: WireClient) -> None:
    client.expect(ConnAck, code=0)
    client.expect(SubAck, packet_id=1, codes=[1])
    kinds = sorted(type(client.recv()).__name__ for _ in range(3))
    assert kinds == ["PingResp", "PubAck", "Publish"]


# TCP


@pytest.mark.clause("5.0", "MQTT-4.2.0-1")
@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000], ids=lambda step: f"{step} bytes at a time")
def test_the_stream_may_be_cut_anywhere(open5: Open5, unique: Unique, step: int) -> None:
    client = open5()
    stream = conversation(unique)
    for start in range(0, len(stream), step):
        client.send(stream[start : start + step])
    expect_conversation(client)


# Packets whose parts contradict each other.
BROKEN = {
    "PUBLISH shorter than its topic": wire.frame(0x30, b"\x00\x09topic"),
    "PUBLISH at QoS 1 without an identifier": wire.frame(0x32, wire.text("t")),
    "PUBLISH with half a property": wire.frame(0x30, wire.text("t") + b"\x02\x02\x00"),
    "PUBLISH with properties beyond its end": wire.frame(0x30, wire.text("t") + b"\x09\x01\x01"),
    "PUBACK without an identifier": wire.frame(0x40, b""),
    "PUBACK with half an identifier": wire.frame(0x40, b"\x00"),
    "PUBACK longer than its properties": wire.frame(0x40, b"\x00\x01\x00\x00\x00"),
    "SUBSCRIBE without an identifier": wire.frame(0x82, b""),
    "SUBSCRIBE without options": wire.frame(0x82, b"\x00\x01\x00" + wire.text("t")),
    "UNSUBSCRIBE with half a filter": wire.frame(0xA2, b"\x00\x01\x00\x00\x09t"),
    "DISCONNECT longer than its properties": wire.frame(0xE0, b"\x00\x00\x00"),
    "a remaining length of five bytes": b"\x30\xff\xff\xff\xff\x01",
}


@pytest.mark.clause("5.0", "MQTT-4.13.1-1", "MQTT-4.13.2-1", "MQTT-3.14.4-2")
@pytest.mark.parametrize("packet", BROKEN.values(), ids=BROKEN.keys())
def test_a_malformed_packet_ends_its_connection_and_no_other(connect5: Connect5, unique: Unique, packet: bytes) -> None:
    bystander, client = connect5(), connect5()
    bystander.subscribe(unique.topic())
    client.send(packet + wire.publish(unique.topic(), b"behind", version=5))
    expect_dropped(client, 0x81)
    bystander.expect_no_message()


# WebSocket


@pytest.fixture
def dial(broker: BrokerProcess) -> Iterator[Dial]:
    opened: list[WebSocket] = []

    def start(**fields: object) -> WebSocket:
        opened.append(WebSocket(broker.ports["ws"], **fields))  # type: ignore[arg-type]
        return opened[-1]

    yield start
    for socket in opened:
        socket.close()


def over(socket: WebSocket) -> WireClient:
    return WireClient(0, 5, sock=socket)  # type: ignore[arg-type]


@pytest.mark.clause("5.0", "MQTT-6.0.0-4")
@pytest.mark.parametrize("offered", [("mqtt",), ("soap", "mqtt")], ids=str)
def test_the_subprotocol_chosen_is_mqtt(dial: Dial, offered: tuple[str, ...]) -> None:
    socket = dial(subprotocols=offered)
    assert socket.status == 101
    assert socket.headers["sec-websocket-protocol"] == "mqtt"


@pytest.mark.clause("5.0", "MQTT-6.0.0-1")
def test_everything_is_sent_in_binary_frames(dial: Dial, unique: Unique) -> None:
    socket = dial()
    client = over(socket)
    client.send(conversation(unique))
    expect_conversation(client)
    assert BINARY in socket.opcodes
    assert set(socket.opcodes) <= {BINARY, CONTINUATION}


@pytest.mark.clause("5.0", "MQTT-6.0.0-1")
def test_a_text_frame_ends_the_connection(dial: Dial, unique: Unique) -> None:
    socket = dial()
    client = over(socket)
    client.connect(unique.client())
    socket.send_frame(TEXT, wire.pingreq())
    assert not any(isinstance(packet, PingResp) for packet in client.drain_until_closed())


@pytest.mark.clause("5.0", "MQTT-6.0.0-2", "MQTT-4.2.0-1")
@pytest.mark.parametrize("step", [1, 5, 1000], ids=lambda step: f"frames of {step} bytes")
def test_packets_need_not_align_with_frames(dial: Dial, unique: Unique, step: int) -> None:
    client = over(dial(chunk=step))
    client.send(conversation(unique))
    expect_conversation(client)


@pytest.mark.clause("5.0", "MQTT-6.0.0-2")
def test_a_message_in_fragments_is_one_stretch_of_the_stream(dial: Dial, unique: Unique) -> None:
    socket = dial()
    stream = conversation(unique)
    first, second, third = stream[:20], stream[20:31], stream[31:]
    socket.send_frame(BINARY, first, final=False)
    socket.send_frame(CONTINUATION, second, final=False)
    socket.send_frame(CONTINUATION, third)
    expect_conversation(over(socket))


@pytest.mark.clause("5.0", "MQTT-6.0.0-2", "MQTT-4.2.0-1")
def test_a_large_message_passes_between_websocket_and_tcp(dial: Dial, connect5: Connect5, unique: Unique) -> None:
    tcp, websocket = connect5(), over(dial(chunk=9999))
    websocket.connect(unique.client("ws"))
    payload = bytes(range(256)) * 400
    for sender, receiver in ((tcp, websocket), (websocket, tcp)):
        receiver.subscribe(unique.topic())
        sender.publish(unique.topic(), payload, qos=1)
        receiver.expect(Publish, topic=unique.topic(), payload=payload)
        receiver.unsubscribe(unique.topic())
