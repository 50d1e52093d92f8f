"""WebSocket beyond what the standard numbers: upgrade, control frames, limits."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from broker_process import BrokerProcess, Unique
from wire import Publish, Will, WireClient
from wire_websocket import CLOSE, PING, PONG, WebSocket

Upgrade = Callable[..., WebSocket]


@pytest.fixture
def upgrade(broker: BrokerProcess) -> Iterator[Upgrade]:
    opened: list[WebSocket] = []

    def start(**options: object) -> WebSocket:
        opened.append(WebSocket(broker.ports["ws"], **options))  # type: ignore[arg-type]
        return opened[-1]

    yield start
    for sock in opened:
        sock.close()


def over(sock: WebSocket, version: int = 4) -> WireClient:
    return WireClient(0, version, sock=sock)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [4, 5])
def test_both_versions_share_the_websocket_port(version: int, upgrade: Upgrade, unique: Unique) -> None:
    client = over(upgrade(), version)
    client.connect(unique.client())
    client.subscribe(unique.topic(), qos=2)
    client.publish(unique.topic(), b"x", qos=2)
    assert client.messages(1)[0].payload == b"x"
    client.disconnect()


@pytest.mark.usefixtures("holdfast_only")
def test_other_paths_are_not_found(upgrade: Upgrade) -> None:
    assert upgrade(path="/elsewhere").status == 404


@pytest.mark.usefixtures("holdfast_only")
def test_upgrade_without_the_subprotocol_is_refused(upgrade: Upgrade) -> None:
    assert 400 <= upgrade(subprotocols=("chat",)).status < 500


def test_compression_is_not_negotiated(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.ports["ws"]), 5) as raw:
        raw.sendall(
            b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
        )
        answer = raw.recv(4096).lower()
    assert b" 101 " in answer
    assert b"permessage-deflate" not in answer


def test_ping_frame_is_answered_with_its_own_data(upgrade: Upgrade, unique: Unique) -> None:
    sock = upgrade()
    over(sock).connect(unique.client())
    sock.send_frame(PING, b"are you there")
    assert sock.recv_frame() == (PONG, b"are you there")


def test_close_frame_is_answered_and_counts_as_a_lost_connection(
    upgrade: Upgrade, connect: Callable[..., WireClient], unique: Unique
) -> None:
    watcher = connect()
    watcher.subscribe(unique.topic("will"))
    sock = upgrade()
    over(sock).connect(unique.client(), will=Will(unique.topic("will"), b"closed"))
    sock.send_frame(CLOSE, b"\x03\xe8")
    frame = sock.recv_frame()
    assert frame is not None
    assert frame[0] == CLOSE
    watcher.expect(Publish, payload=b"closed")


@pytest.mark.usefixtures("holdfast_only")
def test_large_messages_pass_in_both_directions(upgrade: Upgrade, unique: Unique) -> None:
    client = over(upgrade())
    client.connect(unique.client())
    client.subscribe(unique.topic(), qos=1)
    payload = bytes(range(256)) * 1200
    client.publish(unique.topic(), payload, qos=1)
    (message,) = client.messages(1)
    assert message.payload == payload


def test_what_is_not_a_websocket_is_refused_and_closed(broker: BrokerProcess) -> None:
    for data in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", broker.ports["ws"]), 5) as raw:
            raw.sendall(data)
            answer = b""
            while piece := raw.recv(4096):
                answer += piece
        assert answer == b"" or b" 4" in answer.splitlines()[0], answer


def test_unmasked_frame_closes_the_connection(upgrade: Upgrade) -> None:
    sock = upgrade()
    sock.sock.sendall(b"\x82\x02\xc0\x00")
    assert sock.recv() == b""


def test_upgrade_that_never_finishes_is_closed(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(listen=["ws://127.0.0.1:0"], limits__connect_timeout=1)
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", broker.ports["ws"]), 60) as raw:
        raw.sendall(b"GET /mqtt HTTP/1.1\r\nHost: local")
        assert raw.recv(4096) == b""
    assert time.monotonic() - started > 0.8
