"""Calls as scripts for EMQX make them: its paths, its parameters, its field names."""

import base64
from urllib.parse import quote

import pytest

from broker_process import Unique
from http_api import Api
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
