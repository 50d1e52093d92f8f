"""`holdfast import` from files that mosquitto itself wrote, from live brokers and from EMQX's API, and a broker on the
result: clients find their messages, their sessions and their passwords.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from broker_process import BrokerProcess
from command_line import Done, holdfast, holdfast_process
from holdfast.broker.topics import matches
from holdfast.client.endpoint import TlsOptions
from holdfast.config import load
from holdfast.errors import UsageError
from holdfast.from_settings import access_rules
from holdfast.identity.passwords import PasswordFile
from holdfast.migration.live_broker import LiveBroker, Patience
from holdfast.migration.mosquitto_db import read_file
from holdfast.protocol.mqtt.packets import SUBACK, ConnAck, Publish, SubAck, Subscribe
from http_api import LISTEN, Api
from mosquitto_files import DbWriter, PersistentMosquitto
from password_file import write_password_file
from ports import free_port
from scripted_server import Visit
from wire import P, PubRec, PubRel, WireClient
from wire import Publish as WirePublish
from wire_packets import pubrec, pubrel

PROPERTIES = [
    (P.PAYLOAD_FORMAT, 1),
    (P.CONTENT_TYPE, "text/plain"),
    (P.RESPONSE_TOPIC, "answers/1"),
    (P.CORRELATION_DATA, b"\x00\xff"),
    (P.USER_PROPERTY, ("unit", "°C")),
    (P.USER_PROPERTY, ("unit", "again")),
]


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[PersistentMosquitto]:
    running = PersistentMosquitto(tmp_path / "mosquitto", "allow_anonymous true", "max_queued_messages 0")
    yield running
    running.stop()


def client_of(port: int, client_id: str, version: int = 4, **fields: Any) -> WireClient:
    client = WireClient(port, version)
    client.connect(client_id, **fields)
    return client


def fill(port: int) -> None:
    """Retained messages of every QoS, with and without what MQTT 5 adds."""
    with client_of(port, "publisher", 5, username="bob") as client:
        for qos in (0, 1, 2):
            client.publish(f"home/{qos}", f"value {qos}".encode(), qos=qos, retain=True)
        client.publish("home/rich", b"\x00\x01\xff", qos=1, retain=True, properties=PROPERTIES)
        client.publish("home/short", b"x", qos=1, retain=True, properties=[(P.MESSAGE_EXPIRY, 100_000)])
        client.publish("größe/°", "ü".encode(), qos=1, retain=True)
        client.publish("large", b"L" * 200_000, qos=1, retain=True)
        client.publish("cleared", b"x", qos=1, retain=True)
        client.publish("cleared", b"", qos=1, retain=True)


def snapshot(port: int, count: int) -> dict[str, tuple[Any, ...]]:
    """What a new subscriber is sent, all fields of it."""
    with client_of(port, "looking", 5) as client:
        client.subscribe(("#", 2))
        found = {}
        for message in client.messages(count):
            kept = [one for one in message.properties or [] if one[0] != P.MESSAGE_EXPIRY]
            expiry = [one[1] for one in message.properties or [] if one[0] == P.MESSAGE_EXPIRY]
            assert all(90_000 < seconds <= 100_000 for seconds in expiry)
            found[message.topic] = (message.payload, message.qos, message.retain, kept, bool(expiry))
        client.expect_nothing()
    return found


def imported(*words: object) -> dict[str, Any]:
    done = holdfast_process("import", *map(str, words), "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_retained_messages_that_mosquitto_wrote_come_with_all_their_fields(
    mosquitto: PersistentMosquitto, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    fill(mosquitto.port)
    before = snapshot(mosquitto.port, 7)
    db = mosquitto.stop()
    data = tmp_path / "data"
    dry = imported(db, "--data", data, "--dry-run")
    assert dry["kinds"]["retained messages"]["imported"] == 7
    assert not data.exists()
    assert imported(db, "--data", data)["kinds"]["retained messages"]["imported"] == 7
    again = imported(db, "--data", data)
    assert again["kinds"]["retained messages"] == {"imported": 0, "same": 7, "other": 0, "refused": 0, "left": {}}
    broker = start_broker(data=data)
    assert snapshot(broker.port, 7) == before


def test_sessions_that_mosquitto_wrote_are_resumed_with_their_queues(
    mosquitto: PersistentMosquitto, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    port = mosquitto.port
    plain = client_of(port, "plain", clean=False)
    plain.subscribe(("q/#", 2))
    plain.disconnect()
    five = client_of(port, "five", 5, clean=False, properties=[(P.SESSION_EXPIRY, 50_000)])
    five.subscribe(("q/+", 1), properties=[(P.SUBSCRIPTION_ID, 7)])
    five.disconnect()
    pending = client_of(port, "pending", clean=False)
    pending.subscribe(("q/1", 2), ("q/2", 2))
    with client_of(port, "publisher", 5) as publisher:
        publisher.publish("q/1", b"one", qos=1, properties=PROPERTIES)
        publisher.publish("q/2", b"two", qos=2)
        publisher.publish("q/2", b"zero", qos=0)
    # One message is left unacknowledged, of the other the receipt has been sent and not answered.
    first, second, *_ = pending.messages(3, ack=False)
    assert second.packet_id is not None
    pending.send(pubrec(second.packet_id))
    pending.expect(PubRel, packet_id=second.packet_id)
    pending.cut()
    db = mosquitto.stop()
    data = tmp_path / "data"
    kinds = imported(db, "--data", data)["kinds"]
    assert kinds["sessions"]["imported"] == 3
    assert kinds["subscriptions"]["imported"] == 4
    again = imported(db, "--data", data)["kinds"]
    assert (again["sessions"]["imported"], again["sessions"]["same"]) == (0, 3)
    broker = start_broker(data=data)
    with WireClient(broker.port, 4) as client:
        assert client.connect("plain", clean=False).session_present
        assert [(m.topic, m.payload, m.qos, m.dup) for m in client.messages(2)] == [
            ("q/1", b"one", 1, False),
            ("q/2", b"two", 2, False),
        ]
        with client_of(broker.port, "new") as publisher:
            publisher.publish("q/more", b"live", qos=2)
        assert [(m.payload, m.qos) for m in client.messages(1)] == [(b"live", 2)]
    with WireClient(broker.port, 5) as client:
        assert client.connect("five", clean=False, properties=[(P.SESSION_EXPIRY, 50_000)]).session_present
        got = client.messages(3)
        assert [(m.payload, m.qos) for m in got] == [(b"one", 1), (b"two", 1), (b"live", 1)]
        assert list(got[0].properties or []) == [(P.SUBSCRIPTION_ID, 7), *PROPERTIES]
    with WireClient(broker.port, 4) as client:
        assert client.connect("pending", clean=False).session_present
        resent = client.expect(WirePublish)
        assert (resent.payload, resent.dup, resent.packet_id) == (b"one", True, first.packet_id)
        client.ack(resent)
        client.expect(PubRel, packet_id=second.packet_id)


def test_users_and_rules_of_mosquitto_hold_without_new_passwords(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    subprocess.run(["mosquitto_passwd", "-b", "-c", "passwd", "alice", "wonderland"], cwd=folder, check=True)
    (folder / "acl").write_text("user alice\ntopic readwrite home/#\n")
    (folder / "mosquitto.conf").write_text(
        "listener 1883 127.0.0.1\npersistence true\nallow_anonymous false\npassword_file passwd\nacl_file acl\n"
        "log_dest syslog\n"
    )
    config = tmp_path / "holdfast.toml"
    done = holdfast("import", str(folder / "mosquitto.conf"), "--output", str(config))
    assert done.returncode == 0, done.stderr
    assert "log_dest syslog" in done.stdout
    assert "nothing was changed" in holdfast("import", str(folder / "mosquitto.conf"), "-o", str(config)).stdout
    broker = start_broker(args=["--config", str(config)])
    with WireClient(broker.port, 4) as client:
        assert client.connect("c", username="alice", password=b"wonderland").code == 0
        client.subscribe(("home/#", 1))
        client.publish("garden/x", b"hidden", qos=1)
        client.publish("home/x", b"seen", qos=1)
        assert [m.payload for m in client.messages(1)] == [b"seen"]
    with WireClient(broker.port, 4) as stranger:
        assert stranger.connect("d", username="alice", password=b"guess", check=False).code == 4


def test_a_bridge_of_mosquitto_goes_on_past_the_rules_that_never_applied_to_it(
    mosquitto: PersistentMosquitto, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    (tmp_path / "acl").write_text("topic write home/#\ntopic read cmd/#\n")
    (tmp_path / "mosquitto.conf").write_text(
        "listener 1883 127.0.0.1\npersistence true\nallow_anonymous true\nacl_file acl\n"
        f"connection cloud\naddress 127.0.0.1:{mosquitto.port}\ntopic home/# out 1\ntopic cmd/# in 1\n"
    )
    config = tmp_path / "holdfast.toml"
    assert holdfast("import", str(tmp_path / "mosquitto.conf"), "--output", str(config)).returncode == 0
    broker = start_broker(args=["--config", str(config)])
    broker.wait_output("bridge synchronised")
    with client_of(mosquitto.port, "there") as there, client_of(broker.port, "here") as here:
        there.subscribe(("home/#", 1))
        here.publish("home/a", b"out", qos=1)
        assert [m.payload for m in there.messages(1)] == [b"out"]
        here.subscribe(("cmd/#", 1))
        there.publish("cmd/a", b"in", qos=1)
        assert [m.payload for m in here.messages(1)] == [b"in"]


def test_a_file_that_mosquitto_made_itself_lets_its_administrator_in(tmp_path: Path) -> None:
    program = shutil.which("mosquitto_ctrl")
    if program is None:
        pytest.skip("mosquitto_ctrl is not installed")
    source, config = tmp_path / "dynamic-security.json", tmp_path / "holdfast.toml"
    subprocess.run([program, "dynsec", "init", str(source), "admin", "secret"], check=True, capture_output=True)
    done = holdfast("import", str(source), "--output", str(config))
    assert done.returncode == 0, done.stderr
    settings = load(config, environ={}).settings
    assert settings.auth.password_file is not None
    assert PasswordFile(settings.auth.password_file).check("admin", b"secret")
    access = access_rules(settings)
    assert access is not None
    assert access.may_receive("admin", "c", [b"anything"], False)
    assert not access.may_receive("stranger", "c", [b"anything"], False)


def test_a_session_belongs_to_its_user_and_is_resumed_by_them_alone(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    folder = tmp_path / "mosquitto"
    folder.mkdir()
    for flags, name in (["-c"], "alice"), ([], "eve"):
        subprocess.run(["mosquitto_passwd", "-b", *flags, "passwd", name, "secret"], cwd=folder, check=True)
    running = PersistentMosquitto(folder, "allow_anonymous false", f"password_file {folder}/passwd")
    with client_of(running.port, "phone", clean=False, username="alice", password=b"secret") as client:
        client.subscribe(("q", 1))
        client.disconnect()
    with client_of(running.port, "publisher", username="eve", password=b"secret") as client:
        client.publish("q", b"for alice", qos=1)
    db = running.stop()
    data, config = tmp_path / "data", tmp_path / "holdfast.toml"
    imported(db, "--data", data)
    imported(folder / "passwd", "--output", config)
    broker = start_broker(data=data, args=["--config", str(config)])
    with WireClient(broker.port, 4) as client:
        assert client.connect("phone", clean=False, username="eve", password=b"secret", check=False).code != 0
    with WireClient(broker.port, 4) as client:
        assert client.connect("phone", clean=False, username="alice", password=b"secret").session_present
        assert [m.payload for m in client.messages(1)] == [b"for alice"]


def test_a_message_handed_over_at_qos_2_and_not_released_is_delivered_once(
    mosquitto: PersistentMosquitto, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    with client_of(mosquitto.port, "waiting", clean=False) as client:
        client.subscribe(("in", 2))
        client.disconnect()
    sender = client_of(mosquitto.port, "sender", clean=False)
    packet_id = sender.send_publish("in", b"half", qos=2)
    assert packet_id is not None
    sender.expect(PubRec, packet_id=packet_id)
    sender.cut()
    db = mosquitto.stop()
    data = tmp_path / "data"
    imported(db, "--data", data)
    broker = start_broker(data=data)
    with WireClient(broker.port, 4) as client:
        assert client.connect("sender", clean=False).session_present
        client.send_publish("in", b"half", qos=2, packet_id=packet_id, dup=True)
        client.expect(PubRec, packet_id=packet_id)
        client.send(pubrel(packet_id))
        client.ping()
    with WireClient(broker.port, 4) as client:
        assert client.connect("waiting", clean=False).session_present
        assert [m.payload for m in client.messages(1)] == [b"half"]
        client.expect_nothing()


def test_names_that_mosquitto_mixed_up_are_not_believed(mosquitto: PersistentMosquitto) -> None:
    """2.0.11 writes the last user's name for clients that have none; what can be known of it is."""
    for number, username in enumerate(["alice", None, None]):
        fields: dict[str, Any] = {} if username is None else {"username": username}
        with client_of(mosquitto.port, f"c{number}", clean=False, **fields) as client:
            client.subscribe(("q", 1))
    found = read_file(mosquitto.stop(), None, time.time_ns() // 1_000_000)
    assert found.damage == []
    owners = {name: session.owner for name, session in found.sessions.items()}
    assert owners["c0"] == "alice"
    assert owners["c1"] == ""
    assert owners.get("c2", "") == ""


def test_a_live_broker_is_copied_into_a_running_one(
    mosquitto: PersistentMosquitto, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    fill(mosquitto.port)
    before = snapshot(mosquitto.port, 7)
    broker = start_broker(listen=LISTEN, data=tmp_path / "data")
    url = f"http://127.0.0.1:{broker.ports['http']}"
    with Api(broker) as api:
        api.set("home/1", "mine")
    source = f"mqtt://127.0.0.1:{mosquitto.port}"
    first = holdfast("import", source, "--url", url, "--json")
    assert first.returncode == 1, "something else was in the place of one"
    tally = json.loads(first.stdout)["kinds"]["retained messages"]
    assert (tally["imported"], tally["other"], tally["refused"]) == (6, 1, 0)
    second = holdfast("import", source, "--url", url, "--replace", "--json")
    assert second.returncode == 0, second.stderr
    tally = json.loads(second.stdout)["kinds"]["retained messages"]
    assert (tally["imported"], tally["same"]) == (1, 6)
    assert snapshot(broker.port, 7) == before


def test_a_live_broker_is_copied_over_mqtt_too(
    mosquitto: PersistentMosquitto, start_broker: Callable[..., BrokerProcess]
) -> None:
    fill(mosquitto.port)
    broker = start_broker()
    done = holdfast(
        "import", f"mqtt://127.0.0.1:{mosquitto.port}", "--url", f"mqtt://127.0.0.1:{broker.port}", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kinds"]["retained messages"]["imported"] == 7
    assert snapshot(broker.port, 7) == snapshot(mosquitto.port, 7)


def test_queue_limits_of_a_live_broker_cut_nothing(tmp_path: Path) -> None:
    """mosquitto drops retained messages at QoS 1 and 2 beyond what a client may have waiting."""
    running = PersistentMosquitto(tmp_path / "m", "allow_anonymous true", "max_queued_messages 10")
    with client_of(running.port, "publisher") as client:
        for number in range(150):
            client.publish(f"many/{number}", b"%d" % number, qos=number % 3, retain=True)
    broker = live(running.port, Patience(quiet_s=2.0, passes=20))
    found = asyncio.run(broker.retained())
    running.stop()
    assert {topic: (m.payload, m.qos) for topic, m in found.items()} == {
        b"many/%d" % number: (b"%d" % number, number % 3) for number in range(150)
    }


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[int]:
    """The port of a NATS server that speaks MQTT 3.1.1."""
    program = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip("nats-server is not installed")
    port = free_port()
    config = tmp_path / "nats.conf"
    config.write_text(
        f'server_name: old\nlisten: "127.0.0.1:-1"\njetstream {{ store_dir: "{tmp_path}/jetstream" }}\n'
        f'mqtt {{ listen: "127.0.0.1:{port}" }}\n'
    )
    running = BrokerProcess([program, "-c", str(config)], os.environ, tmp_path)
    running.wait_output("Server is ready")
    yield port
    running.stop()


def test_retained_messages_come_from_nats(nats: int, tmp_path: Path) -> None:
    with client_of(nats, "publisher") as client:
        for number in range(30):
            client.publish(f"site/{number % 3}/{number}", b"%d" % number, qos=number % 2, retain=True)
    result = imported(f"mqtt://127.0.0.1:{nats}", "--data", tmp_path / "data")
    assert result["kinds"]["retained messages"]["imported"] == 30
    assert any("does not speak MQTT 5" in note for note in result["notes"])
    assert sorted(listed(tmp_path / "data")) == sorted(f"site/{number % 3}/{number}" for number in range(30))


def live(port: int, patience: Patience) -> LiveBroker:
    return LiveBroker(f"mqtt://127.0.0.1:{port}", patience, TlsOptions(), lambda: 1_700_000_000_000)


class CuttingBroker:
    """A broker of MQTT 3.1.1 that sends no more than so many retained messages for a filter, always the same ones."""

    def __init__(self, topics: list[str], most: int) -> None:
        self.topics = [topic.encode() for topic in topics]
        self.most = most
        self.port = 0

    async def __aenter__(self) -> CuttingBroker:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        await self.server.wait_closed()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = Visit(reader, writer)
        try:
            connect = await visit.next()
            assert connect is not None
            if visit.version == 5:
                visit.version = 4
                visit.send(ConnAck(False, 1))
                return
            visit.send(ConnAck(False, 0))
            while (packet := await visit.next()) is not None:
                if isinstance(packet, Subscribe):
                    visit.send(SubAck(SUBACK, packet.packet_id, [0] * len(packet.requests)))
                    for request in packet.requests:
                        levels = request.topic_filter.split(b"/")
                        found = [topic for topic in self.topics if matches(levels, topic.split(b"/"))]
                        visit.send(*(Publish(topic, topic, 0, True) for topic in found[: self.most]))
                elif packet.kind == 14:  # DISCONNECT
                    return
        finally:
            writer.close()


def test_a_broker_that_always_cuts_at_the_same_place_is_found_out() -> None:
    async def ask(walk: bool) -> set[bytes]:
        topics = [f"site/{site}/{device}" for site in range(5) for device in range(4)] + ["a", "b/c"]
        async with CuttingBroker(topics, 8) as broker:
            found = await live(broker.port, Patience(0.5, 4, walk)).retained()
        assert len(found) == len(topics)
        return set(found)

    with pytest.raises(UsageError, match="--walk"):
        asyncio.run(ask(False))


def test_walking_the_tree_brings_what_a_broker_cuts_off() -> None:
    async def ask() -> set[bytes]:
        async with CuttingBroker([f"site/{one}/{two}" for one in range(3) for two in range(3)], 4) as broker:
            return set(await live(broker.port, Patience(0.5, 20, True)).retained())

    assert asyncio.run(ask()) == {b"site/%d/%d" % (one, two) for one in range(3) for two in range(3)}


class FakeEmqx(BaseHTTPRequestHandler):
    """EMQX's API, as its documentation has it: a page of summaries, and a message with its payload."""

    messages: dict[str, tuple[bytes | None, int]] = {}
    asked: list[str] = []

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.asked.append(self.path)
        if self.headers["Authorization"] != "Basic " + base64.b64encode(b"name:secret").decode():
            self.answer(401, {"code": "BAD_API_KEY_OR_SECRET", "message": "Check api_key/api_secret"})
        elif url.path == "/api/v5/mqtt/retainer/messages":
            query = parse_qs(url.query)
            page, limit = int(query["page"][0]), min(int(query["limit"][0]), 4)
            rows = list(self.messages)[(page - 1) * limit : page * limit]
            data = [self.summary(topic) for topic in rows]
            meta = {
                "page": page,
                "limit": limit,
                "hasnext": page * limit < len(self.messages),
                "count": len(self.messages),
            }
            self.answer(200, {"data": data, "meta": meta})
        elif url.path.startswith("/api/v5/mqtt/retainer/message/"):
            topic = unquote(url.path.removeprefix("/api/v5/mqtt/retainer/message/"))
            payload, _ = self.messages[topic]
            detail = self.summary(topic)
            if payload is not None:
                detail["payload"] = base64.b64encode(payload).decode()
            self.answer(200, detail)
        else:
            self.answer(404, {"code": "NOT_FOUND", "message": "Request Path Not Found"})

    def summary(self, topic: str) -> dict[str, Any]:
        return {
            "msgid": "000611F460D57FA9F44500000D360002",
            "topic": topic,
            "qos": self.messages[topic][1],
            "publish_at": "2026-11-16T12:00:00.000+00:00",
            "from_clientid": "sensor",
            "from_username": "",
        }

    def answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def emqx() -> Iterator[str]:
    FakeEmqx.messages = {f"site/{number}/größe?": (b"\x00%d" % number, number % 3) for number in range(9)}
    FakeEmqx.messages["too/large"] = (None, 0)
    FakeEmqx.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeEmqx)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_retained_messages_come_from_emqx_page_by_page(emqx: str, tmp_path: Path) -> None:
    result = imported(emqx, "--from-key", "name:secret", "--data", tmp_path / "data")
    tally = result["kinds"]["retained messages"]
    assert tally["imported"] == 9
    assert list(tally["left"].values()) == [1]
    done = holdfast_process("retained", "export", "--data", str(tmp_path / "data"))
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["topic"]: (base64.b64decode(row["payload"]), row["qos"]) for row in rows} == {
        topic: given for topic, given in FakeEmqx.messages.items() if given[0] is not None
    }


def test_a_wrong_key_of_emqx_is_said_in_one_line(emqx: str, tmp_path: Path) -> None:
    done = holdfast("import", emqx, "--from-key", "name:wrong", "--data", str(tmp_path / "data"))
    assert done.returncode == 1
    assert "refuses the API key" in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_broker_of_our_own_answers_as_emqx_does(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = start_broker(listen=LISTEN, data=tmp_path / "old")
    with Api(broker) as api:
        for number in range(5):
            api.set(f"a/{number}", str(number))
    url = f"http://127.0.0.1:{broker.ports['http']}"
    result = imported(url, "--from-key", "any:thing", "--data", tmp_path / "new")
    assert result["kinds"]["retained messages"]["imported"] == 5


def test_a_damaged_file_brings_what_is_whole_and_exits_with_1(tmp_path: Path) -> None:
    writer = DbWriter(6)
    for number in range(3):
        writer.message(number, f"t/{number}", b"x", retain=True)
        writer.retained(number)
    writer.chunks[3] = b"\xff" * len(writer.chunks[3])
    db = tmp_path / "mosquitto.db"
    db.write_bytes(writer.data())
    done = holdfast_process("import", str(db), "--data", str(tmp_path / "data"))
    assert done.returncode == 1
    assert "damaged: bytes" in done.stderr
    assert len(listed(tmp_path / "data")) == 2


def listed(data: Path) -> list[str]:
    done = holdfast_process("retained", "ls", "--data", str(data), "--json")
    return [json.loads(line)["topic"] for line in done.stdout.splitlines()]


def test_sessions_are_left_to_an_offline_import_where_the_broker_runs(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    writer = DbWriter(6)
    writer.message(1, "t", b"x", retain=True)
    writer.retained(1)
    writer.client("c")
    writer.subscription("c", "q", 1)
    db = tmp_path / "mosquitto.db"
    db.write_bytes(writer.data())
    broker = start_broker(listen=LISTEN, data=tmp_path / "data")
    done = holdfast("import", str(db), "--url", f"http://127.0.0.1:{broker.ports['http']}")
    assert done.returncode == 0, done.stderr
    assert "--data" in done.stdout
    offline = holdfast_process("import", str(db), "--data", str(tmp_path / "data"))
    assert offline.returncode == 1
    assert "--url" in offline.stderr


def test_a_user_brings_what_they_have_a_right_to(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    writer = DbWriter(6)
    for number, topic in enumerate(["garden/a", "home/a", "home/b", "hidden/b"]):
        writer.message(number, topic, b"x", retain=True)
        writer.retained(number)
    db = tmp_path / "mosquitto.db"
    db.write_bytes(writer.data())
    (tmp_path / "access").write_text("user alice\ntopic readwrite home/#\n")
    passwords = write_password_file(tmp_path / "passwords", {"alice": "wonderland"})
    broker = start_broker(listen=LISTEN, auth__password_file=passwords, auth__access_file=tmp_path / "access")
    urls = {"http": f"http://127.0.0.1:{broker.ports['http']}", "mqtt": f"mqtt://127.0.0.1:{broker.port}"}
    for url, (came, there) in zip(urls.values(), [(2, 0), (0, 2)], strict=True):
        done = holdfast("import", str(db), "--url", url, "--key", "alice:wonderland", "--json")
        assert done.returncode == 1, done.stderr
        tally = json.loads(done.stdout)["kinds"]["retained messages"]
        assert (tally["imported"], tally["same"], tally["refused"]) == (came, there, 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.db"], "no such file"),
        (["http://127.0.0.1:1"], "--from-key"),
        (["mqtt://127.0.0.1:1"], "refused"),
        (["."], "is a folder"),
    ],
)
def test_a_source_that_cannot_be_read_is_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    done: Done = holdfast("import", *words, "--data", str(tmp_path / "data"))
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
