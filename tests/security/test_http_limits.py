"""What someone without a login can take of the HTTP listeners: bytes, time, connections. And what one with a login can
take of the event loop.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_process import BrokerProcess, start_holdfast
from http_api import LISTEN, Api
from password_file import write_password_file

pytest.importorskip("fastapi", reason="the API comes with holdfast-mqtt[ui], which is not installed")

Start = Callable[..., BrokerProcess]
HOST = "127.0.0.1"
ANN = ("ann", "ann's")
MIB = 1 << 20
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Silence is bounded to two seconds, packets to one MiB, and ann may log in."""
    folder = tmp_path_factory.mktemp("limits")
    settings = {
        "auth.password_file": write_password_file(folder / "users", dict([ANN])),
        "limits.connect_timeout": 2,
        "limits.max_packet_size": "1MiB",
        "history.enable": False,
    }
    running = start_holdfast(folder / "data", settings, listen=LISTEN)
    yield running
    running.stop()
    assert "Traceback" not in running.output


def dial(broker: BrokerProcess) -> socket.socket:
    return socket.create_connection((HOST, broker.ports["http"]), PATIENCE_S)


def head(path: str, *lines: str, method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {HOST}", *lines, "", ""]).encode()


def status_of(sock: socket.socket) -> int:
    """The status of the answer; 0 when the connection ends without one."""
    got = b""
    try:
        while b"\r\n" not in got and (data := sock.recv(65536)):
            got += data
    except ConnectionError:
        pass
    return int(got.split(b" ")[1]) if got else 0


def ends(sock: socket.socket) -> bool:
    """Whether the other side hangs up; it has a minute for it."""
    try:
        while sock.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("path", ["/api/v1/login", "/api/v5/login", "/api/v1/whoami", "/healthz"])
def test_a_large_body_of_a_stranger_is_refused_by_its_announced_length(broker: BrokerProcess, path: str) -> None:
    with dial(broker) as sock:
        sock.sendall(head(path, "Content-Type: application/json", f"Content-Length: {5000 * MIB}"))
        assert status_of(sock) == 413


@pytest.mark.parametrize("path", ["/api/v1/login", "/api/v5/login"])
def test_a_large_body_of_a_stranger_is_refused_by_count_where_no_length_is_announced(
    broker: BrokerProcess, path: str
) -> None:
    before = broker.memory()
    piece = b"%x\r\n" % 65536 + b" " * 65536 + b"\r\n"
    with dial(broker) as sock:
        sock.sendall(head(path, "Content-Type: application/json", "Transfer-Encoding: chunked"))
        try:
            for _ in range(64 * MIB // 65536):
                sock.sendall(piece)
        except ConnectionError:
            pass  # hung up on, which is as good
        assert status_of(sock) in (413, 0)
    assert broker.memory() - before < 32 * MIB


def test_a_body_that_does_not_come_is_not_waited_for(broker: BrokerProcess) -> None:
    with dial(broker) as sock:
        sock.sendall(head("/api/v1/login", "Content-Type: application/json", "Content-Length: 100") + b"{")
        assert status_of(sock) == 408
        assert ends(sock)


def test_the_rest_of_a_refused_body_is_not_read_for_ever(broker: BrokerProcess) -> None:
    with dial(broker) as sock:
        sock.sendall(head("/api/v1/publish", f"Content-Length: {5000 * MIB}"))
        assert status_of(sock) == 401
        sock.settimeout(0.2)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                sock.sendall(b"x")
                if sock.recv(65536) == b"":
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
        raise AssertionError("the connection is still open")


@pytest.mark.parametrize(
    "said", [b"", b"GET /healthz HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /healthz HTT"]
)
def test_who_does_not_finish_a_request_is_hung_up_on(broker: BrokerProcess, said: bytes) -> None:
    with dial(broker) as sock:
        sock.sendall(said)
        assert ends(sock)


def test_a_head_that_comes_drop_by_drop_is_hung_up_on(broker: BrokerProcess) -> None:
    with dial(broker) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: ")
        sock.settimeout(0.2)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                sock.sendall(b"x")
                if sock.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
        raise AssertionError("the connection is still open")


def test_a_known_caller_has_room_for_the_largest_packet_and_no_more(broker: BrokerProcess) -> None:
    with Api(broker, auth=ANN) as api:
        payload = "x" * (MIB - 100)
        assert api.post("/api/v1/publish", json={"topic": "large", "payload": payload}).status_code == 200
        assert api.post("/api/v1/publish", json={"topic": "large", "payload": "x" * 4 * MIB}).status_code == 413
        query = {"filter": "a" * MIB, "at_ms": 1}
        assert api.post("/api/v1/retained/restore", json=query).status_code == 413


@pytest.mark.parametrize("body", [b"[" * 300_000, b"{" + b'"a":1,' * 60_000, b"[" + b"[]," * 600_000 + b"[]]"])
def test_a_large_body_that_is_no_message_is_refused(broker: BrokerProcess, body: bytes) -> None:
    with Api(broker, auth=ANN) as api:
        answer = api.post("/api/v1/publish", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 413, 422)


def test_the_interpreter_goes_on_while_a_large_body_is_parsed() -> None:
    """A thread alone would not do: the C parser keeps the interpreter's lock to the end."""
    import threading

    from holdfast.api.bodies import parse_stepwise

    body = b"[" + b"1," * 400_000 + b"1]"
    steps = 0
    done = threading.Event()

    def parse() -> None:
        parse_stepwise(body)
        done.set()

    worker = threading.Thread(target=parse)
    worker.start()
    while not done.is_set():
        steps += 1
        time.sleep(0)
    worker.join()
    assert steps > 5


def test_what_is_parsed_step_by_step_is_what_the_standard_parser_makes_of_it() -> None:
    from holdfast.api.bodies import parse_stepwise

    value: Any = [{"topic": "a/é", "n": [1, -2.5, 1e3, True, False, None, {}], "s": '\\"\u2028\n'}, "", [[]]]
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=3)):
        assert parse_stepwise(text.encode()) == value


def silent(broker: BrokerProcess, count: int) -> list[socket.socket]:
    return [dial(broker) for _ in range(count)]


def answered(broker: BrokerProcess) -> int:
    with dial(broker) as sock:
        sock.sendall(head("/healthz", method="GET"))
        return status_of(sock)


@pytest.mark.parametrize(
    ("listen", "settings"),
    [
        (LISTEN, {"limits__max_connections_per_address": 3}),
        (LISTEN, {"limits__max_connections": 3}),
        (LISTEN, {"api__max_connections": 3}),
        (("tcp://127.0.0.1:0", "http://127.0.0.1:0?max_connections=3"), {}),
    ],
)
def test_connections_are_counted_as_on_the_other_listeners(
    start_broker: Start, listen: tuple[str, ...], settings: dict[str, int]
) -> None:
    broker = start_broker(listen=listen, history__enable=False, limits__connect_timeout=600, **settings)
    assert answered(broker) == 200
    held = silent(broker, 3)
    assert answered(broker) == 503
    for sock in held:
        sock.close()
    deadline = time.monotonic() + PATIENCE_S
    while answered(broker) != 200:
        assert time.monotonic() < deadline, "those who have gone still count"
        time.sleep(0.1)


def test_the_live_channel_counts_as_a_connection_until_it_ends(start_broker: Start) -> None:
    from wire_websocket import WebSocket

    broker = start_broker(listen=LISTEN, history__enable=False, limits__max_connections_per_address=1)
    channel = WebSocket(broker.ports["http"], path="/api/v1/live", subprotocols=())
    assert channel.status == 101
    assert answered(broker) == 503
    channel.sock.close()
    deadline = time.monotonic() + PATIENCE_S
    while answered(broker) != 200:
        assert time.monotonic() < deadline, "the channel still counts"
        time.sleep(0.1)


def test_a_banned_address_is_hung_up_on_before_it_says_a_word(start_broker: Start) -> None:
    broker = start_broker(listen=LISTEN, history__enable=False, bans__addresses="127.0.0.0/8")
    with dial(broker) as sock:
        assert status_of(sock) == 403
        assert ends(sock)
