"""Passwords tried by the hundred: a ban counts for those under way, and others do not wait behind them."""

import socket
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import wire
from broker_process import BrokerProcess
from holdfast.identity.passwords import hash_pbkdf2
from login_service import Service
from password_file import write_password_file
from wire import ConnAck, WireClient

Start = Callable[..., BrokerProcess]

PATIENCE_S = 60.0
GUESSER = "127.0.0.5"
SLOW = 1_000_000
BOBS = b"bob!"


def come_from(broker: BrokerProcess, host: str) -> WireClient:
    sock = socket.create_connection(("127.0.0.1", broker.port), PATIENCE_S, source_address=(host, 0))
    return WireClient(0, 5, sock=sock)


def guess(broker: BrokerProcess, count: int, right: int = -1) -> list[WireClient]:
    """So many logins from one address at once, of which one may be right."""
    clients = [come_from(broker, GUESSER) for _ in range(count)]
    with come_from(broker, "127.0.0.1") as last:  # connections are accepted in order: now all of them are
        last.connect("last", username="bob", password=BOBS, timeout=PATIENCE_S)
    for number, client in enumerate(clients):
        password = b"ann's" if number == right else b"guess"
        client.send(wire.connect(f"g{number}", version=5, username="ann", password=password))
    return clients


def codes(clients: list[WireClient]) -> list[int]:
    """The answers; -1 for a connection that was closed without one."""
    found = []
    for client in clients:
        try:
            found.append(client.expect(ConnAck, timeout=PATIENCE_S).code)
        except AssertionError:
            found.append(-1)
        client.cut()
    return found


@pytest.fixture
def users(tmp_path: Path) -> Path:
    return write_password_file(tmp_path / "users", {"ann": "ann's", "bob": BOBS.decode()})


def test_a_ban_stops_the_guesses_that_are_under_way(start_broker: Start, users: Path) -> None:
    broker = start_broker(
        auth__password_file=users,
        bans__failures=5,
        bans__exempt="[]",
        limits__connect_timeout=120,
        history__enable=False,
    )
    found = codes(guess(broker, 60, right=59))
    refused = found.count(0x86)
    assert 5 <= refused <= 5 + 2, "as many as bring the ban, and those that were being checked then"
    assert found.count(0x8A) == 60 - refused


@pytest.fixture
def slow_users(tmp_path: Path) -> Path:
    """Whose passwords take a good part of a second to check, so that there is a queue."""
    path = tmp_path / "slow"
    lines = [f"{name}:{hash_pbkdf2(name.encode() + b'!', b'salt', SLOW)}" for name in ("ann", "bob")]
    path.write_text("\n".join(lines))
    return path


def test_a_login_does_not_wait_behind_those_of_another_address(start_broker: Start, slow_users: Path) -> None:
    broker = start_broker(
        auth__password_file=slow_users, bans__failures=0, limits__connect_timeout=600, history__enable=False
    )
    flood = guess(broker, 40)
    with come_from(broker, "127.0.0.1") as bob:
        bob.connect("bob", username="bob", password=BOBS, timeout=PATIENCE_S)
        answered = [client for client in flood if client.has_come()]
    assert len(answered) < 30, "most of the flood still waits when the other is in"
    for client in flood:
        client.cut()


def test_nobody_is_checked_whose_connection_is_gone(start_broker: Start, slow_users: Path) -> None:
    """Who gives up makes room for the next, of the same address too."""
    broker = start_broker(
        auth__password_file=slow_users, bans__failures=0, limits__connect_timeout=600, history__enable=False
    )
    gone = guess(broker, 60)
    for client in gone:
        client.cut()
    with come_from(broker, GUESSER) as bob:
        bob.connect("bob", username="bob", password=BOBS, timeout=PATIENCE_S)
    used = psutil.Process(broker.pid).cpu_times().user
    assert used < 60 * cost_of_a_guess() / 2, "the work of less than half of those who gave up"


def cost_of_a_guess() -> float:
    begun = time.process_time()
    hash_pbkdf2(b"guess", b"salt", SLOW)
    return time.process_time() - begun


def test_known_and_unknown_names_take_the_same_way_past_a_file_and_a_service(
    start_broker: Start, users: Path, service: Service
) -> None:
    """Whether the file has a name is told neither by being asked about nor by the answer when nobody can be asked."""
    service.body = b'{"result": "deny"}'
    broker = start_broker(
        auth__password_file=users, callback__url=service.url, callback__cache=0, bans__failures=0, history__enable=False
    )

    def answer(name: str, password: bytes) -> int:
        with broker.client(5) as client:
            client.send(wire.connect("x", version=5, username=name, password=password))
            return client.expect(ConnAck, timeout=PATIENCE_S).code

    assert answer("ann", b"ann's") == 0
    assert service.asked == []
    assert [answer(name, b"mistyped") for name in ("ann", "stranger")] == [0x86, 0x86]
    assert [asked["username"] for asked in service.asked] == ["ann", "stranger"]
    assert service.asked[0]["password"] != "mistyped", "what a user of the file mistypes is not for the service"
    assert service.asked[1]["password"] == "mistyped"
    service.body = b'{"result": "allow"}'
    assert answer("ann", b"mistyped") == 0x86
    assert answer("stranger", b"their own") == 0
    service.status = 500
    assert [answer(name, b"guess") for name in ("ann", "stranger")] == [0x88, 0x88]
