"""Whatever happens to clients can be seen: a line for each event, as text and as JSON, and a counter beside it."""

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path

import wire
from broker_process import BrokerProcess
from certificates import Authority
from guarded import Guarded
from http_api import LISTEN, Api, until
from password_file import write_password_file
from wire import ConnAck, WireClient

Start = Callable[..., BrokerProcess]

PATIENCE_S = 60.0
RULES = "user owner\ntopic readwrite #\nuser guest\ntopic readwrite open/#\n"


def lines(site: Guarded, event: str, count: int) -> list[str]:
    def found() -> list[str]:
        return [line for line in site.broker.output.splitlines() if event in line]

    until(found, lambda so_far: len(so_far) >= count, PATIENCE_S)
    return found()


def test_every_event_of_a_client_is_a_line_and_a_count(guarded: Callable[..., Guarded]) -> None:
    site = guarded(RULES + "topic deny secret/#\n", listen=LISTEN)
    guest = site.enter("guest", "g1")
    address = "{}:{}".format(*guest.sock.getsockname())
    guest.publish("closed/door", b"1", qos=1, check=False)
    guest.disconnect()
    intruder = site.open()
    intruder.send(wire.connect("i1", version=5, username="owner", password=b"guess"))
    assert intruder.expect(ConnAck).code == 0x86
    stranger = site.open()
    stranger.send(wire.connect("s1", version=5, username="hunter2", password=b"x"))
    assert stranger.expect(ConnAck).code == 0x86
    (connected,) = lines(site, "client connected", 1)
    assert f'client_id=g1 username=guest address={address} protocol="5.0"'.replace('"', "") in connected
    (denied,) = lines(site, "publish denied", 1)
    assert f"client_id=g1 username=guest address={address} topic=closed/door qos=1 retain=false" in denied
    (left,) = lines(site, "client disconnected", 1)
    assert 'reason="client disconnected"' in left
    failed, unknown = lines(site, "login failed", 2)
    assert "client_id=s1 username=hu*** address" in unknown, "it may well be a password in the wrong place"
    assert "client_id=i1 username=owner address=127.0.0.1:" in failed
    assert 'reason="bad user name or password"' in failed
    with Api(site.broker, auth=("owner", "owner's")) as api:
        text = api.get("/metrics").text
    for name, least in (("connects_accepted", 1), ("logins_failed", 1), ("publishes_denied", 1), ("disconnects", 1)):
        found = re.search(rf"^holdfast_{name}_total ([0-9.]+)$", text, re.MULTILINE)
        assert found is not None, name
        assert float(found[1]) >= least, name


def test_the_lines_are_json_where_that_is_asked_for(guarded: Callable[..., Guarded]) -> None:
    site = guarded("user guest\ntopic read #\n")
    site.config.write_text(site.config.read_text() + '[log]\nformat = "json"\n')
    site.reload("reloaded certificates")
    guest = site.enter("guest", 'g" x=1')
    guest.publish("closed/door", b"1", qos=1, check=False)
    document = json.loads(lines(site, "publish denied", 1)[0])
    assert document["level"] == "info"
    assert (document["client_id"], document["username"], document["topic"]) == ('g" x=1', "guest", "closed/door")


def test_a_client_that_is_denied_a_thousand_times_does_not_fill_the_disk(guarded: Callable[..., Guarded]) -> None:
    site = guarded("user guest\ntopic read #\n")
    guest = site.enter("guest")
    for _ in range(20):
        guest.send(b"".join(wire.publish("closed", b"1", version=5) for _ in range(50)))
    guest.ping()

    def counted() -> int:
        found = lines(site, "publish denied", 1) + lines(site, "left out", 0)
        told = [line for line in found if " publish denied " in line]
        return len(told) + sum(int(number) for number in re.findall(r"left_out=(\d+)", "\n".join(found)))

    until(counted, lambda count: count >= 1000, PATIENCE_S)
    assert counted() == 1000
    assert len(lines(site, "publish denied", 1)) < 100


def test_a_name_is_not_taken_unproven_where_users_are_known_by_certificate_alone(
    start_broker: Start, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("localhost", "server")
    rules = [{"permission": "allow", "action": "all", "filter": "secure/#", "user": "alice"}]
    broker = start_broker(
        listen=["tls://127.0.0.1:0?require_client_certificate=true", "tcp://127.0.0.1:0"],
        tls__cert=cert,
        tls__key=key,
        tls__ca=authority.ca,
        access=json.dumps(rules),
        history__enable=False,
    )
    context = authority.trusting(authority.issue("alice", "client"))
    raw = socket.create_connection(("127.0.0.1", broker.ports["tls"]), PATIENCE_S)
    with WireClient(0, 5, sock=context.wrap_socket(raw, server_hostname="localhost")) as alice:
        alice.connect("plc", clean=False, properties=[(wire.P.SESSION_EXPIRY, 600)])
        alice.subscribe("secure/#")
    liar = broker.client(5)
    assert liar.connect("plc", username="alice", clean=False, check=False).code == 0x85, "it is not hers to take over"
    liar = broker.client(5)
    liar.connect("other", username="alice")
    assert liar.publish("secure/x", b"1", qos=1, check=False).reason == 0x87  # type: ignore[union-attr]
    broker.wait_output('client_id=other username=""', PATIENCE_S)


def test_the_addresses_of_one_ipv6_network_are_banned_together(start_broker: Start, tmp_path: Path) -> None:
    """As a balancer tells them: who has one of these addresses has them all."""
    broker = start_broker(
        listen=["tcp://127.0.0.1:0?proxy=127.0.0.1"],
        auth__password_file=write_password_file(tmp_path / "users", {"ann": "ann's"}),
        bans__failures=2,
        bans__exempt="[]",
        history__enable=False,
    )

    def code(host: str, password: bytes) -> int:
        with broker.client(5) as client:
            header = f"PROXY TCP6 {host} 2001:db8::ffff 40000 1883\r\n".encode()
            try:
                client.send(header + wire.connect("c", version=5, username="ann", password=password))
                return client.expect(ConnAck, timeout=PATIENCE_S).code
            except (OSError, AssertionError):
                return -1

    assert [code(f"2001:db8::{number}", b"guess") for number in (1, 2)] == [0x86, 0x86]
    assert code("2001:db8::3", b"ann's") == -1
    assert code("2001:db8:0:1::3", b"ann's") == 0


def test_an_ipv6_listener_asks_and_bans_like_any_other(start_broker: Start, tmp_path: Path) -> None:
    broker = start_broker(
        listen=["tcp://[::1]:0"],
        auth__password_file=write_password_file(tmp_path / "users", {"ann": "ann's"}),
        bans__failures=1,
        bans__exempt="[]",
        history__enable=False,
    )

    def client() -> WireClient:
        return WireClient(0, 5, sock=socket.create_connection(("::1", broker.port), PATIENCE_S))

    with client() as good:
        good.connect("good", username="ann", password=b"ann's", timeout=PATIENCE_S)
        with client() as bad:
            assert bad.connect("bad", username="ann", password=b"guess", check=False, timeout=PATIENCE_S).code == 0x86
        with client() as late:
            assert late.drain_until_closed(PATIENCE_S) == []
        good.ping()
    broker.wait_output("login failed client_id=bad username=ann address=[::1]:", PATIENCE_S)
