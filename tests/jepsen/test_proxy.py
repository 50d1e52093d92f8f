"""A link passes everything on until it is told not to, and everything again when it is healed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from jepsen.proxy import TO_CLIENT, TO_SERVER, Link, Network

PATIENCE_S = 60.0
SHORT_S = 0.2  # to see that nothing comes


class Echo:
    """A server that says everything back, and remembers what it was told."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.heard = threading.Semaphore(0)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock: socket.socket) -> None:
        with sock:
            try:
                while data := sock.recv(65536):
                    self.heard.release()
                    sock.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)  # which ends the thread that waits there; closing would not
        self.listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def link(echo: Echo) -> Iterator[Link]:
    with Network() as network:
        yield network.link("client to echo", lambda: echo.port)


@pytest.fixture
def client(link: Link) -> Iterator[socket.socket]:
    sock = socket.create_connection(("127.0.0.1", link.port), PATIENCE_S)
    assert asked(sock, b"hello") == b"hello"
    yield sock
    sock.close()


def asked(sock: socket.socket, data: bytes) -> bytes:
    sock.sendall(data)
    return heard(sock, len(data))


def heard(sock: socket.socket, count: int) -> bytes:
    sock.settimeout(PATIENCE_S)
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data


def nothing_comes(sock: socket.socket) -> bool:
    sock.settimeout(SHORT_S)
    try:
        sock.recv(1)
    except TimeoutError:
        return True
    return False


def test_what_is_held_comes_when_the_link_is_healed(link: Link, client: socket.socket) -> None:
    link.hold()
    client.sendall(b"wait")
    assert nothing_comes(client)
    assert link.state == "held"
    link.heal()
    assert heard(client, 4) == b"wait"


def test_a_new_connection_over_a_held_link_comes_through_when_it_is_healed(link: Link) -> None:
    link.hold()
    with socket.create_connection(("127.0.0.1", link.port), PATIENCE_S) as sock:
        sock.sendall(b"new")
        assert nothing_comes(sock)
        link.heal()
        assert heard(sock, 3) == b"new"


def test_the_server_hears_and_its_answer_does_not_arrive(link: Link, client: socket.socket, echo: Echo) -> None:
    assert echo.heard.acquire(timeout=PATIENCE_S)
    link.hold(TO_CLIENT)
    client.sendall(b"deaf")
    assert echo.heard.acquire(timeout=PATIENCE_S)
    assert nothing_comes(client)
    link.heal()
    assert heard(client, 4) == b"deaf"


def test_the_server_does_not_hear_and_can_speak(link: Link, client: socket.socket, echo: Echo) -> None:
    assert echo.heard.acquire(timeout=PATIENCE_S)
    link.hold(TO_SERVER)
    client.sendall(b"dumb")
    assert nothing_comes(client)
    assert not echo.heard.acquire(blocking=False)
    assert link.state == "held to server"
    link.heal()
    assert heard(client, 4) == b"dumb"


def test_a_cut_link_resets_and_refuses_until_it_is_healed(link: Link, client: socket.socket) -> None:
    link.cut()
    with pytest.raises(ConnectionResetError):
        heard(client, 1)
    with pytest.raises(ConnectionError), socket.create_connection(("127.0.0.1", link.port), PATIENCE_S) as sock:
        asked(sock, b"again")
    link.heal()
    with socket.create_connection(("127.0.0.1", link.port), PATIENCE_S) as sock:
        assert asked(sock, b"again") == b"again"


def test_a_connection_that_lost_something_is_reset_when_asked_for(link: Link, client: socket.socket) -> None:
    with socket.create_connection(("127.0.0.1", link.port), PATIENCE_S) as other:
        assert asked(other, b"both") == b"both"
        link.hold()
        client.sendall(b"gone")
        assert nothing_comes(client)
        link.heal(lose=True)
        with pytest.raises(ConnectionResetError):
            heard(client, 4)


def test_a_late_link_keeps_the_order(link: Link, client: socket.socket) -> None:
    link.delay(0.05)
    for word in (b"one", b"two", b"six"):
        client.sendall(word)
    assert heard(client, 9) == b"onetwosix"


def test_the_end_of_a_server_is_passed_on(link: Link, client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)
    client.settimeout(PATIENCE_S)
    assert client.recv(1) == b""
