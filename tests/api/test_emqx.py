"""Calls as scripts for EMQX make them: its paths, its parameters, its field names."""

import base64
import time
from urllib.parse import quote

import pytest

from broker_process import Unique
from holdfast import __version__
from http_api import Api, until
from wire import Disconnect, Publish


def test_messages_are_listed_with_emqx_names_and_pages(api: Api, unique: Unique) -> None:
    with api.broker.client() as client:
        client.connect(unique.client("dev"))
        for n in range(7):
            client.publish(unique.topic(str(n)), b"x", qos=1, retain=True)
    query = {"topic": unique.topic("+"), "page": 2, "limit": 3}
    page = api.ok("GET", "/api/v5/mqtt/retainer/messages", params=query)
    assert page["meta"] == {"page": 2, "limit": 3, "count": 7, "hasnext": True}
    assert [one["topic"] for one in page["data"]] == [unique.topic(str(n)) for n in (3, 4, 5)]
    assert set(page["data"][0]) == {"msgid", "topic", "qos", "publish_at", "from_clientid", "from_username"}
    assert page["data"][0]["from_clientid"] == unique.client("dev")
    last = api.ok("GET", "/api/v5/mqtt/retainer/messages", params={**query, "page": 3})
    assert (len(last["data"]), last["meta"]["hasnext"]) == (1, False)


@pytest.mark.parametrize("name", ["plain", "a//b", "mit leer", "ümlaut/☃", "with?mark&and=more", "100%"])
def test_one_message_is_read_and_deleted_by_its_encoded_topic(api: Api, unique: Unique, name: str) -> None:
    topic = unique.topic(name)
    api.set(topic, "value")
    path = f"/api/v5/mqtt/retainer/message/{quote(topic, safe='')}"
    found = api.ok("GET", path)
    assert (found["topic"], base64.b64decode(found["payload"])) == (topic, b"value")
    assert api.delete(path).status_code == 204
    missing = api.get(path)
    assert (missing.status_code, missing.json()["code"]) == (404, "NOT_FOUND")
    assert missing.json()["message"]


def test_messages_are_deleted_by_filter_and_can_be_brought_back(api: Api, unique: Unique) -> None:
    api.set_many([unique.topic(f"x/{n}") for n in range(3)])
    answer = api.delete("/api/v5/mqtt/retainer/messages", params={"topic": unique.topic("x/#")})
    assert answer.status_code == 204
    assert api.topics(filter=unique.topic("#")) == []
    api.ok("POST", f"/api/v1/operations/{answer.headers['holdfast-operation']}/undo")
    assert len(api.topics(filter=unique.topic("#"))) == 3


def test_publish_answers_200_with_a_receiver_and_202_without(api: Api, unique: Unique) -> None:
    body = {
        "topic": unique.topic(),
        "payload": base64.b64encode(b"\x01").decode(),
        "payload_encoding": "base64",
        "qos": 1,
    }
    alone = api.post("/api/v5/publish", json=body)
    assert (alone.status_code, alone.json()["reason_code"]) == (202, 16)
    with api.broker.client(5) as client:
        client.connect(unique.client())
        client.subscribe(unique.topic(), qos=1)
        heard = api.post("/api/v5/publish", json={**body, "properties": {"user_properties": {"a": "b"}}})
        assert heard.status_code == 200
        assert heard.json()["id"]
        client.expect(Publish, topic=unique.topic(), payload=b"\x01", qos=1)


def test_a_publish_that_is_not_valid_is_a_bad_request(api: Api) -> None:
    answer = api.post("/api/v5/publish", json={"topic": "a", "qos": 3})
    assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")


def test_settings_of_the_retainer_are_shown_and_changed(api: Api, unique: Unique) -> None:
    before = api.ok("GET", "/api/v5/mqtt/retainer")
    assert before["enable"] is True
    assert before["backend"]["storage_type"] == "disc"
    try:
        changed = api.ok("PUT", "/api/v5/mqtt/retainer", json={"max_payload_size": "4B"})
        assert changed["max_payload_size"] == "4B"
        api.set(unique.topic(), "12345")
        assert api.topics(filter=unique.topic("#")) == []
    finally:
        api.ok("PUT", "/api/v5/mqtt/retainer", json={"max_payload_size": before["max_payload_size"]})
    api.set(unique.topic(), "12345")
    assert api.topics(filter=unique.topic("#")) == [unique.topic()]


@pytest.mark.parametrize("value", ["", "many", "1 parsec", "-1s"])
def test_a_quantity_that_makes_no_sense_changes_nothing(api: Api, value: str) -> None:
    before = api.ok("GET", "/api/v5/mqtt/retainer")
    assert api.put("/api/v5/mqtt/retainer", json={"enable": False, "max_payload_size": value}).status_code == 400
    assert api.ok("GET", "/api/v5/mqtt/retainer") == before


def test_a_setting_that_emqx_does_not_have_either_is_an_error_that_names_it(api: Api) -> None:
    refused = api.put("/api/v5/mqtt/retainer", json={"enable": True, "max_payload": "1KB"})
    assert (refused.status_code, "'max_payload'" in refused.json()["message"]) == (400, True)
    api.ok("PUT", "/api/v5/mqtt/retainer", json=api.ok("GET", "/api/v5/mqtt/retainer"))


def test_clients_are_listed_inspected_and_disconnected(api: Api, unique: Unique) -> None:
    with api.broker.client(5) as client:
        client.connect(unique.client("a"), keep_alive=60)
        client.subscribe(unique.topic("+"), qos=1)
        [one] = api.ok("GET", "/api/v5/clients", params={"like_clientid": unique.client("a")})["data"]
        assert (one["clientid"], one["connected"], one["proto_ver"]) == (unique.client("a"), True, 5)
        assert (one["ip_address"], one["keepalive"], one["subscriptions_cnt"]) == ("127.0.0.1", 60, 1)
        assert api.ok("GET", f"/api/v5/clients/{unique.client('a')}")["clientid"] == unique.client("a")
        [subscription] = api.ok("GET", "/api/v5/subscriptions", params={"clientid": unique.client("a")})["data"]
        assert (subscription["topic"], subscription["qos"], subscription["nl"]) == (unique.topic("+"), 1, 0)
        assert api.delete(f"/api/v5/clients/{unique.client('a')}").status_code == 204
        assert client.expect(Disconnect).reason == 0x98
    assert api.delete(f"/api/v5/clients/{unique.client('a')}").status_code == 404


def test_an_absent_client_loses_its_session(api: Api, unique: Unique) -> None:
    client = api.broker.client()
    client.connect(unique.client("b"), clean=False)
    client.disconnect()
    query = {"clientid": unique.client("b"), "conn_state": "disconnected"}
    assert len(api.ok("GET", "/api/v5/clients", params=query)["data"]) == 1
    assert api.delete(f"/api/v5/clients/{unique.client('b')}").status_code == 204
    assert api.ok("GET", "/api/v5/clients", params=query)["data"] == []


def test_several_messages_are_published_at_once_and_each_has_its_answer(api: Api, unique: Unique) -> None:
    with api.broker.client() as client:
        client.connect(unique.client("listener"))
        client.subscribe(unique.topic("heard"))
        bulk = [
            {"topic": unique.topic("heard"), "payload": "1", "retain": True},
            {"topic": unique.topic("unheard"), "payload": "Mg==", "payload_encoding": "base64", "retain": True},
        ]
        answer = api.post("/api/v5/publish/bulk", json=bulk)
        assert answer.status_code == 202  # nobody has subscribed to one of them
        heard, unheard = answer.json()
        assert set(heard) == {"id"}
        assert (unheard["message"], unheard["reason_code"]) == ("no_matching_subscribers", 16)
        assert client.expect(Publish, topic=unique.topic("heard")).payload == b"1"
    kept = api.ok("GET", f"/api/v5/mqtt/retainer/message/{quote(unique.topic('unheard'), safe='')}")
    assert base64.b64decode(kept["payload"]) == b"2"
    assert int(kept["msgid"], 16) == int(unheard["id"], 16)


@pytest.mark.parametrize(
    "bulk",
    [
        [],
        [{"payload": "1"}],
        [{"topic": "a/#"}],
        [{"topic": "a", "clientid": "\0"}],
        [{"topic": "a", "payload": "%", "payload_encoding": "base64"}],
        [{"topic": "/".join("a" * 1000)}],
    ],
)
def test_a_bulk_with_something_that_is_no_message_publishes_nothing(
    api: Api, unique: Unique, bulk: list[dict[str, str]]
) -> None:
    good = [{"topic": unique.topic(), "payload": "1", "retain": True}] if bulk else []
    assert api.post("/api/v5/publish/bulk", json=[*good, *bulk]).status_code in (400, 422)
    assert api.topics(filter=unique.topic()) == []


def test_the_subscriptions_of_one_client_are_listed(api: Api, unique: Unique) -> None:
    name = unique.client("with/slash")
    with api.broker.client(5) as client:
        client.connect(name)
        client.subscribe(unique.topic("#"), qos=1)
        path = f"/api/v5/clients/{quote(name, safe='')}"
        [one] = api.ok("GET", f"{path}/subscriptions")
        assert (one["clientid"], one["topic"], one["qos"]) == (name, unique.topic("#"), 1)
        assert api.ok("GET", path)["clientid"] == name
    assert api.get(f"/api/v5/clients/{unique.client('nobody')}/subscriptions").status_code == 404


def test_nodes_stats_and_metrics_have_emqx_names(api: Api, unique: Unique) -> None:
    [node] = api.ok("GET", "/api/v5/nodes")
    assert (node["node_status"], node["version"]) == ("running", __version__)
    assert api.ok("GET", f"/api/v5/nodes/{node['node']}")["node"] == node["node"]
    assert api.get("/api/v5/nodes/other").status_code == 404
    before = api.ok("GET", "/api/v5/metrics", params={"aggregate": True})
    with api.broker.client() as client:
        client.connect(unique.client())
        client.publish(unique.topic(), b"1", qos=1, retain=True)
        [stats] = api.ok("GET", "/api/v5/stats")
        assert stats["node"] == node["node"]
        assert stats["live_connections.count"] >= 1
        assert stats["retained.count"] == api.ok("GET", "/api/v1/overview")["retained"]["count"]
    after = api.ok("GET", "/api/v5/metrics", params={"aggregate": True})
    assert "node" not in after
    assert after["messages.qos1.received"] == before["messages.qos1.received"] + 1
    assert after["messages.received"] > before["messages.received"]


def test_the_status_is_a_sentence_and_needs_no_login(api: Api) -> None:
    assert api.get("/api/v5/status").text.endswith("holdfast is running")
    assert api.ok("GET", "/api/v5/status", params={"format": "json"})["app_status"] == "running"


def test_a_banned_client_id_is_sent_away_and_turned_away_until_the_ban_is_lifted(api: Api, unique: Unique) -> None:
    name = unique.client("noisy")
    with api.broker.client(5) as client:
        client.connect(name)
        made = api.ok("POST", "/api/v5/banned", json={"as": "clientid", "who": name, "reason": "noise"})
        assert (made["as"], made["who"], made["reason"], made["until"]) == ("clientid", name, "noise", "infinity")
        assert client.expect(Disconnect).reason == 0x8A
    with api.broker.client(5) as client:
        assert client.connect(name, check=False).code == 0x8A
    listed = api.ok("GET", "/api/v5/banned", params={"limit": 10_000})["data"]
    assert made in listed
    path = f"/api/v5/banned/clientid/{quote(name, safe='')}"
    assert api.delete(path).status_code == 204
    assert api.delete(path).status_code == 404
    with api.broker.client(5) as client:
        client.connect(name)


def test_a_ban_ends_at_its_time(api: Api, unique: Unique) -> None:
    name = unique.client("brief")
    api.ok("POST", "/api/v5/banned", json={"as": "clientid", "who": name, "until": time.time() + 2})
    until(
        lambda: [one["who"] for one in api.ok("GET", "/api/v5/banned", params={"limit": 10_000})["data"]],
        lambda names: name not in names,
    )
    with api.broker.client(5) as client:
        client.connect(name)


def test_addresses_and_networks_are_banned_but_not_ones_own(api: Api) -> None:
    made = api.ok("POST", "/api/v5/banned", json={"as": "peerhost_net", "who": "192.0.2.0/24"})
    assert (made["as"], made["who"]) == ("peerhost_net", "192.0.2.0/24")
    assert api.delete("/api/v5/banned/peerhost_net/192.0.2.0/24").status_code == 204
    for who in ("127.0.0.1", "0.0.0.0/0"):
        refused = api.post("/api/v5/banned", json={"as": "peerhost", "who": who})
        assert (refused.status_code, "your own address" in refused.json()["detail"]) == (400, True)
    assert api.post("/api/v5/banned", json={"as": "peerhost", "who": "nowhere"}).status_code == 400
    past = api.post("/api/v5/banned", json={"as": "username", "who": "x", "until": 1})
    assert past.status_code == 400
