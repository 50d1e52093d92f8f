"""SIGHUP: what it turns on holds from that moment on, everywhere; what it cannot change is named and stays."""

import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import wire
from broker_process import BrokerProcess, start_holdfast
from guarded import Guarded
from holdfast.identity.passwords import hash_scram
from http_api import Api, until
from password_file import write_password_file
from scram import METHOD, Scram
from sn_client import SnClient
from wire import P, WireClient
from wire_websocket import WebSocket

Start = Callable[..., Guarded]

PATIENCE_S = 60.0
EVERYWHERE = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0", "udp://127.0.0.1:0", "http://127.0.0.1:0")


class Site:
    """A broker whose configuration is a file that a test rewrites."""

    def __init__(self, folder: Path, config: str, listen: Sequence[str]) -> None:
        self.folder = folder
        self.config = folder / "holdfast.toml"
        self.config.write_text(config)
        settings = {"history.enable": False}
        self.broker: BrokerProcess = start_holdfast(
            folder / "data", settings, listen=listen, args=["--config", str(self.config)]
        )

    def reload(self, config: str, expected: str = "reloaded certificates") -> str:
        """Put another configuration in force; what the broker said to that."""
        self.config.write_text(config)
        before = len(self.broker.output)
        self.broker.signal(signal.SIGHUP)
        until(lambda: self.broker.output[before:], lambda said: expected in said, PATIENCE_S)
        return self.broker.output[before:]

    def code(self, version: int = 5, scheme: str = "tcp", **fields: object) -> int:
        """What CONNACK answers."""
        sock = WebSocket(self.broker.ports["ws"]) if scheme == "ws" else None
        port = 0 if sock is not None else self.broker.port
        with WireClient(port, version, sock=sock) as client:  # type: ignore[arg-type]  # as much of one as is needed
            return client.connect("probe", check=False, timeout=PATIENCE_S, **fields).code


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    made: list[Site] = []

    def make(config: str = "", listen: Sequence[str] = ("tcp://127.0.0.1:0",)) -> Site:
        made.append(Site(tmp_path, config, listen))
        return made[-1]

    yield make
    for one in made:
        one.broker.stop()
        assert "Traceback" not in one.broker.output


def with_users(folder: Path, **users: str) -> str:
    write_password_file(folder / "users", users or {"alice": "alice's"})
    return f'[auth]\npassword_file = "{folder / "users"}"\n'


def test_logins_turned_on_hold_on_every_listener(site: Callable[..., Site], tmp_path: Path) -> None:
    here = site(listen=EVERYWHERE)
    assert here.code(username="alice", password=b"anything") == 0
    here.reload(with_users(tmp_path))
    for scheme in ("tcp", "ws"):
        assert here.code(scheme=scheme) == 0x87
        assert here.code(scheme=scheme, username="alice") == 0x86
        assert here.code(scheme=scheme, username="alice", password=b"wrong") == 0x86
        assert here.code(scheme=scheme, username="alice", password=b"alice's") == 0
    for version in (1, 2):
        with SnClient(here.broker.ports["udp"], version, "sensor") as sensor, pytest.raises(AssertionError):
            sensor.connect()
    with Api(here.broker) as api:
        assert api.get("/api/v1/retained").status_code == 401


def test_who_is_in_without_proof_has_to_leave_when_logins_are_turned_on(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    here = site(listen=EVERYWHERE)
    nobody, alice = here.broker.client(5), here.broker.client(5)
    nobody.connect("nobody")
    alice.connect("alice", username="alice", password=b"anything")
    sensor = SnClient(here.broker.ports["udp"], 2, "sensor")
    sensor.connect()
    here.reload(with_users(tmp_path))
    nobody.expect_disconnect(0x87, PATIENCE_S)
    alice.expect_disconnect(0x87, PATIENCE_S)
    here.broker.wait_output("client disconnected client_id=sensor", PATIENCE_S)
    sensor.close()


def test_anonymous_clients_can_be_shut_out_and_let_in_again(site: Callable[..., Site], tmp_path: Path) -> None:
    users = with_users(tmp_path)
    here = site(users + "allow_anonymous = true\n")
    assert here.code() == 0
    here.reload(users)
    assert here.code() == 0x87
    here.reload(users + "allow_anonymous = true\n")
    assert here.code() == 0
    assert here.code(username="alice", password=b"wrong") == 0x86


def test_what_needs_a_restart_stays_as_it_was_and_is_named_each_time(site: Callable[..., Site], tmp_path: Path) -> None:
    here = site()
    changed = "[limits]\nmax_qos = 0\n[callback]\nat_once = 3\n"
    for _ in range(2):
        said = here.reload(changed, "need a restart")
        assert "limits.max_qos" in said
        assert "callback.at_once" in said
    with here.broker.client(5) as client:
        answer = client.connect("c")
    assert P.MAXIMUM_QOS not in [name for name, _ in answer.properties]


def test_a_reload_that_would_open_a_listener_until_the_restart_changes_nothing(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    """The new configuration is sound, but the old listener is still there and would ask nobody to log in."""
    users = with_users(tmp_path)
    here = site(f'listen = ["tcp://0.0.0.0:0"]\n{users}', listen=())
    until(lambda: here.broker.listening, bool, PATIENCE_S)
    here.reload('listen = ["tcp://127.0.0.1:0"]\n', "reload failed, nothing was changed")
    assert "requires no login" in here.broker.output
    assert here.code() == 0x87
    assert here.code(username="alice", password=b"alice's") == 0


def test_a_deleted_user_is_sent_away_and_has_no_last_word(guarded: Start) -> None:
    site = guarded()
    watcher = site.enter("owner")
    watcher.subscribe("#")
    will = wire.Will("last/words", b"of a ghost", retain=True)
    guest, ann = site.enter("guest", will=will), site.enter("ann", will=will)
    bob = site.enter("bob", clean=False, properties=[(P.SESSION_EXPIRY, 600)], will=later(will))
    bob.cut()
    site.broker.wait_output("client disconnected client_id=bob", PATIENCE_S)
    users = site.folder / "users"
    kept = [line for line in users.read_text().splitlines() if line.startswith("owner:")]
    users.write_text("\n".join([*kept, f"ann:{hash_scram(b'another')}\n"]))
    site.reload("reloaded certificates")
    guest.expect_disconnect(0x87, PATIENCE_S)  # is not there any more
    ann.expect_disconnect(0x87, PATIENCE_S)  # has another password
    watcher.ping()
    watcher.publish("now", b"1", qos=1)
    assert [message.topic for message in watcher.messages(1)] == ["now"]
    client = site.open()
    client.connect("late", username="owner", password=b"owner's")
    client.subscribe("last/#")
    client.expect_no_message()


def later(will: wire.Will) -> wire.Will:
    return wire.Will(will.topic, will.payload, retain=True, properties=[(P.WILL_DELAY, 300)])


def test_a_banned_user_who_is_in_is_sent_away(guarded: Start) -> None:
    site = guarded()
    guest, owner = site.enter("guest"), site.enter("owner")
    site.config.write_text(site.config.read_text() + '[bans]\nusers = ["guest"]\n')
    site.reload("reloaded certificates")
    guest.expect_disconnect(0x87, PATIENCE_S)
    owner.ping()


def test_a_login_by_scram_that_began_before_its_user_was_deleted_fails(site: Callable[..., Site]) -> None:
    here = site()
    users = here.folder / "users"
    config = f'[auth]\npassword_file = "{users}"\n'
    bob = f"bob:{hash_scram(b'secret')}\n"
    users.write_text(f"ann:{hash_scram(b'secret')}\n{bob}")
    here.reload(config)
    half = Scram("ann", "secret")
    client = here.broker.client(5)
    client.send(wire.connect("s", version=5, properties=[METHOD, (P.AUTH_DATA, half.first())]))
    challenge = client.expect(wire.Auth, timeout=PATIENCE_S).prop(P.AUTH_DATA)
    users.write_text(bob)
    here.reload(config)
    client.send(wire.auth(0x18, [METHOD, (P.AUTH_DATA, half.final(challenge))]))
    assert client.expect(wire.ConnAck, timeout=PATIENCE_S).code == 0x87
