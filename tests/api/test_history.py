"""The past through the API: a topic's history, the retained set as it was, and bringing it back."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_process import BrokerProcess, Unique
from http_api import LISTEN, Api, until


def at(api: Api, **query: Any) -> list[tuple[str, str]]:
    found = api.ok("GET", "/api/v1/retained/at", params=query)["messages"]
    return [(message["topic"], message["text"]) for message in found]


def test_the_history_of_a_topic_is_newest_first_with_what_the_api_did(api: Api, unique: Unique) -> None:
    with api.broker.client() as client:
        client.connect(unique.client("dev"))
        client.publish(unique.topic(), b"1", qos=1, retain=True)
        client.publish(unique.topic(), b"live", qos=1)
    api.set(unique.topic(), "2")
    api.ok("DELETE", "/api/v1/retained/message", params={"topic": unique.topic()})
    rows = api.history(unique.topic(), 4)
    assert [(row["outcome"], row["text"], row["publisher"]["protocol"]) for row in rows] == [
        ("cleared", "", "api"),
        ("set", "2", "api"),
        ("live", "live", "3.1.1"),
        ("set", "1", "3.1.1"),
    ]
    query = {"topic": unique.topic(), "limit": 3}
    page = api.ok("GET", "/api/v1/history", params=query)
    rest = api.ok("GET", "/api/v1/history", params={**query, "before": page["next"]})
    assert [row["text"] for row in rest["rows"]] == ["1"]
    assert rest["next"] is None
    assert (page["live_from"], api.ok("GET", "/api/v1/history/span")["live_from"]) == (1, 1)


def test_by_default_only_publishes_with_retain_are_rows_and_the_answer_says_so(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(listen=LISTEN)
    with Api(broker) as api, broker.client() as client:
        client.connect("dev")
        client.publish("t", b"before there is a table", qos=1)
        assert api.ok("GET", "/api/v1/history/span")["live_from"] == 0
        client.publish("t", b"1", qos=1, retain=True)
        client.publish("t", b"live", qos=1)
        client.publish("t", b"2", qos=1, retain=True)
        assert [row["text"] for row in api.history("t", 2)] == ["2", "1"]
        assert api.ok("GET", "/api/v1/history", params={"topic": "t"})["live_from"] == 0
    assert "every publish with RETAIN is recorded and kept for 30d or until the table has 10GiB" in broker.output


def test_a_broker_that_is_told_to_record_all_says_from_where_on_it_does(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    first = start_broker(listen=LISTEN, data=tmp_path / "data")
    with Api(first) as api:
        before = api.set("t", "1")
        api.history("t", 1)
    first.stop()
    with Api(start_broker(listen=LISTEN, data=tmp_path / "data", history__record="all")) as api:
        with api.broker.client() as client:
            client.connect("dev")
            client.publish("t", b"live", qos=1)
        assert [row["text"] for row in api.history("t", 2)] == ["live", "1"]
        live_from = api.ok("GET", "/api/v1/history/span")["live_from"]
        assert before < live_from <= api.history("t", 2)[0]["version"]


def test_the_set_as_of_an_offset_and_as_of_a_time_is_what_it_was(api: Api, unique: Unique) -> None:
    api.set(unique.topic("a"), "1")
    first = api.set(unique.topic("b"), "1")
    time.sleep(0.05)
    between_ms = int(time.time() * 1000)
    time.sleep(0.05)
    api.set(unique.topic("a"), "2")
    api.ok("DELETE", "/api/v1/retained/message", params={"topic": unique.topic("b")})
    api.history(unique.topic("b"), 2)
    then = [(unique.topic("a"), "1"), (unique.topic("b"), "1")]
    assert at(api, offset=first, filter=unique.topic("#")) == then
    assert at(api, at_ms=between_ms, filter=unique.topic("#")) == then
    now_ms = int(time.time() * 1000)
    assert at(api, at_ms=now_ms, filter=unique.topic("#")) == [(unique.topic("a"), "2")]
    assert at(api, at_ms=between_ms, filter=unique.topic("b")) == [(unique.topic("b"), "1")]


def test_the_tree_of_the_past_opens_like_that_of_today(api: Api, unique: Unique) -> None:
    api.set(unique.topic("x/1"), "1")
    api.set(unique.topic("x/2"), "1")
    time.sleep(0.05)
    then_ms = int(time.time() * 1000)
    time.sleep(0.05)
    api.ok("DELETE", "/api/v1/retained/message", params={"topic": unique.topic("x/1")})
    api.history(unique.topic("x/1"), 2)
    query = {"prefix": unique.topic("x"), "at_ms": then_ms}
    assert [child["name"] for child in api.ok("GET", "/api/v1/tree", params=query)["children"]] == ["1", "2"]
    above = api.ok("GET", "/api/v1/tree", params={"prefix": str(unique), "at_ms": then_ms})["children"]
    assert [(child["name"], child["count"], child["leaf"]) for child in above] == [("x", 2, False)]
    today = api.ok("GET", "/api/v1/tree", params={"prefix": unique.topic("x")})["children"]
    assert [child["name"] for child in today] == ["2"]


def test_restore_shows_first_and_then_brings_back(api: Api, unique: Unique) -> None:
    api.set(unique.topic("a"), "old")
    version = api.set(unique.topic("b"), "old")
    api.set(unique.topic("a"), "new")
    api.ok("DELETE", "/api/v1/retained/message", params={"topic": unique.topic("b")})
    api.history(unique.topic("b"), 2)
    asked = {"filter": unique.topic("#"), "offset": version}
    seen = api.ok("POST", "/api/v1/retained/restore", json=asked)
    assert (seen["dry_run"], seen["restored"], seen["present"]) == (True, 1, 1)
    assert api.topics(filter=unique.topic("#")) == [unique.topic("a")]
    done = api.ok("POST", "/api/v1/retained/restore", json={**asked, "dry_run": False, "replace": True})
    assert (done["dry_run"], done["restored"]) == (False, 2)
    texts = [
        api.ok("GET", "/api/v1/retained/message", params={"topic": unique.topic(name)})["text"] for name in ("a", "b")
    ]
    assert texts == ["old", "old"]


def test_a_moment_needs_a_time_or_an_offset_and_not_both(api: Api) -> None:
    assert api.get("/api/v1/retained/at").status_code == 400
    assert api.get("/api/v1/retained/at", params={"at_ms": 1, "offset": 1}).status_code == 400


def test_the_span_of_the_history_covers_what_was_published(api: Api, unique: Unique) -> None:
    before_ms = int(time.time() * 1000)
    version = api.set(unique.topic(), "1")
    span = until(lambda: api.ok("GET", "/api/v1/history/span"), lambda found: found["upto"] >= version)
    assert span["from_ms"] <= span["upto_ms"]
    assert span["upto_ms"] >= before_ms
    assert span["rows"] >= 1


def test_before_the_first_row_the_past_is_empty_and_no_error(start_broker: Callable[..., BrokerProcess]) -> None:
    with Api(start_broker(listen=LISTEN)) as api:
        span = api.ok("GET", "/api/v1/history/span")
        assert (span["from_ms"], span["rows"]) == (None, 0)
        assert span["uri"].endswith("/history")
        assert api.ok("GET", "/api/v1/history", params={"topic": "a"})["rows"] == []
        assert at(api, at_ms=int(time.time() * 1000)) == []
        assert api.post("/api/v1/operations/api-never/undo").status_code == 404
