"""MQTT 5.0 sections 3.15 and 4.12: AUTH and enhanced authentication.

Of the methods in the world a broker without users knows none, and one with users SCRAM-SHA-256.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import scram
import wire
from broker_process import BrokerProcess, Unique, serve_environment
from v5_client import Connect5, Open5, expect_dropped, expect_refused
from wire import Auth, ConnAck, P, Publish

METHOD = (P.AUTH_METHOD, "NO-SUCH-METHOD")


@pytest.mark.clause("5.0", "MQTT-4.12.0-1", "MQTT-4.12.0-4", "MQTT-3.2.2-7")
@pytest.mark.parametrize("data", [[], [(P.AUTH_DATA, b"\x00\xff")]], ids=["method", "method and data"])
def test_an_unknown_authentication_method_is_refused(open5: Open5, unique: Unique, data: list[wire.Property]) -> None:
    client = open5()
    client.send(wire.connect(unique.client(), version=5, properties=[METHOD, *data]))
    expect_refused(client, 0x8C)


@pytest.mark.clause("5.0", "MQTT-4.12.0-5")
def test_a_client_that_asks_for_a_method_is_not_let_in_without_it(open5: Open5, unique: Unique) -> None:
    """A success that did not name the method again would be one of another method: none."""
    client = open5()
    answer = client.connect(unique.client(), properties=[METHOD], check=False)
    assert answer.code >= 0x80
    assert answer.prop(P.AUTH_METHOD) in (None, METHOD[1])
    client.expect_closed()


@pytest.mark.clause("5.0", "MQTT-4.12.0-6")
def test_a_client_without_a_method_is_never_asked_for_one(open5: Open5, unique: Unique) -> None:
    client = open5()
    client.send(wire.connect(unique.client(), version=5, username="user", password=b"secret"))
    answer = client.expect(ConnAck, code=0)
    assert answer.prop(P.AUTH_METHOD) is None
    assert answer.prop(P.AUTH_DATA) is None
    client.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-4.12.0-2", "MQTT-4.12.0-5")
def test_a_server_that_needs_more_sends_auth_and_names_the_method_each_time(
    start_broker: Callable[..., BrokerProcess], unique: Unique, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    subprocess.run(
        [sys.executable, "-m", "holdfast.cli.main", "passwd", "-c", "-H", "scram", str(users), "sam"],
        input=b"secret\n",
        env=serve_environment(),
        check=True,
    )
    client = start_broker(auth__password_file=users).client(5)
    login = scram.Scram("sam", "secret")
    client.send(wire.connect(unique.client(), version=5, properties=[scram.METHOD, (P.AUTH_DATA, login.first())]))
    challenge = client.expect(Auth, reason=0x18)
    assert challenge.prop(P.AUTH_METHOD) == scram.METHOD[1]
    proof = login.final(challenge.prop(P.AUTH_DATA))
    client.send(wire.auth(0x18, [scram.METHOD, (P.AUTH_DATA, proof)]))
    assert client.expect(ConnAck, code=0).prop(P.AUTH_METHOD) == scram.METHOD[1]


@pytest.mark.clause("5.0", "MQTT-3.1.2-30")
@pytest.mark.parametrize(
    "packet",
    [wire.subscribe(1, [("t", 0)], version=5), wire.pingreq(), wire.publish("t", b"1", version=5)],
    ids=["SUBSCRIBE", "PINGREQ", "PUBLISH"],
)
def test_nothing_but_auth_is_answered_before_connack(open5: Open5, unique: Unique, packet: bytes) -> None:
    client = open5()
    client.send(wire.connect(unique.client(), version=5, properties=[METHOD]) + packet)
    expect_refused(client, 0x8C)


UNEXPECTED = [
    pytest.param(
        wire.auth(0x18, [METHOD]),
        id="continue",
        marks=pytest.mark.clause("5.0", "MQTT-4.12.0-7"),
    ),
    pytest.param(
        wire.auth(0x19, [METHOD]),
        id="re-authenticate with a method that was never agreed on",
        marks=pytest.mark.clause("5.0", "MQTT-4.12.1-1", "MQTT-4.12.1-2", "MQTT-4.12.0-7"),
    ),
    pytest.param(
        wire.auth(0x19, []),
        id="re-authenticate without a method",
        marks=pytest.mark.clause("5.0", "MQTT-4.12.1-1", "MQTT-4.12.1-2"),
    ),
    pytest.param(
        wire.auth(),
        id="success, which only a server may say",
        marks=pytest.mark.clause("5.0", "MQTT-4.12.0-3", "MQTT-4.12.0-7"),
    ),
    pytest.param(
        wire.auth(0x00, [METHOD]),
        id="success with a method",
        marks=pytest.mark.clause("5.0", "MQTT-4.12.0-3", "MQTT-4.12.0-7"),
    ),
    pytest.param(
        wire.auth(0x01, [METHOD]),
        id="an undefined reason",
        marks=pytest.mark.clause("5.0", "MQTT-3.15.2-1", "MQTT-4.12.0-3"),
    ),
    pytest.param(
        wire.auth(0x87, [METHOD]),
        id="a reason of another packet",
        marks=pytest.mark.clause("5.0", "MQTT-3.15.2-1", "MQTT-4.12.0-3"),
    ),
]


@pytest.mark.parametrize("packet", UNEXPECTED)
def test_auth_from_a_client_that_named_no_method_is_refused(connect5: Connect5, unique: Unique, packet: bytes) -> None:
    """The connection ends like a failed one; what follows is not processed."""
    watcher = connect5()
    watcher.subscribe(unique.topic())
    client = connect5(will=wire.Will(unique.topic(), b"dead"))
    client.send(packet + wire.publish(unique.topic(), b"behind", version=5))
    expect_dropped(client, 0x81, 0x82, 0x8C)
    watcher.expect(Publish, payload=b"dead")
    watcher.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.15.1-1")
@pytest.mark.parametrize("first_byte", [0xF1, 0xF2, 0xF4, 0xF8, 0xFF])
def test_auth_with_reserved_bits_is_malformed(connect5: Connect5, first_byte: int) -> None:
    client = connect5()
    client.send(wire.auth(0x18, [METHOD], first_byte=first_byte))
    expect_dropped(client, 0x81)
