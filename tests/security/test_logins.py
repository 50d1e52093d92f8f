"""Tokens, a login service and certificates as ways in, through a real broker."""

import json
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest

import wire
from broker_process import BrokerProcess
from certificates import EXTENSIONS, Authority
from holdfast.identity.passwords import hash_pbkdf2
from login_service import Service
from password_file import write_password_file
from v5_client import KEEP
from wire import ConnAck, WireClient

Start = Callable[..., BrokerProcess]

SECRET = "a secret of more than thirty-two bytes, for tests"


def attempt(broker: BrokerProcess, **fields: Any) -> tuple[WireClient, int]:
    client = broker.client(5)
    client.send(wire.connect(fields.pop("client_id", "c"), version=5, **fields))
    return client, client.expect(ConnAck).code


def token(**claims: Any) -> bytes:
    return jwt.encode({"sub": "ann", **claims}, SECRET, "HS256").encode()


@pytest.fixture
def by_token(start_broker: Start, tmp_path: Path) -> BrokerProcess:
    (tmp_path / "secret").write_text(SECRET)
    return start_broker(jwt__key_file=tmp_path / "secret", jwt__algorithms="HS256", history__enable=False)


def test_a_token_is_a_password(by_token: BrokerProcess) -> None:
    assert attempt(by_token, username="ann", password=token())[1] == 0
    assert attempt(by_token, username="bob", password=token())[1] == 0x86
    assert attempt(by_token, username="ann", password=b"no token")[1] == 0x86
    assert attempt(by_token, username="ann", password=token(exp=int(time.time()) - 5))[1] == 0x86
    assert attempt(by_token)[1] == 0x87
    three = by_token.client(4)
    assert three.connect("three", username="ann", password=token()).code == 0


def test_a_token_alone_says_who_it_is(by_token: BrokerProcess) -> None:
    """5.0 allows a password without a user name."""
    assert attempt(by_token, password=token())[1] == 0
    owner, _ = attempt(by_token, client_id="mine", password=token(), clean=False, properties=KEEP)
    owner.disconnect()
    assert attempt(by_token, client_id="mine", password=token(sub="bob"))[1] == 0x85


def test_a_connection_ends_when_its_token_does(by_token: BrokerProcess) -> None:
    short, code = attempt(by_token, client_id="short", password=token(exp=int(time.time()) + 5))
    assert code == 0
    long, _ = attempt(by_token, client_id="long", password=token(exp=int(time.time()) + 3600))
    short.expect_disconnect(0x87)
    long.ping()


def test_a_new_connection_with_a_new_token_outlives_the_old_one(by_token: BrokerProcess) -> None:
    """Also one that came in the same millisecond, of which there are some among so many."""
    ends = int(time.time()) + 3
    first = token(exp=ends)
    second = token(exp=int(time.time()) + 3600)
    again = []
    for number in range(50):
        attempt(by_token, client_id=f"same{number}", password=first)
        again.append(attempt(by_token, client_id=f"same{number}", password=second)[0])
    time.sleep(max(0.0, ends + 1 - time.time()))  # and it is time for all who had that token
    for client in again:
        client.ping()


def test_a_service_decides_and_failing_it_nobody_gets_in(start_broker: Start, service: Service) -> None:
    broker = start_broker(callback__url=service.url, callback__cache=0, callback__timeout=60, history__enable=False)
    assert attempt(broker, username="ann", password=b"x")[1] == 0
    assert service.asked[0]["username"] == "ann"
    assert service.asked[0]["address"].startswith("127.0.0.1:")
    service.body = b'{"result": "deny"}'
    assert attempt(broker, username="ann", password=b"x")[1] == 0x86
    service.body = b"oops"
    assert attempt(broker, username="ann", password=b"x")[1] == 0x88
    service.stop()
    assert attempt(broker, username="ann", password=b"x")[1] == 0x88
    assert attempt(broker)[1] == 0x87


def test_a_service_that_hangs_holds_up_no_one_who_is_in(start_broker: Start, tmp_path: Path) -> None:
    users = write_password_file(tmp_path / "users", {"ann": "ann's"})
    silent = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
    broker = start_broker(
        callback__url=url, callback__timeout=2, auth__password_file=users, callback__at_once=2, history__enable=False
    )
    inside, code = attempt(broker, client_id="in", username="ann", password=b"ann's")
    assert code == 0
    waiting = [broker.client(5) for _ in range(6)]
    for number, client in enumerate(waiting):
        client.send(wire.connect(f"w{number}", version=5, username=f"u{number}", password=b"x"))
    for _ in range(20):
        inside.ping()
    assert attempt(broker, client_id="in2", username="ann", password=b"ann's")[1] == 0
    assert waiting[0].expect(ConnAck).code == 0x88
    silent.close()


def test_a_hash_is_never_worked_out_where_others_are_served(start_broker: Start, tmp_path: Path) -> None:
    """A login that takes seconds to check: whoever is in is answered meanwhile, and it is answered after them."""
    slow = hash_pbkdf2(b"right", b"twelve bytes", 2_000_000)
    (tmp_path / "users").write_text(f"slow:{slow}\n")
    broker = start_broker(
        auth__password_file=tmp_path / "users",
        auth__allow_anonymous=True,
        limits__connect_timeout=60,
        history__enable=False,
    )
    inside, code = attempt(broker, client_id="in")
    assert code == 0
    waiting = [broker.client(5) for _ in range(2)]
    for number, client in enumerate(waiting):
        client.send(wire.connect(f"w{number}", version=5, username="slow", password=b"right"))
    inside.ping()
    assert not [client for client in waiting if client.has_come()]
    assert [client.expect(ConnAck).code for client in waiting] == [0] * 2


def revoke(authority: Authority, *certificates: Path) -> Path:
    """A revocation list by the openssl command."""
    folder = authority.folder
    config = folder / "ca.cnf"
    config.write_text(
        f"[ca]\ndefault_ca=d\n[d]\ndatabase={folder}/index.txt\ncrlnumber={folder}/crlnumber\n"
        "default_md=sha256\ndefault_crl_days=2\n"
    )
    (folder / "index.txt").touch()
    if not (folder / "crlnumber").exists():
        (folder / "crlnumber").write_text("01\n")
    base = ["openssl", "ca", "-config", str(config), "-keyfile", str(folder / "ca.key"), "-cert", str(authority.ca)]
    for certificate in certificates:
        subprocess.run([*base, "-revoke", str(certificate)], check=True, capture_output=True)
    subprocess.run([*base, "-gencrl", "-out", str(folder / "crl.pem")], check=True, capture_output=True)
    return folder / "crl.pem"


def over_tls(broker: BrokerProcess, authority: Authority, certificate: tuple[Path, Path]) -> WireClient:
    context = authority.trusting(certificate)
    raw = socket.create_connection(("127.0.0.1", broker.ports["tls"]), 60)
    return WireClient(0, 5, sock=context.wrap_socket(raw, server_hostname="localhost"))


def can_connect(broker: BrokerProcess, authority: Authority, certificate: tuple[Path, Path]) -> bool:
    """With TLS 1.3 a refused client learns of it when it first reads."""
    try:
        with over_tls(broker, authority, certificate) as client:
            client.send(wire.connect("t", version=5))
            return client.expect(ConnAck).code == 0
    except (OSError, AssertionError):
        return False


def test_a_revoked_certificate_is_refused_also_when_it_is_revoked_later(start_broker: Start, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("localhost", "server")
    good, bad = authority.issue("good", "client"), authority.issue("bad", "client")
    crl = revoke(authority)
    broker = start_broker(
        listen=["tls://127.0.0.1:0"],
        tls__cert=cert,
        tls__key=key,
        tls__ca=authority.ca,
        tls__crl=crl,
        tls__require_client_certificate=True,
        history__enable=False,
    )
    assert can_connect(broker, authority, good)
    assert can_connect(broker, authority, bad)
    time.sleep(1.1)  # lists are told apart by the second they were made in
    revoke(authority, bad[0])
    broker.signal(signal.SIGHUP)
    broker.wait_output("reloaded certificates")
    assert can_connect(broker, authority, good)
    assert not can_connect(broker, authority, bad)


def test_a_revoked_authority_takes_the_certificates_below_it_along(start_broker: Start, tmp_path: Path) -> None:
    root = Authority(tmp_path / "ca")
    server = root.issue("localhost", "server")
    office = root.below("office")
    clerk, chief = office.issue("clerk", "client"), root.issue("chief", "client")
    lists = tmp_path / "lists.pem"
    lists.write_text(revoke(root).read_text() + revoke(office).read_text())
    broker = start_broker(
        listen=["tls://127.0.0.1:0"],
        tls__cert=server[0],
        tls__key=server[1],
        tls__ca=root.ca,
        tls__crl=lists,
        tls__require_client_certificate=True,
        history__enable=False,
    )
    assert can_connect(broker, root, clerk)
    time.sleep(1.1)  # lists are told apart by the second they were made in
    lists.write_text(revoke(root, office.ca).read_text() + revoke(office).read_text())
    broker.signal(signal.SIGHUP)
    broker.wait_output("reloaded certificates")
    assert can_connect(broker, root, chief)
    assert not can_connect(broker, root, clerk)


def test_an_authority_without_a_list_of_its_own_vouches_for_nobody(start_broker: Start, tmp_path: Path) -> None:
    root = Authority(tmp_path / "ca")
    server = root.issue("localhost", "server")
    clerk, chief = root.below("office").issue("clerk", "client"), root.issue("chief", "client")
    broker = start_broker(
        listen=["tls://127.0.0.1:0"],
        tls__cert=server[0],
        tls__key=server[1],
        tls__ca=root.ca,
        tls__crl=revoke(root),
        tls__require_client_certificate=True,
        history__enable=False,
    )
    assert can_connect(broker, root, chief)
    assert not can_connect(broker, root, clerk)


RULES = [
    {"permission": "allow", "action": "all", "filter": "u/%u/#", "certificate": True},
    {"permission": "allow", "action": "subscribe", "filter": "#"},
]


def test_the_name_in_a_certificate_is_the_user_name(start_broker: Start, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    server = authority.issue("localhost", "server")
    client = authority.issue("meter7", "client")
    broker = start_broker(
        listen=["tls://127.0.0.1:0", "tcp://127.0.0.1:0"],
        tls__cert=server[0],
        tls__key=server[1],
        tls__ca=authority.ca,
        access=json.dumps(RULES),
        history__enable=False,
    )
    with over_tls(broker, authority, client) as certified:
        certified.connect("c")
        assert certified.publish("u/meter7/x", b"1", qos=1, check=False).reason < 0x80  # type: ignore[union-attr]
        assert certified.publish("u/meter8/x", b"1", qos=1, check=False).reason == 0x87  # type: ignore[union-attr]
    plain = broker.client(5)
    plain.connect("p", username="meter7")
    assert plain.publish("u/meter7/x", b"1", qos=1, check=False).reason == 0x87  # type: ignore[union-attr]


def test_a_will_outlives_a_restart_with_the_rights_of_its_certificate(start_broker: Start, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    server = authority.issue("localhost", "server")
    options = {
        "listen": ["tls://127.0.0.1:0", "tcp://127.0.0.1:0"],
        "data": tmp_path / "data",
        "tls__cert": server[0],
        "tls__key": server[1],
        "tls__ca": authority.ca,
        "access": json.dumps([RULES[0], {"permission": "allow", "action": ["subscribe", "receive"], "filter": "#"}]),
        "history__enable": False,
    }
    will = wire.Will("u/meter7/gone", b"gone", qos=1, properties=[(wire.P.WILL_DELAY, 4)])
    first = start_broker(**options)
    doomed = over_tls(first, authority, authority.issue("meter7", "client"))
    doomed.connect("c", clean=False, properties=KEEP, will=will)
    first.kill()
    doomed.cut()
    again = start_broker(**options)
    watcher = again.client(5)
    watcher.connect("w")
    watcher.subscribe("#")
    watcher.expect(wire.Publish, topic="u/meter7/gone")


def test_an_alternative_name_can_be_the_user_name(start_broker: Start, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    server = authority.issue("localhost", "server")
    EXTENSIONS["named"] = "subjectAltName=DNS:door.example,email:d@example\nextendedKeyUsage=clientAuth\n"
    client = authority.issue("ignored", "named")
    broker = start_broker(
        listen=["tls://127.0.0.1:0"],
        tls__cert=server[0],
        tls__key=server[1],
        tls__ca=authority.ca,
        tls__identity="san",
        access=json.dumps(RULES),
        history__enable=False,
    )
    with over_tls(broker, authority, client) as certified:
        certified.connect("c")
        assert certified.publish("u/door.example/x", b"1", qos=1, check=False).reason < 0x80  # type: ignore[union-attr]
        assert certified.publish("u/ignored/x", b"1", qos=1, check=False).reason == 0x87  # type: ignore[union-attr]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_tls_is_not_spoken(start_broker: Start, tmp_path: Path, version: ssl.TLSVersion) -> None:
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("localhost", "server")
    broker = start_broker(listen=["tls://127.0.0.1:0"], tls__cert=cert, tls__key=key, history__enable=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLS"):
        context.minimum_version = version
    with pytest.warns(DeprecationWarning, match="TLS"):
        context.maximum_version = version
    raw = socket.create_connection(("127.0.0.1", broker.ports["tls"]), 60)
    with raw, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(raw)
