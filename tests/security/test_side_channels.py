"""What a broker gives away without being asked: by the time it takes, its diagnostics, files and answers to liars."""

import contextlib
import os
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import counted_hashes
import wire
from broker_process import BrokerProcess, serve_command, serve_environment
from counted_hashes import cost_of, count_hashes
from guarded import Guarded
from holdfast.identity.passwords import PasswordFile, hash_argon2id, hash_pbkdf2, hash_scram
from http_api import until
from ports import free_port
from sn_client import SnClient
from wire import ConnAck

SECRET = "correct-horse-battery-staple"


# Each of another cost.
KINDS = {
    "argon2id": hash_argon2id(b"right"),
    "pbkdf2": hash_pbkdf2(b"right", b"twelve bytes", 500),
    "scram": hash_scram(b"right", 4096),
}
GUESSES = [(name, guess) for name in ("known", "other", "unknown") for guess in (b"guess", None)]


@pytest.mark.parametrize(
    ("kind", "others"), [("argon2id", "argon2id"), ("pbkdf2", "argon2id"), ("scram", "pbkdf2"), ("scram", "scram")]
)
def test_the_work_of_a_check_does_not_tell_whether_a_name_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, others: str
) -> None:
    """Also where users have hashes of different cost, and whether a password is given or not."""
    (tmp_path / "users").write_text(f"known:{KINDS[kind]}\nother:{KINDS[others]}\n")
    users = PasswordFile(tmp_path / "users")
    hashes: list[str] = []
    count_hashes(hashes.append, monkeypatch.setattr)
    for name, guess in GUESSES:
        hashes.clear()
        assert not users.check(name, guess)
        assert sorted(hashes) == sorted({cost_of(KINDS[kind]), cost_of(KINDS[others])}), f"{name} {guess!r}"


def test_the_work_for_an_answer_does_not_tell_whether_a_name_exists(tmp_path: Path) -> None:
    """From CONNECT to CONNACK, in a broker that writes down the hashes it works out."""
    hashes = tmp_path / "hashes"
    users = tmp_path / "users"
    users.write_text(f"known:{KINDS['argon2id']}\nother:{KINDS['pbkdf2']}\n")
    settings = {"auth__password_file": users, "bans__failures": 0, "history__enable": False}
    serve = serve_command(settings, ["tcp://127.0.0.1:0"], tmp_path / "data", ())
    command = [sys.executable, counted_hashes.__file__, str(hashes), *serve[serve.index("serve") :]]
    broker = BrokerProcess(command, serve_environment(), tmp_path)
    broker.wait_listening(1)
    try:
        for name, guess in GUESSES:
            hashes.write_bytes(b"")
            with broker.client(5) as client:
                client.send(wire.connect("x", version=5, username=name, password=guess))
                assert client.expect(ConnAck).code == 0x86
            worked_out = hashes.read_text().splitlines()
            assert sorted(worked_out) == sorted(cost_of(KINDS[kind]) for kind in ("argon2id", "pbkdf2")), (
                f"{name} {guess!r}"
            )
    finally:
        broker.stop()


def test_a_wrong_name_and_a_wrong_password_get_the_same_answer(guarded: Callable[..., Guarded]) -> None:
    site = guarded()
    answers = set()
    for user, password in (("owner", b"wrong"), ("nobody", b"wrong"), ("nobody", b"owner's"), ("owner", None)):
        client = site.open()
        client.send(wire.connect("x", version=5, username=user, password=password))
        answer = client.expect(ConnAck)
        assert answer.code == 0x86
        answers.add(answer.raw)
    assert len(answers) == 1


def test_no_password_comes_out_in_diagnostics_or_files(guarded: Callable[..., Guarded]) -> None:
    site = guarded(None, '[log]\nlevel = "debug"\n')
    for user, password in (("owner", SECRET), (SECRET, "x")):
        client = site.open()
        client.send(wire.connect("c", version=5, username=user, password=password.encode()))
        assert client.expect(ConnAck).code == 0x86
    client = site.enter("owner", "keeper", clean=False)
    client.publish("t", b"1", qos=1, retain=True)
    client.send(wire.frame(0x10, b"\x00" + SECRET.encode()))
    client.drain_until_closed()
    site.stop()
    assert SECRET not in site.broker.output
    assert "owner's" not in site.broker.output
    for folder, _, names in os.walk(site.folder / "data"):
        for name in names:
            content = Path(folder, name).read_bytes()
            assert SECRET.encode() not in content
            assert b"owner's" not in content


def test_a_login_in_the_address_of_a_log_server_is_not_shown(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    settings = {"cluster__url": f"nats://bob:{SECRET}@{nobody},nats://{SECRET}@{nobody}", "cluster__node": "a"}
    command = serve_command(settings, ["tcp://127.0.0.1:0"], tmp_path / "data", ())
    broker = BrokerProcess(command, serve_environment(), tmp_path)
    try:
        broker.wait_output("no log server was reached")
        assert SECRET not in broker.output
        assert f"nats://bob:(hidden)@{nobody}" in broker.output
    finally:
        broker.stop()


def test_a_hash_that_is_a_password_by_mistake_is_not_shown(tmp_path: Path) -> None:
    from holdfast.config import load
    from holdfast.errors import ConfigError
    from holdfast.from_settings import login_methods

    (tmp_path / "users").write_text(f"alice:{SECRET}\n")
    loaded = load(assignments=[f"auth.password_file={tmp_path / 'users'}"], environ={})
    with pytest.raises(ConfigError) as caught:
        login_methods(loaded.settings)
    assert SECRET not in str(caught.value)


def test_what_the_broker_writes_is_for_its_own_user_alone(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    data = tmp_path / "fresh" / "data"
    broker = start_broker(args=["--data", str(data)], history__flush_interval="100ms")
    client = broker.client(5)
    client.connect("c", clean=False, properties=[(wire.P.SESSION_EXPIRY, 60)])
    client.subscribe("#", qos=1)
    client.publish("t", b"private", qos=1, retain=True)
    until(lambda: (data / "history" / "_delta_log").is_dir(), bool)
    broker.stop()
    seen = 0
    for folder, folders, names in os.walk(data):
        for name in [*folders, *names]:
            mode = stat.S_IMODE(Path(folder, name).lstat().st_mode)
            assert mode & 0o077 == 0, f"{Path(folder, name)} has mode {mode:o}"
            seen += 1
    assert seen > 5
    assert stat.S_IMODE(data.stat().st_mode) & 0o077 == 0


def test_a_liar_about_its_address_gets_no_more_out_of_udp_than_it_puts_in(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    """Whoever writes somebody else's address on datagrams must not be able to use the broker as a loudspeaker."""
    broker = start_broker(listen=["udp://127.0.0.1:0", "tcp://127.0.0.1:0"], history__enable=False)
    filler = broker.client(5)
    filler.connect("f")
    for number in range(50):
        filler.publish(f"big/{number}", bytes(1000), qos=1, retain=True)
    questions = {
        "SEARCHGW": b"\x03\x01\x00",
        "PINGREQ": b"\x02\x16",
        "PUBLISH": b"\x09\x0c\x00\x00\x01\x00\x01hi",
        "SUBSCRIBE": b"\x0a\x12\x00\x00\x01big/+",
        "DISCONNECT": b"\x02\x18",
        "REGISTER": b"\x07\x0a\x00\x00\x00\x01a",
        "garbage": bytes(range(64)),
    }
    answered = []
    for name, datagram in questions.items():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            sent = 0
            for _ in range(100):
                sock.sendto(datagram, ("127.0.0.1", broker.ports["udp"]))
                sent += len(datagram)
            # One listener answers in the order in which it has read: when somebody else has an answer, these are here.
            with SnClient(broker.ports["udp"], 1, "behind") as behind:
                behind.connect()
            sock.setblocking(False)
            received = 0
            with contextlib.suppress(BlockingIOError):
                while True:
                    received += len(sock.recv(65535))
        answered.append(received > 0)
        assert received <= sent, f"{name}: {sent} bytes in, {received} bytes out"
    assert any(answered)
