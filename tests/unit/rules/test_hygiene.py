"""What is worth a look, by the rule itself, by the broker's policy, and by the scan that the service makes."""

import json

import pytest

from holdfast.broker.message import Message, Publisher, topic_field
from holdfast.broker.settings import DROP_FLAG, preset
from holdfast.broker.views import HygieneScan
from holdfast.rules.hygiene import is_command, is_discovery, is_named, is_stale, state_topic
from holdfast.service.hygiene import DAY_MS, gone_publishers, named_state
from rule_cases import (
    COMMANDS,
    DISCOVERIES,
    GHOSTS,
    GONE,
    HELD,
    NO_COMMANDS,
    NO_DISCOVERIES,
    NOW_MS,
    STATE_TOPICS,
    Held,
)

# What the preset was before it followed the rule: topics it must go on refusing.
OLD_FILTERS = ["cmnd/a/b", "x/cmnd/y", *["a/" * depth + "set" for depth in range(1, 8)], "spBv1.0/g/NCMD/n"]


def message(held: Held) -> Message:
    publisher = Publisher(held.client_id, "", held.protocol)
    at_ms = NOW_MS - held.days * DAY_MS
    return Message(topic_field(held.topic.encode()), b"1", 0, True, b"", publisher, 1, at_ms, 0, False)


def scan_of(messages: list[Held]) -> HygieneScan:
    scan = HygieneScan(NOW_MS, NOW_MS - 30 * DAY_MS, NOW_MS, 2, 1000)
    for held in messages:
        scan.add(message(held))
    return scan


@pytest.mark.parametrize("topic", [*COMMANDS, *OLD_FILTERS, "spBv1.0/g/DCMD/n/d"])
def test_a_command_topic_is_one_for_rule_policy_and_scan(topic: str) -> None:
    [policy] = preset("commands")
    assert is_command(topic.encode())
    assert policy.covers(topic.encode().split(b"/"))
    assert policy.action == DROP_FLAG
    assert [one.topic.decode() for one in scan_of([Held(topic, 0, "c")]).commands] == [topic]


@pytest.mark.parametrize("topic", NO_COMMANDS)
def test_another_topic_is_none_for_rule_policy_and_scan(topic: str) -> None:
    [policy] = preset("commands")
    assert not is_command(topic.encode())
    assert not policy.covers(topic.encode().split(b"/"))
    assert scan_of([Held(topic, 0, "c")]).commands == []


def test_an_unknown_preset_has_no_policies() -> None:
    assert preset("nothing") == []


@pytest.mark.parametrize("topic", DISCOVERIES)
def test_a_discovery_topic_is_one(topic: str) -> None:
    assert is_discovery(topic.encode())
    assert len(scan_of([Held(topic, 0, "c")]).discovery) == 1


@pytest.mark.parametrize("topic", NO_DISCOVERIES)
def test_another_topic_is_no_discovery(topic: str) -> None:
    assert not is_discovery(topic.encode())
    assert scan_of([Held(topic, 0, "c")]).discovery == []


@pytest.mark.parametrize(("payload", "expected"), STATE_TOPICS)
def test_the_state_topic_of_a_discovery_is_found(payload: bytes, expected: str) -> None:
    assert named_state(payload) == expected


def test_a_state_topic_that_is_no_text_names_none() -> None:
    assert named_state(b'{"state_topic": "\\ud800"}') == ""
    assert named_state(b"[" * 100_000) == ""
    assert state_topic(json.loads("3")) == ""


def test_publishers_that_wrote_nothing_for_long_have_gone() -> None:
    scan = scan_of(HELD)
    assert {str(one["client_id"]) for one in gone_publishers(scan, [])} == GONE
    assert gone_publishers(scan, ["gone"]) == []


def test_ghosts_are_stale_messages_whose_publisher_has_gone_or_has_no_name() -> None:
    scan = scan_of(HELD)
    gone = {one["client_id"] for one in gone_publishers(scan, [])}
    ghosts = {
        one.topic.decode()
        for one in scan.stale
        if one.publisher.client_id in gone or not is_named(one.publisher.client_id, one.publisher.protocol)
    }
    assert ghosts == GHOSTS
    assert all(is_stale(one.stored_at_ms, scan.stale_before_ms) for one in scan.stale)
