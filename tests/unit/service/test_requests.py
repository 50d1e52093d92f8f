"""What is asked for: conditions, messages to publish and moments, valid or refused with expected and got."""

from typing import Any

import pytest

from holdfast.errors import ProtocolError, UsageError
from holdfast.service.messages import decode_forwarded
from holdfast.service.requests import (
    Publication,
    RestoreRequest,
    check_filter,
    conditions_from,
    publications_from,
    topic_bytes,
)

NOW_MS = 1_700_000_000_000


def test_conditions_become_a_query() -> None:
    given = {"contains": "ü", "client_id": "c", "username": "u", "min_size": 1, "max_size": 9, "older_than": 1.5}
    query = conditions_from({**given, "newer_than": 60}).query(NOW_MS)
    assert (query.contains, query.client_id, query.username) == ("ü".encode(), "c", "u")
    assert (query.min_size, query.max_size) == (1, 9)
    assert (query.stored_before_ms, query.stored_after_ms) == (NOW_MS - 1500, NOW_MS - 60_000)


def test_conditions_that_are_not_given_ask_for_nothing() -> None:
    query = conditions_from({}).query(NOW_MS)
    assert (query.min_size, query.max_size, query.stored_before_ms, query.stored_after_ms) == (-1, -1, -1, -1)
    assert not query.hidden


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"colour": "red"}, "colour: extra inputs are not permitted"),
        ({"min_size": -2}, "min_size: input should be greater than or equal to -1"),
        ({"filter": ""}, "filter: string should have at least 1 character"),
    ],
)
def test_conditions_that_make_no_sense_are_refused_by_name(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        conditions_from(given)


def test_a_lone_surrogate_is_no_text() -> None:
    with pytest.raises(UsageError, match="lone surrogate"):
        topic_bytes("\ud800")
    with pytest.raises(UsageError, match="contains: input should be a valid string"):
        conditions_from({"contains": "\ud800"})


@pytest.mark.parametrize("topic_filter", ["a/#/b", "a+", "#a", "a\0b", "\ud800"])
def test_a_filter_that_is_none_is_refused(topic_filter: str) -> None:
    with pytest.raises(UsageError, match="is not a topic filter"):
        check_filter(topic_filter)


@pytest.mark.parametrize(("topic", "error"), [("", UsageError), ("x" * 65536, UsageError), ("a\0b", ProtocolError)])
def test_a_topic_that_no_packet_can_hold_is_refused(topic: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        topic_bytes(topic)


def test_a_publication_carries_its_properties() -> None:
    [one] = publications_from(
        [
            {
                "topic": "t",
                "payload": "AP8=",
                "encoding": "base64",
                "content_type": "x",
                "response_topic": "back",
                "correlation_data": "AQ==",
                "payload_format": 1,
                "user_properties": [["a", "1"], ["a", "2"]],
            }
        ]
    )
    assert one.payload_bytes() == b"\x00\xff"
    found = decode_forwarded(one.properties_bytes())
    assert (found.content_type, found.response_topic, found.correlation_data) == ("x", b"back", b"\x01")
    assert (found.payload_format, found.user_properties) == (1, [("a", "1"), ("a", "2")])


@pytest.mark.parametrize(
    "field", [{"qos": 3}, {"topic": ""}, {"expiry_s": -1}, {"payload_format": 2}, {"encoding": "hex"}, {"extra": 1}]
)
def test_a_publication_that_is_not_valid_is_refused(field: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(field))):
        publications_from([{"topic": "t", **field}])


@pytest.mark.parametrize("field", [{"content_type": "a\0"}, {"user_properties": [["k", "\0"]]}])
def test_a_property_with_a_nul_is_refused(field: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="has a NUL"):
        Publication.model_validate({"topic": "t", **field}).properties_bytes()


@pytest.mark.parametrize("moment", [{}, {"at_ms": 1, "offset": 1}])
def test_a_restore_names_one_moment(moment: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="expected one of at_ms and offset"):
        RestoreRequest.model_validate({"filter": "#", **moment}).check()
