"""Listing, searching, reading and deleting retained messages through the API."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from broker_process import BrokerProcess, Unique
from http_api import LISTEN, Api
from wire import P, Publish


def test_a_message_of_a_client_is_listed_with_who_set_it_and_when(api: Api, unique: Unique) -> None:
    with api.broker.client(5) as client:
        client.connect(unique.client("sensor"))
        client.publish(
            unique.topic(), b'{"t": 21}', qos=1, retain=True, properties=[(P.CONTENT_TYPE, "application/json")]
        )
    [message] = api.ok("GET", "/api/v1/retained", params={"filter": unique.topic("#")})["messages"]
    assert message["topic"] == unique.topic()
    assert message["publisher"] == {"client_id": unique.client("sensor"), "username": "", "protocol": "5.0"}
    assert (message["size"], message["qos"], message["preview"]) == (9, 1, '{"t": 21}')
    whole = api.ok("GET", "/api/v1/retained/message", params={"topic": unique.topic()})
    assert base64.b64decode(whole["payload"]) == b'{"t": 21}'
    assert (whole["text"], whole["content_type"]) == ('{"t": 21}', "application/json")


def test_a_message_with_every_property_keeps_them_all(api: Api, unique: Unique) -> None:
    given = {
        "content_type": "text/plain",
        "response_topic": "answer/here",
        "correlation_data": base64.b64encode(b"\x00\xff").decode(),
        "payload_format": 1,
        "user_properties": [["a", "1"], ["a", "2"]],
    }
    api.set(unique.topic(), "x", expiry_s=3600, **given)
    whole = api.ok("GET", "/api/v1/retained/message", params={"topic": unique.topic()})
    assert {name: whole[name] for name in given} == given
    assert 3_590_000 < whole["expires_at_ms"] - whole["stored_at_ms"] <= 3_600_000


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"contains": "lamp"}, ["lamp/1", "lamp/2"]),
        ({"min_size": 5}, ["long"]),
        ({"max_size": 1}, ["lamp/1", "lamp/2"]),
        ({"client_id": "nobody"}, []),
        ({"older_than": 3600}, []),
        ({"newer_than": 3600}, ["lamp/1", "lamp/2", "long", "mid"]),
    ],
)
def test_conditions_narrow_a_listing(api: Api, unique: Unique, query: dict[str, Any], expected: list[str]) -> None:
    for name, payload in (("lamp/1", "1"), ("lamp/2", "1"), ("long", "12345"), ("mid", "123")):
        api.set(unique.topic(name), payload)
    found = api.topics(filter=unique.topic("#"), **query)
    assert sorted(found) == [unique.topic(name) for name in expected]


def test_a_topic_that_stays_is_listed_once_whatever_changes_around_it(api: Api, unique: Unique) -> None:
    stay = [unique.topic(f"stay/{n}") for n in range(300)]
    go = [unique.topic(f"go/{n}") for n in range(300)]
    both = [topic for pair in zip(stay, go, strict=True) for topic in pair]
    api.set_many(both)
    query: dict[str, Any] = {"filter": unique.topic("#"), "limit": 50}
    found: list[str] = []
    pages = 0
    while True:
        page = api.ok("GET", "/api/v1/retained", params=query)
        found += [message["topic"] for message in page["messages"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
        batch = go[pages * 40 : pages * 40 + 40]
        if batch:
            gone = [{"topic": topic, "payload": "", "retain": True} for topic in batch]
            new = [{"topic": unique.topic(f"new/{pages}"), "payload": "1", "retain": True}]
            api.ok("POST", "/api/v1/publish/batch", json=gone + new)
        pages += 1
    assert pages > 4
    assert len(found) == len(set(found))
    assert set(stay) <= set(found)


def test_the_same_page_can_be_asked_for_again(api: Api, unique: Unique) -> None:
    api.set_many([unique.topic(str(n)) for n in range(30)])
    first = api.ok("GET", "/api/v1/retained", params={"filter": unique.topic("#"), "limit": 10})
    query = {"cursor": first["next"], "limit": 10}
    second = api.ok("GET", "/api/v1/retained", params=query)
    assert api.ok("GET", "/api/v1/retained", params=query) == second
    third = api.ok("GET", "/api/v1/retained", params={"cursor": second["next"], "limit": 10})
    topics = [message["topic"] for page in (first, second, third) for message in page["messages"]]
    assert len(set(topics)) == 30


def test_a_cursor_that_is_not_known_is_gone(api: Api) -> None:
    answer = api.get("/api/v1/retained", params={"cursor": "nothing.1"})
    assert answer.status_code == 410
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == 410


@pytest.mark.parametrize("topic_filter", ["a/#/b", "a+", "#a"])
def test_a_malformed_filter_is_refused_with_its_reason(api: Api, topic_filter: str) -> None:
    answer = api.get("/api/v1/retained", params={"filter": topic_filter})
    assert answer.status_code == 400
    assert repr(topic_filter) in answer.json()["detail"]


def test_the_payload_alone_comes_as_bytes_with_the_rest_in_headers(api: Api, unique: Unique) -> None:
    payload = b"<script>alert(1)</script>\x00\xff"
    version = api.set(unique.topic("ü"), base64.b64encode(payload).decode(), encoding="base64")
    answer = api.get("/api/v1/retained/message/payload", params={"topic": unique.topic("ü")})
    assert answer.content == payload
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["holdfast-version"] == str(version)


def test_a_topic_that_is_not_retained_is_not_found(api: Api, unique: Unique) -> None:
    for path in ("/api/v1/retained/message", "/api/v1/retained/message/payload"):
        assert api.get(path, params={"topic": unique.topic("nothing")}).status_code == 404


def test_subscribers_hear_of_what_the_api_publishes_and_deletes(api: Api, unique: Unique) -> None:
    with api.broker.client() as client:
        client.connect(unique.client())
        client.subscribe(unique.topic("#"), qos=1)
        api.set(unique.topic(), "here")
        client.expect(Publish, topic=unique.topic(), payload=b"here")
        api.ok("DELETE", "/api/v1/retained/message", params={"topic": unique.topic()})
        client.expect(Publish, topic=unique.topic(), payload=b"")


def test_delete_by_filter_counts_first_and_deletes_with_the_token(api: Api, unique: Unique) -> None:
    topics = [unique.topic(f"d/{n}") for n in range(25)]
    api.set_many([*topics, unique.topic("other")])
    query = {"filter": unique.topic("d/#")}
    seen = api.ok("DELETE", "/api/v1/retained", params=query)
    assert (seen["dry_run"], seen["count"], len(seen["sample"])) == (True, 25, 20)
    assert len(api.topics(**query)) == 25
    done = api.ok("DELETE", "/api/v1/retained", params={**query, "dry_run": False, "token": seen["token"]})
    assert (done["dry_run"], done["count"]) == (False, 25)
    assert api.topics(filter=unique.topic("#")) == [unique.topic("other")]


@pytest.mark.parametrize("change", ["count", "filter", "token"])
def test_a_token_is_good_only_for_what_was_counted(api: Api, unique: Unique, change: str) -> None:
    api.set_many([unique.topic(f"d/{n}") for n in range(3)])
    query = {"filter": unique.topic("d/#")}
    token = api.ok("DELETE", "/api/v1/retained", params=query)["token"]
    if change == "count":
        api.set(unique.topic("d/one-more"))
    elif change == "filter":
        query = {"filter": unique.topic("#")}
    else:
        token = token[:-1] + ("0" if token[-1] != "0" else "1")
    answer = api.delete("/api/v1/retained", params={**query, "dry_run": False, "token": token})
    assert answer.status_code == 409
    assert len(api.topics(filter=unique.topic("d/#"))) == (4 if change == "count" else 3)


def test_deleting_without_a_token_deletes_nothing(api: Api, unique: Unique) -> None:
    api.set(unique.topic())
    answer = api.delete("/api/v1/retained", params={"filter": unique.topic("#"), "dry_run": False})
    assert answer.status_code == 409
    assert api.topics(filter=unique.topic("#")) == [unique.topic()]


def removed(api: Api, topic_filter: str) -> str:
    token = api.ok("DELETE", "/api/v1/retained", params={"filter": topic_filter})["token"]
    query = {"filter": topic_filter, "dry_run": False, "token": token}
    operation: str = api.ok("DELETE", "/api/v1/retained", params=query)["operation"]
    return operation


def test_undo_brings_back_what_a_delete_took_and_leaves_what_is_new(api: Api, unique: Unique) -> None:
    api.set(unique.topic("a"), "old a", content_type="text/x", user_properties=[["k", "v"]])
    api.set(unique.topic("b"), "old b")
    operation = removed(api, unique.topic("#"))
    api.set(unique.topic("b"), "new b")
    done = api.ok("POST", f"/api/v1/operations/{operation}/undo")
    assert (done["restored"], done["present"]) == (1, 1)
    a = api.ok("GET", "/api/v1/retained/message", params={"topic": unique.topic("a")})
    assert (a["text"], a["content_type"], a["user_properties"]) == ("old a", "text/x", [["k", "v"]])
    assert api.ok("GET", "/api/v1/retained/message", params={"topic": unique.topic("b")})["text"] == "new b"


def test_an_operation_that_never_was_cannot_be_undone(api: Api) -> None:
    assert api.post("/api/v1/operations/api-never/undo").status_code == 404


def test_undo_works_after_a_restart_from_the_history(start_broker: Callable[..., BrokerProcess], tmp_path: Any) -> None:
    folder = tmp_path / "data"
    first = start_broker(listen=LISTEN, data=folder)
    with Api(first) as api:
        api.set("a/1", "one", expiry_s=3600)
        api.set("a/2", "two")
        operation = removed(api, "a/#")
    first.stop()
    with Api(start_broker(listen=LISTEN, data=folder)) as api:
        assert api.topics() == []
        done = api.ok("POST", f"/api/v1/operations/{operation}/undo")
        assert done["restored"] == 2
        whole = api.ok("GET", "/api/v1/retained/message", params={"topic": "a/1"})
        assert whole["text"] == "one"
        assert whole["expires_at_ms"] is not None


def test_the_brokers_own_topics_cannot_be_written(api: Api) -> None:
    for topic in ("$SYS/broker/uptime", "$holdfast/x"):
        answer = api.post("/api/v1/publish", json={"topic": topic, "payload": "x", "retain": True})
        assert answer.status_code == 403, answer.text


@pytest.mark.parametrize("topic", ["a/+/b", "a/#", "a\0b", "x" * 65536])
def test_a_topic_that_no_client_may_use_is_refused(api: Api, topic: str) -> None:
    answer = api.post("/api/v1/publish", json={"topic": topic, "payload": "x", "retain": True})
    assert answer.status_code in (400, 422), answer.text


def test_the_tree_opens_level_by_level(api: Api, unique: Unique) -> None:
    for name in ("b/x/1", "b/x/2", "b/y", "b", "lone/very/deep"):
        api.set(unique.topic(name))
    level = api.ok("GET", "/api/v1/tree", params={"prefix": str(unique)})
    assert [(c["name"], c["leaf"], c["count"], c["message"] is not None) for c in level["children"]] == [
        ("b", False, 4, True),
        ("lone", False, 1, False),
    ]
    below = api.ok("GET", "/api/v1/tree", params={"prefix": unique.topic("b")})
    assert [(c["path"], c["leaf"], c["count"]) for c in below["children"]] == [
        (unique.topic("b/x"), False, 2),
        (unique.topic("b/y"), True, 1),
    ]
    deep = api.ok("GET", "/api/v1/tree", params={"prefix": unique.topic("lone/very")})
    assert [(c["name"], c["leaf"]) for c in deep["children"]] == [("deep", True)]
    usage = api.ok("GET", "/api/v1/retained/usage", params={"prefix": unique.topic("b")})
    assert usage["count"] == 4
    assert usage["bytes"] == sum(len(unique.topic(name)) + 1 for name in ("b/x/1", "b/x/2", "b/y", "b"))


def test_the_children_of_a_place_come_in_pages(api: Api, unique: Unique) -> None:
    names = sorted(f"n{n:03}" for n in range(120))
    api.set_many([unique.topic(f"{name}/t") for name in names])
    found: list[str] = []
    after = ""
    while True:
        level = api.ok("GET", "/api/v1/tree", params={"prefix": str(unique), "limit": 50, "after": after})
        found += [child["name"] for child in level["children"]]
        assert level["total"] == 120
        if level["next"] is None:
            break
        after = level["next"]
    assert found == names


def test_hygiene_finds_what_is_worth_a_look(api: Api, unique: Unique) -> None:
    api.set(f"{unique}/lamp/set", "ON")
    api.set(f"homeassistant/sensor/{unique}/config", f'{{"~": "{unique}/base", "stat_t": "~/state"}}')
    api.set(f"{unique}/soon", "1", expiry_s=60)
    with api.broker.client() as client:
        client.connect(unique.client("gone"))
        client.publish(unique.topic("left-behind"), b"1", qos=1, retain=True)
    found = api.ok("GET", "/api/v1/hygiene", params={"days": 0, "limit": 1000})
    assert unique.topic("lamp/set") in [m["topic"] for m in found["commands"]["messages"]]
    assert unique.topic("soon") in [m["topic"] for m in found["expiring"]["messages"]]
    lost = {m["topic"]: m["state_topic"] for m in found["discovery"]}
    assert lost[f"homeassistant/sensor/{unique}/config"] == f"{unique}/base/state"
    gone = {p["client_id"]: p for p in found["publishers"]}
    assert gone[unique.client("gone")]["sample"] == unique.topic("left-behind")
    assert found["stale"]["count"] == found["count"] > 3
    nothing = api.ok("GET", "/api/v1/hygiene", params={"days": 30})
    assert nothing["stale"]["count"] == 0
    assert nothing["publishers"] == []


def test_a_discovery_whose_state_is_published_and_not_retained_is_no_finding(api: Api, unique: Unique) -> None:
    before, after, never = (unique.topic(name) for name in ("before", "after", "never"))

    def lost() -> set[str]:
        found = api.ok("GET", "/api/v1/hygiene", params={"days": 30, "limit": 1000})
        assert found["listening_since_ms"] > 0
        return {one["state_topic"] for one in found["discovery"]} & {before, after, never}

    with api.broker.client() as client:
        client.connect(unique.client())
        client.subscribe(unique.topic("#"))
        client.publish(before, b"1")
        client.publish(unique.topic("mark"), b"1", qos=1)  # acknowledged behind it
        for number, topic in enumerate((before, after, never)):
            api.set(f"homeassistant/sensor/{unique}-{number}/config", json.dumps({"state_topic": topic}))
        assert lost() == {after, never}
        client.publish(after, b"1")
        client.publish(unique.topic("mark"), b"2", qos=1)
        api.set(unique.topic("changed"))  # an answer is kept until something is
        assert lost() == {never}


def test_counts_are_of_all_there_are_and_lists_are_cut(api: Api, unique: Unique) -> None:
    for number in range(3):
        api.set(f"homeassistant/sensor/{unique}-{number}/config", json.dumps({"stat_t": unique.topic(str(number))}))
    found = api.ok("GET", "/api/v1/hygiene", params={"limit": 1})
    assert len(found["discovery"]) == len(found["subtrees"]) == 1
    assert found["discovery_count"] >= 3
    assert found["subtrees_count"] >= 1


def test_topics_that_begin_with_a_dollar_are_listed_when_they_are_asked_for(api: Api, unique: Unique) -> None:
    hidden, plain = f"$hidden/{unique.topic('x')}", unique.topic("x")
    api.set(hidden)
    api.set(plain)
    assert {hidden, plain} & set(api.topics(filter="#")) == {plain}
    assert {hidden, plain} <= set(api.topics(filter="#", hidden=True))
    refused = api.get("/api/v1/retained", params={"filter": "a/#", "hidden": True})
    assert refused.status_code == 400
