"""Publishing through the API: what it answers is what was stored."""

import pytest

from broker_process import Unique
from http_api import Api
from wire import P, Publish


@pytest.fixture
def absent_subscriber(api: Api, unique: Unique) -> str:
    """A client id whose session waits for everything below the test's topic: its records take offsets too."""
    client_id = unique.client("absent")
    with api.broker.client(5) as client:
        client.connect(client_id, properties=[(P.SESSION_EXPIRY, 3600)])
        client.subscribe(unique.topic("#"), qos=1)
        client.disconnect()
    return client_id


def stored_offsets(api: Api, unique: Unique, topic: str) -> tuple[int, int, int]:
    """The offset of a retained message as our own API, EMQX's and a subscriber are told it."""
    version: int = api.ok("GET", "/api/v1/retained/message", params={"topic": topic})["version"]
    [emqx] = api.ok("GET", "/api/v5/mqtt/retainer/messages", params={"topic": topic})["data"]
    with api.broker.client(5) as client:
        client.connect(unique.client("meta"), properties=[(P.USER_PROPERTY, ("holdfast-retained-meta", "on"))])
        client.subscribe(topic)
        copy = client.expect(Publish, topic=topic)
        return version, int(emqx["msgid"], 16), int(dict(copy.props(P.USER_PROPERTY))["hf-offset"])


@pytest.mark.usefixtures("absent_subscriber")
def test_the_version_of_a_publish_is_the_offset_of_the_message_it_stored(api: Api, unique: Unique) -> None:
    topic = unique.topic("t")
    version = api.set(topic)
    assert stored_offsets(api, unique, topic) == (version, version, version)


@pytest.mark.usefixtures("absent_subscriber")
def test_the_id_of_an_emqx_publish_is_the_id_that_its_listing_shows(api: Api, unique: Unique) -> None:
    topic = unique.topic("t")
    answer = api.post("/api/v5/publish", json={"topic": topic, "payload": "1", "qos": 1, "retain": True})
    assert answer.status_code == 200
    offset = int(answer.json()["id"], 16)
    assert stored_offsets(api, unique, topic) == (offset, offset, offset)


@pytest.mark.usefixtures("absent_subscriber")
def test_the_version_of_a_batch_is_the_offset_of_its_last_message(api: Api, unique: Unique) -> None:
    batch = [{"topic": unique.topic(name), "payload": "1", "qos": 1, "retain": True} for name in ("a", "b")]
    version = api.ok("POST", "/api/v1/publish/batch", json=batch)["version"]
    assert stored_offsets(api, unique, unique.topic("b")) == (version, version, version)


def test_a_message_is_given_the_moment_at_which_it_expires(api: Api, unique: Unique) -> None:
    topic = unique.topic()
    api.set(topic, expiry_s=3600)
    first = api.ok("GET", "/api/v1/retained/message", params={"topic": topic})["expires_at_ms"]
    api.set(topic, "2", expires_at_ms=first)
    again = api.ok("GET", "/api/v1/retained/message", params={"topic": topic})["expires_at_ms"]
    assert 0 <= again - first <= 1000  # whole seconds, rounded up


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"expires_at_ms": 1}, "has passed"),
        ({"expires_at_ms": 10**13, "expiry_s": 1}, "one of expiry_s and expires_at_ms"),
    ],
)
def test_a_moment_that_makes_no_sense_publishes_nothing(
    api: Api, unique: Unique, fields: dict[str, int], told: str
) -> None:
    body = {"topic": unique.topic(), "payload": "1", "retain": True, **fields}
    answer = api.post("/api/v1/publish", json=body)
    assert (answer.status_code, told in answer.json()["detail"]) == (400, True), answer.text
    assert api.topics(filter=unique.topic()) == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('{"topic": ', "body: not JSON, expecting value at character 10"),
        ("[1]", "body: input should be a valid dictionary or object to extract fields from"),
        ('{"topic": ""}', "topic: string should have at least 1 character"),
    ],
)
def test_a_body_that_cannot_be_read_is_told_with_what_is_wrong_and_where(api: Api, body: str, told: str) -> None:
    answer = api.post("/api/v1/publish", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["detail"]) == (422, told)
