"""3.1.1: MQTT over WebSocket."""

from collections.abc import Callable, Iterator

import pytest

import wire
from broker_process import BrokerProcess, Unique
from wire import Publish, WireClient
from wire_websocket import BINARY, CONTINUATION, TEXT, WebSocket

Connect = Callable[..., WireClient]
Upgrade = Callable[..., WebSocket]


@pytest.fixture
def upgrade(broker: BrokerProcess) -> Iterator[Upgrade]:
    opened: list[WebSocket] = []

    def start(**options: object) -> WebSocket:
        opened.append(WebSocket(broker.ports["ws"], **options))  # type: ignore[arg-type]
        return opened[-1]

    yield start
    for socket in opened:
        socket.close()


def client_over(socket: WebSocket, version: int = 4) -> WireClient:
    return WireClient(0, version, sock=socket)  # type: ignore[arg-type]


@pytest.mark.clause("3.1.1", "MQTT-6.0.0-4")
@pytest.mark.parametrize("offered", [("mqtt",), ("chat", "mqtt"), ("mqtt", "mqttv3.1")])
def test_server_chooses_the_subprotocol_mqtt(offered: tuple[str, ...], upgrade: Upgrade) -> None:
    socket = upgrade(subprotocols=offered)
    assert socket.status == 101
    assert socket.headers["sec-websocket-protocol"] == "mqtt"


@pytest.mark.clause("3.1.1", "MQTT-6.0.0-1")
def test_server_sends_binary_frames_only(upgrade: Upgrade, unique: Unique) -> None:
    socket = upgrade()
    client = client_over(socket)
    client.connect(unique.client())
    client.subscribe(unique.topic(), qos=2)
    for qos in (0, 1, 2):
        client.publish(unique.topic(), b"x", qos=qos)
        client.messages(1)
    assert set(socket.opcodes) <= {BINARY, CONTINUATION}
    assert BINARY in socket.opcodes


@pytest.mark.clause("3.1.1", "MQTT-6.0.0-1")
def test_text_frame_closes_the_connection(upgrade: Upgrade, unique: Unique) -> None:
    socket = upgrade()
    client = client_over(socket)
    client.connect(unique.client())
    socket.send_frame(TEXT, wire.pingreq())
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-6.0.0-1")
def test_text_frame_is_not_read_as_connect(upgrade: Upgrade, unique: Unique) -> None:
    socket = upgrade()
    socket.send_frame(TEXT, wire.connect(unique.client()))
    client_over(socket).expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-6.0.0-2")
@pytest.mark.parametrize("chunk", [1, 2, 3, 10])
def test_packet_may_span_frames(chunk: int, upgrade: Upgrade, connect: Connect, unique: Unique) -> None:
    watcher = connect()
    watcher.subscribe(unique.topic())
    client = client_over(upgrade(chunk=chunk))
    client.connect(unique.client())
    client.publish(unique.topic(), b"in pieces", qos=1)
    watcher.expect(Publish, payload=b"in pieces")


@pytest.mark.clause("3.1.1", "MQTT-6.0.0-2")
def test_frame_may_hold_several_packets_and_part_of_another(upgrade: Upgrade, connect: Connect, unique: Unique) -> None:
    watcher = connect()
    watcher.subscribe(unique.topic())
    socket = upgrade()
    stream = (
        wire.connect(unique.client())
        + b"".join(wire.publish(unique.topic(), b"%d" % number) for number in range(5))
        + wire.pingreq()
    )
    cut = len(stream) - 9
    socket.send_frame(BINARY, stream[:cut])
    socket.send_frame(BINARY, stream[cut:])
    client = client_over(socket)
    client.expect(wire.ConnAck, code=0)
    client.expect(wire.PingResp)
    assert [message.payload for message in watcher.messages(5)] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.clause("3.1.1", "MQTT-6.0.0-2")
def test_fragmented_message_is_put_together(upgrade: Upgrade, unique: Unique) -> None:
    socket = upgrade()
    packet = wire.connect(unique.client())
    socket.send_frame(BINARY, packet[:4], final=False)
    socket.send_frame(CONTINUATION, packet[4:9], final=False)
    socket.send_frame(CONTINUATION, packet[9:])
    client_over(socket).expect(wire.ConnAck, code=0)
