"""Who is turned away before a word is read: bans, load balancers that may speak for others, pages of other sites."""

import base64
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import wire
from broker_process import BrokerProcess, start_holdfast
from http_api import LISTEN, Api
from password_file import write_password_file
from wire import ConnAck, WireClient

Start = Callable[..., BrokerProcess]

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The tests play the load balancer on 127.0.0.1; two failures ban an address, that of the balancer too."""
    folder = tmp_path_factory.mktemp("proxied")
    settings = {
        "auth.password_file": write_password_file(folder / "users", {"ann": "ann's"}),
        "bans.failures": 3,
        "bans.exempt": "[]",
        "bans.addresses": "198.51.100.0/24",
        "bans.users": "mallory",
        "bans.client_ids": "stolen",
        "history.enable": False,
        "log.level": "debug",
    }
    running = start_holdfast(folder / "data", settings, listen=["tcp://127.0.0.1:0?proxy=127.0.0.1"])
    yield running
    running.stop()
    assert "Traceback" not in running.output


def as_from(host: str, version: int = 1) -> bytes:
    if version == 1:
        return f"PROXY TCP4 {host} 10.0.0.1 40000 1883\r\n".encode()
    body = socket.inet_aton(host) + socket.inet_aton("10.0.0.1") + struct.pack(">HH", 40000, 1883)
    return SIGNATURE + b"\x21\x11" + struct.pack(">H", len(body)) + body


def attempt(broker: BrokerProcess, header: bytes, password: bytes = b"ann's", client_id: str = "c") -> int:
    """The code of CONNACK, or -1 when the connection was closed without one."""
    with WireClient(broker.port, 5) as client:
        try:
            client.send(header + wire.connect(client_id, version=5, username="ann", password=password))
            return client.expect(ConnAck).code
        except (OSError, AssertionError):
            return -1


@pytest.mark.parametrize("version", [1, 2])
def test_the_header_of_a_named_balancer_says_who_it_is(proxied: BrokerProcess, version: int) -> None:
    host = f"192.0.2.{version}"
    assert attempt(proxied, as_from(host, version)) == 0
    proxied.wait_output(f"{host}:40000")


def test_a_header_in_pieces_is_put_together(proxied: BrokerProcess) -> None:
    with WireClient(proxied.port, 5) as client:
        for byte in as_from("192.0.2.9", 2):
            client.send(bytes([byte]))
        client.connect("pieces", username="ann", password=b"ann's")


@pytest.mark.parametrize(
    "header",
    [b"", b"PROXY TCP4 x y 1 2\r\n", b"PROXY TCP4 192.0.2.1\r\n", SIGNATURE + b"\x31\x11\x00\x00", b"P" * 200],
    ids=["none", "no addresses", "cut short", "unknown version", "endless"],
)
def test_a_named_balancer_without_a_good_header_is_not_served(proxied: BrokerProcess, header: bytes) -> None:
    assert attempt(proxied, header) == -1


def test_a_banned_network_is_turned_away_behind_a_balancer_too(proxied: BrokerProcess) -> None:
    assert attempt(proxied, as_from("198.51.100.77")) == -1
    assert attempt(proxied, as_from("198.51.101.77")) == 0


def test_a_banned_client_id_is_turned_away(proxied: BrokerProcess) -> None:
    assert attempt(proxied, as_from("192.0.2.3"), client_id="stolen") == 0x8A


def test_failing_again_and_again_brings_a_ban_for_that_address_alone(proxied: BrokerProcess) -> None:
    for _ in range(3):
        assert attempt(proxied, as_from("192.0.2.66"), password=b"guess") == 0x86
    assert attempt(proxied, as_from("192.0.2.66")) == -1
    assert attempt(proxied, as_from("192.0.2.67")) == 0
    proxied.wait_output("address banned")
    assert "192.0.2.66" in proxied.output


def test_a_header_from_anyone_else_is_an_error(start_broker: Start) -> None:
    """Else everyone could come from wherever they like, past every ban."""
    broker = start_broker(listen=["tcp://127.0.0.1:0?proxy=192.0.2.200"], history__enable=False)
    with WireClient(broker.port, 5) as client:
        client.send(as_from("10.9.9.9") + wire.connect("c", version=5))
        assert client.drain_until_closed() == []
    with WireClient(broker.port, 5) as client:
        client.connect("direct")


def test_a_ban_ends(start_broker: Start, tmp_path: Path) -> None:
    users = write_password_file(tmp_path / "users", {"ann": "ann's"})
    broker = start_broker(
        auth__password_file=users, bans__failures=1, bans__exempt="[]", bans__duration="4s", history__enable=False
    )
    assert attempt(broker, b"", password=b"guess") == 0x86
    assert attempt(broker, b"") == -1
    deadline = time.monotonic() + 60
    while attempt(broker, b"") != 0:
        assert time.monotonic() < deadline, "the ban did not end"
        time.sleep(0.1)


def upgrade(port: int, origin: str | None, host: str = "") -> int:
    """The status of a WebSocket handshake as a browser on a page of `origin` would make it."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        "GET /mqtt HTTP/1.1",
        f"Host: {host or f'127.0.0.1:{port}'}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Protocol: mqtt",
        *([f"Origin: {origin}"] if origin is not None else []),
    ]
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        return int(sock.recv(1000).split(b" ")[1])


def test_pages_of_other_sites_may_not_connect(start_broker: Start) -> None:
    broker = start_broker(listen=["ws://127.0.0.1:0"], websocket__origins="https://ops.example", history__enable=False)
    port = broker.ports["ws"]
    assert upgrade(port, None) == 101
    assert upgrade(port, f"http://127.0.0.1:{port}") == 101
    assert upgrade(port, f"http://127.0.0.1:{port + 1}") == 403
    assert upgrade(port, "https://ops.example") == 101
    for origin in ("http://evil.example", "null", "https://ops.example.evil.example", "file://", ""):
        assert upgrade(port, origin) == 403
    # A name of the attacker's that points to this machine.
    assert upgrade(port, "http://evil.example:8083", "evil.example:8083") == 403


def test_guessing_over_http_brings_a_ban_that_counts_everywhere(start_broker: Start, tmp_path: Path) -> None:
    users = write_password_file(tmp_path / "users", {"ann": "ann's", "bob": "bob's"})
    broker = start_broker(
        listen=LISTEN,
        auth__password_file=users,
        bans__failures=3,
        bans__exempt="[]",
        bans__users="bob",
        history__enable=False,
    )
    with Api(broker) as api:
        assert api.get("/api/v1/retained", auth=("ann", "ann's")).status_code == 200
        assert api.get("/api/v1/retained", auth=("bob", "bob's")).status_code == 401
        body = {"username": "ann", "password": "wrong"}
        assert api.post("/api/v1/login", json=body).status_code == 401
        assert api.post("/api/v5/login", json=body).status_code == 401
        assert api.get("/api/v1/retained", auth=("ann", "ann's")).status_code == 403
    client = broker.client(5)
    client.send(wire.connect("c", version=5, username="ann", password=b"ann's"))
    client.expect_closed()
    assert "address banned after repeated failures" in broker.output


def test_a_ban_brought_over_mqtt_counts_for_http_too(start_broker: Start, tmp_path: Path) -> None:
    users = write_password_file(tmp_path / "users", {"ann": "ann's"})
    broker = start_broker(
        listen=LISTEN, auth__password_file=users, bans__failures=2, bans__exempt="[]", history__enable=False
    )
    for _ in range(2):
        with broker.client(5) as client:
            client.send(wire.connect("c", version=5, username="ann", password=b"wrong"))
            assert client.expect(ConnAck).code == 0x86
    with Api(broker) as api:
        assert api.get("/api/v1/retained", auth=("ann", "ann's")).status_code == 403
