"""What a caller of the API learns and does beyond their rights: by an open channel, the past, cursors, names of others,
an API that nobody closed, or a token that cannot be taken back.
"""

import base64
import json
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker_process import BrokerProcess, start_holdfast
from certificates import Authority
from http_api import LISTEN, Api, until
from password_file import write_password_file
from wire import P
from wire_websocket import TEXT, WebSocket

pytest.importorskip("fastapi", reason="the API comes with holdfast-mqtt[ui], which is not installed")

Start = Callable[..., BrokerProcess]
USERS = {"bob": "b", "mallory": "m", "anna": "a"}
BOB, MALLORY, ANNA = USERS.items()
KEY = ("ops", "open sesame")
PATIENCE_S = 60.0

RULES = """
[[access]]
permission = "allow"
action = ["subscribe", "receive"]
filter = "public/#"
user = "bob"

[[access]]
permission = "allow"
action = "all"
filter = ["public/#", "secret/#"]
user = "mallory"

[[access]]
permission = "allow"
action = ["publish", "retain"]
filter = "low/#"
user = "anna"
qos = 0
"""
WITHOUT_BOB = RULES.replace('user = "bob"', 'user = "nobody"')
WITHOUT_MALLORY = RULES.replace('user = "mallory"', 'user = "nobody"')


class World:
    """A broker with users, a key, rules in a file that can change, and a history."""

    def __init__(self, folder: Path) -> None:
        self.users = write_password_file(folder / "users", USERS)
        self.config = folder / "holdfast.toml"
        self.config.write_text(RULES)
        settings = {
            "auth.password_file": self.users,
            "api.key_file": write_password_file(folder / "keys", dict([KEY])),
            "history.flush_interval": "100ms",
        }
        self.channels: list[WebSocket] = []
        self.broker = start_holdfast(folder / "data", settings, listen=LISTEN, args=("--config", str(self.config)))

    def api(self, who: tuple[str, str] | None = None, **options: Any) -> Api:
        return Api(self.broker, auth=who, **options)

    def change(self, rules: str) -> None:
        self.config.write_text(rules)
        before = self.broker.output.count("reloaded")
        self.broker.signal(signal.SIGHUP)
        until(lambda: self.broker.output.count("reloaded"), lambda now: now > before, PATIENCE_S)

    def live(self, headers: dict[str, str]) -> WebSocket:
        channel = WebSocket(self.broker.ports["http"], path="/api/v1/live", subprotocols=(), headers=headers)
        self.channels.append(channel)
        assert channel.status == 101
        channel.settimeout(PATIENCE_S)
        return channel

    def stop(self) -> None:
        for channel in self.channels:
            channel.close()
        self.broker.stop()
        assert "Traceback" not in self.broker.output, self.broker.output


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.stop()


def basic(who: tuple[str, str]) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(":".join(who).encode()).decode()}


def watch(channel: WebSocket, *topics: str) -> None:
    channel.send_frame(TEXT, json.dumps({"topics": topics}).encode())


def messages_on(channel: WebSocket) -> Iterator[dict[str, Any]]:
    """What the channel tells of, message by message, until it is closed from the other side, which has a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while payload := channel.recv():
        yield from json.loads(payload).get("messages", [])
        assert time.monotonic() < deadline, "the channel goes on"


@pytest.mark.parametrize("rules", [RULES, WITHOUT_BOB])
def test_the_live_channel_of_a_user_who_was_removed_ends_and_tells_nothing_more(world: World, rules: str) -> None:
    with world.api(KEY) as api:
        api.set("public/plan", "v1")
        channel = world.live(basic(BOB))
        watch(channel, "public/plan", "public/next")
        assert next(messages_on(channel))["topic"] == "public/plan"
        write_password_file(world.users, {name: USERS[name] for name in USERS if name != "bob"})
        world.change(rules)
        api.set("public/next", "after bob was removed")
        assert list(messages_on(channel)) == []
        assert channel.close_code == 4401


def test_no_user_can_take_all_live_channels(world: World) -> None:
    from holdfast.api.live import CHANNELS_OF_ONE

    for _ in range(CHANNELS_OF_ONE):
        world.live(basic(BOB))
    refused = WebSocket(world.broker.ports["http"], path="/api/v1/live", subprotocols=(), headers=basic(BOB))
    assert refused.status == 403
    refused.close()
    watch(world.live(basic(MALLORY)), "public/plan")
    world.channels[0].close()
    until(lambda: can_watch(world, BOB), bool, PATIENCE_S)


def can_watch(world: World, who: tuple[str, str]) -> bool:
    channel = WebSocket(world.broker.ports["http"], path="/api/v1/live", subprotocols=(), headers=basic(who))
    world.channels.append(channel)
    return channel.status == 101


def test_the_live_channel_of_a_login_ends_with_the_login(world: World) -> None:
    with world.api(KEY) as api, world.api() as bob:
        bob.ok("POST", "/api/v1/login", json=dict(zip(("username", "password"), BOB, strict=True)))
        channel = world.live({"Cookie": f"holdfast={bob.cookies['holdfast']}"})
        watch(channel, "public/plan")
        assert bob.post("/api/v1/logout").status_code == 204
        api.set("public/plan", "v1")
        assert list(messages_on(channel)) == []
        assert channel.close_code == 4401


def test_what_its_publisher_has_lost_the_right_to_is_neither_live_nor_in_the_past(world: World) -> None:
    with world.api(KEY) as api, world.api(MALLORY) as mallory, world.api(BOB) as bob:
        mallory.set("public/evil", "phishing")
        api.set("public/good", "fine")
        api.history("public/good", 1)
        at_ms = int(time.time() * 1000)
        past = {"at_ms": at_ms, "filter": "public/#"}
        one: dict[str, Any] = {"at_ms": at_ms, "topic": "public/evil"}
        assert {m["topic"] for m in all_at(bob, **past)} == {"public/evil", "public/good"}
        assert bob.get("/api/v1/retained/message", params=one).status_code == 200
        world.change(WITHOUT_MALLORY)
        channel = world.live(basic(BOB))
        watch(channel, "public/evil", "public/good")  # told in this order, where both are told
        assert next(messages_on(channel))["topic"] == "public/good"
        assert [m["topic"] for m in all_at(bob, **past)] == ["public/good"]
        assert all_at(bob, at_ms=at_ms, filter="public/evil") == []
        assert bob.get("/api/v1/retained/message", params=one).status_code == 404
        restored = {"filter": "public/#", "at_ms": at_ms}
        assert bob.ok("POST", "/api/v1/retained/restore", json=restored)["present"] == 1
        assert len(all_at(api, **past)) == 2  # an administrator sees what there was


def all_at(api: Api, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = api.ok("GET", "/api/v1/retained/at", params=query)
        found += page["messages"]
        if page["next"] is None:
            return found
        query["after"] = page["next"]


def test_a_cursor_does_not_tell_what_lies_beyond_ones_rights(world: World) -> None:
    with world.api(KEY) as api, world.api(BOB) as bob:
        api.set_many(["public/hello", "public/zoo", "secret/layoffs/2027", "secret/merger", "zebra/last"])
        api.history("zebra/last", 1)
        query: dict[str, Any] = {"at_ms": int(time.time() * 1000), "limit": 1}
        seen: list[str] = []
        cursors: list[str] = []
        while True:
            page = bob.ok("GET", "/api/v1/retained/at", params=query)
            seen += [message["topic"] for message in page["messages"]]
            if page["next"] is None:
                break
            query["after"] = page["next"]
            cursors.append(page["next"])
        assert seen == ["public/hello", "public/zoo"]
        assert cursors
        for cursor in cursors:
            readable = cursor.encode() + base64.urlsafe_b64decode(cursor + "==")
            assert not any(word in readable for word in (b"public", b"secret", b"layoffs", b"merger", b"zebra"))
        # It is good for nobody else, nowhere else, and cannot be made up.
        stolen = {**query, "after": cursors[0]}
        assert api.get("/api/v1/retained/at", params=stolen).status_code == 410
        assert bob.get("/api/v1/retained/at", params={**query, "after": "public/hello"}).status_code == 410
        assert api.get("/api/v1/tree", params={"after": cursors[0]}).status_code == 410


def test_qos_conditions_of_rules_hold_for_the_api(world: World) -> None:
    with world.api(ANNA) as anna:
        for path in ("/api/v1/publish", "/api/v5/publish"):
            for qos, status in ((0, 2), (1, 4), (2, 4)):
                body = {"topic": "low/1", "payload": "x", "qos": qos, "retain": True}
                assert anna.post(path, json=body).status_code // 100 == status, (path, qos)
    with world.api(KEY) as api:
        api.set("low/2", qos=1)
    with world.api(ANNA) as anna:
        assert anna.delete("/api/v1/retained/message", params={"topic": "low/2"}).status_code == 403
        assert anna.delete("/api/v1/retained/message", params={"topic": "low/1"}).status_code == 200


def test_who_published_is_told_to_administrators_and_to_oneself(world: World) -> None:
    client = world.broker.client(5)
    client.connect("plc-7", username="mallory", password=b"m")
    client.publish("public/from-plc", b"1", qos=1, retain=True)
    topic = {"topic": "public/from-plc"}

    def everything(api: Api) -> str:
        rows = api.history("public/from-plc", 1)
        at = {"at_ms": int(time.time() * 1000) + 60_000, "filter": "public/#"}
        payload = api.get("/api/v1/retained/message/payload", params=topic)
        answers = [
            api.ok("GET", "/api/v1/retained"),
            api.ok("GET", "/api/v1/retained", params={"payload": True}),
            api.ok("GET", "/api/v1/retained/message", params=topic),
            api.ok("GET", "/api/v1/retained/at", params=at),
            api.ok("GET", "/api/v5/mqtt/retainer/messages"),
            api.ok("GET", "/api/v5/mqtt/retainer/message/public/from-plc"),
            rows,
            dict(payload.headers),
        ]
        return json.dumps(answers)

    with world.api(BOB) as bob, world.api(KEY) as ops, world.api(MALLORY) as mallory:
        for api, shown in ((ops, True), (mallory, True), (bob, False)):
            found = everything(api)
            assert "from-plc" in found
            assert ("plc-7" in found) is shown
            assert ("mallory" in found) is shown
        channel = world.live(basic(BOB))
        watch(channel, "public/from-plc")
        live = json.dumps(next(messages_on(channel)))
        assert "plc-7" not in live
        assert "mallory" not in live
        for guess in ({"client_id": "plc-7"}, {"username": "mallory"}):
            assert bob.get("/api/v1/retained", params=guess).status_code == 403
            assert bob.delete("/api/v1/retained", params={"filter": "#", **guess}).status_code == 403
            assert len(ops.topics(**guess)) == 1
        assert len(mallory.topics(client_id="plc-7", username="mallory")) == 1


def test_client_ids_of_others_are_not_in_the_properties_of_retained_messages(world: World) -> None:
    meta = [(P.USER_PROPERTY, ("holdfast-retained-meta", "on"))]
    publisher = world.broker.client(5)
    publisher.connect("plc-7", username="mallory", password=b"m")
    publisher.publish("public/x", b"1", qos=1, retain=True)
    for name, expected in (("bob", None), ("mallory", "plc-7")):
        reader = world.broker.client(5)
        reader.connect(f"reader-{name}", username=name, password=USERS[name].encode(), properties=meta)
        reader.subscribe("public/#", qos=1)
        [message] = reader.messages(1)
        told = dict(value for key, value in message.properties if key == P.USER_PROPERTY)
        assert told.get("hf-publisher") == expected
        assert {"hf-offset", "hf-stored-at"} <= set(told)


def bearer(api: Api, path: str = "/api/v5/login") -> dict[str, str]:
    token = api.ok("POST", path, json={"username": "bob", "password": "b"})["token"]
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("logout", ["/api/v5/logout", "/api/v1/logout"])
def test_a_bearer_token_can_be_taken_back(world: World, logout: str) -> None:
    with world.api() as api:
        one, other = bearer(api), bearer(api)
        assert api.get("/api/v1/retained", headers=one).status_code == 200
        assert api.post(logout, headers=one).status_code == 204
        assert api.get("/api/v1/retained", headers=one).status_code == 401
        assert api.get("/api/v1/retained", headers=other).status_code == 200


def test_a_user_who_is_banned_while_logged_in_is_out(world: World) -> None:
    with world.api() as api, world.api(KEY) as ops:
        token = bearer(api)
        channels = [world.live(token), world.live(basic(BOB))]
        for headers in (token, basic(BOB)):
            assert api.get("/api/v1/retained", headers=headers).status_code == 200
        for channel in channels:
            watch(channel, "public/plan")
        ops.ok("POST", "/api/v5/banned", json={"as": "username", "who": "bob"})
        for headers in (token, basic(BOB)):
            assert api.get("/api/v1/retained", headers=headers).status_code == 401
        for channel in channels:
            assert list(messages_on(channel)) == []
            assert channel.close_code == 4401
        assert api.get("/api/v1/retained", headers=basic(MALLORY)).status_code == 200
        ops.request("DELETE", "/api/v5/banned/username/bob")
        assert api.get("/api/v1/retained", headers=basic(BOB)).status_code == 200


def test_pages_of_other_sites_read_nothing_and_embed_nothing(world: World) -> None:
    with world.api(KEY) as api:
        for site in ("cross-site", "same-site"):
            headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
            for path in ("/api/v1/retained", "/api/v5/clients", "/metrics", "/openapi.json", "/static/main.js"):
                assert api.get(path, headers=headers).status_code == 403, path
            link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
            assert api.get("/", headers=link).status_code == 200
            assert api.get("/api/v1/retained", headers=link).status_code == 403
        answer = api.get("/api/v1/retained", headers={"Sec-Fetch-Site": "same-origin"})
        assert (answer.status_code, answer.headers["cross-origin-resource-policy"]) == (200, "same-origin")


def closed_settings(kind: str, folder: Path) -> tuple[dict[str, Any], str]:
    """Settings by which clients log in and the API cannot, and the listener for MQTT."""
    if kind == "token":
        secret = folder / "secret"
        secret.write_text("0123456789abcdef0123456789abcdef")
        return {"jwt__key_file": secret, "jwt__algorithms": "HS256"}, "tcp://127.0.0.1:0"
    if kind == "callback":
        return {"callback__url": "http://127.0.0.1:9/login"}, "tcp://127.0.0.1:0"
    authority = Authority(folder / "ca")
    certificate, key = authority.issue("localhost", "server")
    settings = {"tls__cert": certificate, "tls__key": key, "tls__ca": authority.ca}
    return {**settings, "tls__require_client_certificate": True}, "tls://127.0.0.1:0"


@pytest.mark.parametrize("kind", ["token", "callback", "certificate"])
def test_an_api_without_keys_answers_nobody_once_clients_log_in(start_broker: Start, tmp_path: Path, kind: str) -> None:
    settings, listen = closed_settings(kind, tmp_path)
    broker = start_broker(listen=(listen, "http://127.0.0.1:0"), history__enable=False, **settings)
    with Api(broker) as api:
        body = {"topic": "alice/door", "payload": "open", "retain": True}
        answer = api.post("/api/v1/publish", json=body)
        assert answer.status_code == 403
        assert "api.key_file" in answer.json()["detail"]
        for path in ("/", "/api/v1/whoami", "/api/v1/retained", "/metrics", "/static/main.js", "/openapi.json"):
            assert api.get(path).status_code == 403, path
        assert api.get("/healthz").status_code == 200
        assert api.get("/readyz").status_code == 200
    assert "holdfast passwd -c FILE NAME" in broker.output
    keys = write_password_file(tmp_path / "keys", dict([KEY]))
    with Api(start_broker(listen=(listen, "http://127.0.0.1:0"), api__key_file=keys, **settings), auth=KEY) as api:
        assert api.get("/api/v1/retained").status_code == 200


def test_a_listener_that_requires_certificates_requires_them_for_the_api_too(
    start_broker: Start, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("localhost", "server")
    keys = write_password_file(tmp_path / "keys", dict([KEY]))
    broker = start_broker(
        listen=("https://127.0.0.1:0",),
        api__key_file=keys,
        tls__cert=certificate,
        tls__key=key,
        tls__ca=authority.ca,
        tls__require_client_certificate=True,
    )
    url = f"https://localhost:{broker.ports['https']}/api/v1/retained"
    bare = ssl.create_default_context(cafile=str(authority.ca))
    with httpx.Client(verify=bare) as client, pytest.raises(httpx.TransportError):
        client.get(url, auth=KEY)
    shown = ssl.create_default_context(cafile=str(authority.ca))
    shown.load_cert_chain(*authority.issue("anna", "client"))
    with httpx.Client(verify=shown) as client:
        assert client.get(url, auth=KEY).status_code == 200
        assert client.get(url).status_code == 401  # a certificate opens the door, and is no login
