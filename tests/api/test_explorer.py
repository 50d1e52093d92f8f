"""What the dashboard's explorer asks for: search, totals, the tree of one who may see a part, moments, operations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from broker_process import BrokerProcess, Unique, start_holdfast
from http_api import LISTEN, Api, until
from password_file import write_password_file

USERS = {"anna": "a", "bob": "b", "boss": "c"}
ANNA, BOB, BOSS = USERS.items()
RULES = """
[[access]]
permission = "allow"
action = "all"
filter = ["house/%u/#", "$house/%u/#"]
"""


def found(api: Api, **query: Any) -> list[str]:
    return sorted(api.topics(**query))


def names(level: dict[str, Any]) -> list[str]:
    return [child["path"] for child in level["children"]]


def now_ms() -> int:
    """A moment with something before and after it."""
    time.sleep(0.02)
    ms = int(time.time() * 1000)
    time.sleep(0.02)
    return ms


def test_a_search_looks_at_topics_payloads_clients_and_users_whatever_the_case(api: Api, unique: Unique) -> None:
    api.set(unique.topic("Kitchen"), "1")
    api.set(unique.topic("attic"), "the KITCHEN light")
    api.set(unique.topic("street"), "STRAßE und Ärger")
    with api.broker.client() as client:
        client.connect(unique.client("Kitchen-Sensor"))
        client.publish(unique.topic("by-client"), b"1", qos=1, retain=True)
    scope = unique.topic("#")
    assert found(api, filter=scope, search="kitchen") == [unique.topic(n) for n in ("Kitchen", "attic", "by-client")]
    assert found(api, filter=scope, search="ärger") == [unique.topic("street")]
    assert found(api, filter=scope, search="no such") == []
    assert api.ok("GET", "/api/v1/retained/count", params={"filter": scope, "search": "kitchen"})["count"] == 3


def test_a_search_in_the_past_finds_the_same_and_says_how_many(api: Api, unique: Unique) -> None:
    api.set(unique.topic("Kitchen"), "1")
    api.set(unique.topic("attic"), "the KITCHEN light")
    api.set(unique.topic("street"), "Ärger")
    with api.broker.client() as client:
        client.connect(unique.client("Kitchen-Sensor"))
        client.publish(unique.topic("by-client"), b"1", qos=1, retain=True)
    then_ms = now_ms()
    last = api.set(unique.topic("later"), "kitchen")
    api.history(unique.topic("later"), 1)
    asked = {"at_ms": then_ms, "filter": unique.topic("#"), "search": "kitchen", "limit": 2}
    first = api.ok("GET", "/api/v1/retained/at", params=asked)
    second = api.ok("GET", "/api/v1/retained/at", params={**asked, "after": first["next"]})
    assert (first["total"], second["next"]) == (3, None)
    topics = [one["topic"] for one in first["messages"] + second["messages"]]
    assert topics == [unique.topic(n) for n in ("Kitchen", "attic", "by-client")]
    other = api.ok(
        "GET", "/api/v1/retained/at", params={"offset": last, "filter": unique.topic("#"), "search": "ärger"}
    )
    assert [one["topic"] for one in other["messages"]] == [unique.topic("street")]


def test_the_size_of_a_subtree_is_known_of_the_past_too(api: Api, unique: Unique) -> None:
    for name, text in (("x", "12"), ("x/1", "123"), ("x/2", "1234"), ("xy", "1")):
        api.set(unique.topic(name), text)
    then_ms = now_ms()
    api.ok("DELETE", "/api/v1/retained/message", params={"topic": unique.topic("x/1")})
    api.history(unique.topic("x/1"), 2)
    asked = {"prefix": unique.topic("x"), "at_ms": then_ms}
    usage = api.ok("GET", "/api/v1/retained/usage", params=asked)
    assert (usage["count"], usage["bytes"]) == (3, 9)


def test_the_history_of_a_topic_ends_at_a_moment(api: Api, unique: Unique) -> None:
    api.set(unique.topic(), "1")
    then_ms = now_ms()
    api.set(unique.topic(), "2")
    api.history(unique.topic(), 2)
    rows = api.ok("GET", "/api/v1/history", params={"topic": unique.topic(), "to_ms": then_ms})["rows"]
    assert [row["text"] for row in rows] == ["1"]


def test_changes_are_counted_and_stepped_over(api: Api, unique: Unique) -> None:
    before_ms = now_ms()
    for text in ("1", "2", ""):
        api.set(unique.topic(), text)
        time.sleep(0.02)
    after_ms = now_ms()
    rows = api.history(unique.topic(), 3)
    asked = {"from_ms": before_ms, "to_ms": after_ms, "topic": unique.topic(), "parts": 7}
    counts = api.ok("GET", "/api/v1/history/changes", params=asked)["counts"]
    assert (len(counts), sum(counts)) == (7, 3)
    asked = {**asked, "from_ms": after_ms, "to_ms": after_ms + 1000}
    assert sum(api.ok("GET", "/api/v1/history/changes", params=asked)["counts"]) == 0
    stepped = []
    at_ms: int | None = after_ms
    while at_ms is not None:
        beside = api.ok("GET", "/api/v1/history/beside", params={"at_ms": at_ms, "topic": unique.topic()})
        at_ms = beside["before_ms"]
        if at_ms is not None:
            row = api.get("/api/v1/retained/message", params={"topic": unique.topic(), "at_ms": at_ms})
            stepped.append(row.json()["text"] if row.status_code == 200 else None)
    assert stepped == [None, "2", "1"]
    beside = api.ok("GET", "/api/v1/history/beside", params={"at_ms": before_ms, "topic": unique.topic()})
    assert beside["before_ms"] is None
    assert abs(beside["after_ms"] - rows[-1]["stored_at_ms"]) <= 1


def operations(api: Api, **query: Any) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = api.ok("GET", "/api/v1/operations", params=query)["operations"]
    return listed


def test_operations_are_listed_newest_first_and_in_pages(api: Api, unique: Unique) -> None:
    batch = [{"topic": unique.topic(f"b/{n}"), "payload": "1", "retain": True} for n in range(3)]
    made = api.ok("POST", "/api/v1/publish/batch", json=batch)["operation"]
    seen = api.ok("DELETE", "/api/v1/retained", params={"filter": unique.topic("b/#")})
    token = {"filter": unique.topic("b/#"), "dry_run": False, "token": seen["token"]}
    gone = api.ok("DELETE", "/api/v1/retained", params=token)["operation"]
    first = until(lambda: operations(api, limit=2), lambda some: some[0]["operation"] == gone)
    assert [one["operation"] for one in first] == [gone, made]
    assert [(one["set"], one["cleared"], one["topic"]) for one in first] == [
        (0, 3, unique.topic("b/0")),
        (3, 0, unique.topic("b/0")),
    ]
    page = api.ok("GET", "/api/v1/operations", params={"limit": 1})
    [second] = operations(api, limit=1, before=page["next"])
    assert second["operation"] == made


def test_a_publish_is_undone_where_nothing_newer_has_come(api: Api, unique: Unique) -> None:
    api.set(unique.topic("changed"), "old")
    batch = [{"topic": unique.topic(n), "payload": "new", "retain": True} for n in ("changed", "brought", "since")]
    made = api.ok("POST", "/api/v1/publish/batch", json=batch)["operation"]
    api.set(unique.topic("since"), "newer")
    api.history(unique.topic("since"), 2)
    seen = api.ok("POST", f"/api/v1/operations/{made}/undo", params={"dry_run": True})
    what = {one["topic"].rpartition("/")[2]: one["what"] for one in seen["changes"]}
    assert (seen["dry_run"], what) == (True, {"changed": "replaced", "brought": "removed"})
    assert len(api.topics(filter=unique.topic("#"))) == 3
    done = api.ok("POST", f"/api/v1/operations/{made}/undo")
    assert (done["restored"], done["removed"], done["present"]) == (1, 1, 1)
    texts = {
        one["topic"]: one["preview"]
        for one in api.ok("GET", "/api/v1/retained", params={"filter": unique.topic("#")})["messages"]
    }
    assert texts == {unique.topic("changed"): "old", unique.topic("since"): "newer"}
    until(lambda: operations(api, limit=1), lambda some: some[0]["operation"] == done["operation"])
    again = api.ok("POST", f"/api/v1/operations/{done['operation']}/undo")  # what was undone comes back
    assert (again["restored"], again["removed"]) == (2, 0)


def test_a_subtree_becomes_exactly_what_it_was(api: Api, unique: Unique) -> None:
    for name in ("same", "changed", "gone"):
        api.set(unique.topic(name), "then")
    then_ms = now_ms()
    api.set(unique.topic("changed"), "now")
    api.set(unique.topic("came"), "now")
    api.ok("DELETE", "/api/v1/retained/message", params={"topic": unique.topic("gone")})
    api.history(unique.topic("gone"), 2)
    asked = {"filter": unique.topic("#"), "at_ms": then_ms, "replace": True, "remove": True}
    seen = api.ok("POST", "/api/v1/retained/restore", json=asked)
    assert {(one["topic"].rpartition("/")[2], one["what"]) for one in seen["changes"]} == {
        ("changed", "replaced"),
        ("gone", "restored"),
        ("came", "removed"),
    }
    done = api.ok("POST", "/api/v1/retained/restore", json={**asked, "dry_run": False})
    assert (done["restored"], done["removed"], done["present"]) == (2, 1, 1)
    assert found(api, filter=unique.topic("#")) == [unique.topic(name) for name in ("changed", "gone", "same")]
    api.history(unique.topic("came"), 2)
    undone = api.ok("POST", f"/api/v1/operations/{done['operation']}/undo")
    assert (undone["restored"], undone["removed"]) == (2, 1)
    assert found(api, filter=unique.topic("#")) == [unique.topic(name) for name in ("came", "changed", "same")]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose users each have a part of the topics, `boss` excepted, who has all."""
    folder = tmp_path_factory.mktemp("house")
    config = folder / "holdfast.toml"
    config.write_text(RULES)
    settings = {
        "auth.password_file": write_password_file(folder / "users", USERS),
        "api.admins": '["boss"]',
        "history.filter": '["#", "$house/#"]',
    }
    running = start_holdfast(folder / "data", settings, listen=LISTEN, args=("--config", str(config)))
    with Api(running, auth=BOSS) as boss:
        for topic in ("house/anna/lamp", "house/anna/door/lock", "house/bob/lamp", "house/bob/gate/lock"):
            boss.set(topic, "anna's" if "anna" in topic else "bob's")
        boss.set("$house/anna/secret", "1")
        boss.history("$house/anna/secret", 1)
    yield running
    assert "Traceback" not in running.output, running.output
    running.stop()


def test_topics_that_begin_with_a_dollar_sign_have_a_past_where_they_are_recorded(house: BrokerProcess) -> None:
    with Api(house, auth=BOSS) as boss:
        then = {"at_ms": now_ms()}
        assert names(boss.ok("GET", "/api/v1/tree", params=then)) == ["$house", "house"]
        assert names(boss.ok("GET", "/api/v1/tree", params={**then, "prefix": "$house"})) == ["$house/anna"]
        asked = {**then, "search": "SECRET"}
        assert boss.ok("GET", "/api/v1/retained/at", params=asked)["messages"] == []  # no wildcard reaches them
        shown = boss.ok("GET", "/api/v1/retained/at", params={**asked, "hidden": True})["messages"]
        assert [one["topic"] for one in shown] == ["$house/anna/secret"]


def test_a_user_opens_the_part_of_the_tree_that_the_rules_give(house: BrokerProcess) -> None:
    with Api(house, auth=ANNA) as anna:
        then = {"at_ms": now_ms()}
        for when in ({}, then):
            root = anna.ok("GET", "/api/v1/tree", params=when)
            assert [(child["name"], child["count"]) for child in root["children"]] == [("$house", 1), ("house", 2)]
            assert root["total"] == 2
            assert names(anna.ok("GET", "/api/v1/tree", params={**when, "prefix": "house"})) == ["house/anna"]
            level = anna.ok("GET", "/api/v1/tree", params={**when, "prefix": "house/anna"})
            assert [(child["name"], child["leaf"]) for child in level["children"]] == [("door", False), ("lamp", True)]
            assert level["children"][1]["message"]["preview"] == "anna's"
            assert anna.ok("GET", "/api/v1/tree", params={**when, "prefix": "house/bob"})["total"] == 0
            assert anna.ok("GET", "/api/v1/retained/usage", params={**when, "prefix": "house"})["count"] == 2
        paged = anna.ok("GET", "/api/v1/tree", params={"limit": 1})
        assert names(anna.ok("GET", "/api/v1/tree", params={"limit": 1, "after": paged["next"]})) == ["house"]


def test_a_user_searches_and_counts_what_the_rules_give_and_not_by_publisher(house: BrokerProcess) -> None:
    with Api(house, auth=ANNA) as anna, Api(house, auth=BOSS) as boss:
        assert found(anna, search="LAMP") == ["house/anna/lamp"]
        assert found(anna, search="bob") == []
        assert found(anna, search="boss") == found(anna, search="api-") == []  # who published them
        assert len(found(boss, search="boss")) == 4
        assert anna.ok("GET", "/api/v1/retained/count", params={"search": "lamp"})["count"] == 1
        asked = {"at_ms": now_ms(), "search": "boss"}
        assert anna.ok("GET", "/api/v1/retained/at", params=asked)["messages"] == []
        assert boss.ok("GET", "/api/v1/retained/at", params=asked)["total"] == 4


def test_a_user_is_told_of_own_operations_and_of_the_changes_of_own_topics(house: BrokerProcess) -> None:
    with Api(house, auth=ANNA) as anna, Api(house, auth=BOB) as bob:
        bob.set("house/bob/noise", "1")
        made = anna.set("house/anna/noise", "1")
        anna.history("house/anna/noise", 1)
        assert {one["username"] for one in operations(anna)} == {"anna"}
        [operation] = [one["operation"] for one in operations(anna) if one["last"] == made]
        refused = bob.ok("POST", f"/api/v1/operations/{operation}/undo", params={"dry_run": True})
        assert (refused["removed"], refused["refused"]) == (0, 1)
        span = {"from_ms": 1, "to_ms": now_ms(), "parts": 1}
        assert anna.get("/api/v1/history/changes", params=span).status_code == 403
        assert anna.get("/api/v1/history/changes", params={**span, "topic": "house/bob/noise"}).status_code == 403
        assert anna.get("/api/v1/history/beside", params={"at_ms": 1}).status_code == 403
        own = anna.ok("GET", "/api/v1/history/changes", params={**span, "topic": "house/anna/noise"})
        assert own["counts"] == [1]
