"""Logging in by SCRAM-SHA-256 through MQTT 5's enhanced authentication, against a client written here."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wire
from broker_process import BrokerProcess, serve_environment, start_holdfast
from scram import METHOD, Scram
from wire import Auth, ConnAck, P, Publish, WireClient

CONTINUE, AGAIN = 0x18, 0x19


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One user for SCRAM and one whose hash is of no use for it, both written by `holdfast passwd`."""
    folder = tmp_path_factory.mktemp("scram")
    for user, scheme, more in (("sam", "scram", ["-c"]), ("pat", "argon2id", [])):
        subprocess.run(
            [sys.executable, "-m", "holdfast.cli.main", "passwd", *more, "-H", scheme, str(folder / "users"), user],
            input=f"{user}'s\n".encode(),
            env=serve_environment(),
            check=True,
        )
    running = start_holdfast(folder / "data", {"auth.password_file": folder / "users", "history.enable": False})
    yield running
    running.stop()
    assert "Traceback" not in running.output


def begin(broker: BrokerProcess, scram: Scram, **fields: object) -> tuple[WireClient, bytes]:
    client = broker.client(5)
    data = [(P.AUTH_DATA, scram.first())]
    client.send(wire.connect("c", version=5, properties=[METHOD, *data], **fields))  # type: ignore[arg-type]
    challenge = client.expect(Auth, reason=CONTINUE)
    assert challenge.prop(P.AUTH_METHOD) == METHOD[1]
    return client, challenge.prop(P.AUTH_DATA)


def log_in(broker: BrokerProcess, scram: Scram, **fields: object) -> tuple[WireClient, ConnAck]:
    client, challenge = begin(broker, scram, **fields)
    client.send(wire.auth(CONTINUE, [METHOD, (P.AUTH_DATA, scram.final(challenge))]))
    return client, client.expect(ConnAck)


def test_the_right_password_gets_in_and_the_broker_proves_itself_too(broker: BrokerProcess) -> None:
    scram = Scram("sam", "sam's")
    client, answer = log_in(broker, scram)
    assert answer.code == 0
    assert answer.prop(P.AUTH_METHOD) == METHOD[1]
    assert answer.prop(P.AUTH_DATA) == scram.server_proof()
    client.subscribe("t")
    client.publish("t", b"1")
    client.expect(Publish, payload=b"1")


@pytest.mark.parametrize(("name", "password"), [("sam", "pat's"), ("nobody", "sam's"), ("pat", "pat's")])
def test_a_wrong_name_or_password_fails_at_the_end_and_only_there(
    broker: BrokerProcess, name: str, password: str
) -> None:
    client, answer = log_in(broker, Scram(name, password), will=wire.Will("w", b"never"))
    assert answer.code == 0x87
    client.expect_closed()


def test_the_same_users_log_in_by_password(broker: BrokerProcess) -> None:
    for user in ("sam", "pat"):
        client = broker.client(4)
        assert client.connect(user, username=user, password=f"{user}'s".encode()).code == 0


def test_a_user_name_beside_it_must_be_the_same(broker: BrokerProcess) -> None:
    assert log_in(broker, Scram("sam", "sam's"), username="sam")[1].code == 0
    client, answer = log_in(broker, Scram("sam", "sam's"), username="pat")
    assert answer.code == 0x86
    client.expect_closed()


def test_a_client_may_log_in_again_as_who_it_is(broker: BrokerProcess) -> None:
    client, _ = log_in(broker, Scram("sam", "sam's"))
    for _ in range(2):
        scram = Scram("sam", "sam's")
        client.send(wire.auth(AGAIN, [METHOD, (P.AUTH_DATA, scram.first())]))
        challenge = client.expect(Auth, reason=CONTINUE).prop(P.AUTH_DATA)
        client.ping()
        client.send(wire.auth(CONTINUE, [METHOD, (P.AUTH_DATA, scram.final(challenge))]))
        answer = client.expect(Auth, reason=0)
        assert answer.prop(P.AUTH_DATA) == scram.server_proof()
    client.ping()


def test_logging_in_again_with_a_wrong_password_ends_the_connection(broker: BrokerProcess) -> None:
    client, _ = log_in(broker, Scram("sam", "sam's"))
    scram = Scram("sam", "wrong")
    client.send(wire.auth(AGAIN, [METHOD, (P.AUTH_DATA, scram.first())]))
    challenge = client.expect(Auth, reason=CONTINUE).prop(P.AUTH_DATA)
    client.send(wire.auth(CONTINUE, [METHOD, (P.AUTH_DATA, scram.final(challenge))]))
    client.expect_disconnect(0x87)


OUT_OF_TURN = {
    "a publish": wire.publish("t", b"x", version=5),
    "a second connect": wire.connect("c", version=5),
    "another method": wire.auth(CONTINUE, [(P.AUTH_METHOD, "PLAIN"), (P.AUTH_DATA, b"x")]),
    "no method": wire.auth(CONTINUE, []),
    "success": wire.auth(0, [METHOD]),
    "re-authentication": wire.auth(AGAIN, [METHOD, (P.AUTH_DATA, b"n,,n=sam,r=0123456789")]),
    "nonsense": wire.auth(CONTINUE, [METHOD, (P.AUTH_DATA, b"\xff\x00")]),
    "the first message again": wire.auth(CONTINUE, [METHOD, (P.AUTH_DATA, b"n,,n=sam,r=0123456789")]),
    "an empty proof": wire.auth(CONTINUE, [METHOD, (P.AUTH_DATA, b"")]),
}


@pytest.mark.parametrize("name", OUT_OF_TURN)
def test_anything_but_the_proof_is_refused(broker: BrokerProcess, name: str) -> None:
    client, _ = begin(broker, Scram("sam", "sam's"))
    client.send(OUT_OF_TURN[name])
    assert client.expect(ConnAck).code >= 0x80
    client.expect_closed()


def test_giving_up_in_the_middle_is_no_harm(broker: BrokerProcess) -> None:
    for leave in (wire.disconnect(), b""):
        client, _ = begin(broker, Scram("sam", "sam's"), will=wire.Will("w", b"never"))
        if leave:
            client.send(leave)
            client.expect_closed()
        client.cut()
    assert log_in(broker, Scram("sam", "sam's"))[1].code == 0


def test_an_exchange_that_stalls_ends_in_time(broker: BrokerProcess, tmp_path: Path) -> None:
    users = broker.command[broker.command.index("--set") + 1]
    key, _, value = users.partition("=")
    quick = start_holdfast(tmp_path / "data", {key: value, "limits.connect_timeout": "300ms", "history.enable": False})
    client, _ = begin(quick, Scram("sam", "sam's"))
    client.expect_closed(5)
    quick.stop()
