"""The lines of a bridge: mosquitto's form, with rules of our own behind it."""

import pytest

from holdfast.rules.bridge_topic import BridgeTopic, parse_bridge_topic


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a/#", BridgeTopic("a/#")),
        ("a/# in", BridgeTopic("a/#", "in")),
        ("a/# both 2", BridgeTopic("a/#", "both", 2)),
        ("a/# out 1 here/", BridgeTopic("a/#", "out", 1, "here/")),
        ('a/# out 1 "" there/', BridgeTopic("a/#", "out", 1, "", "there/")),
        ('"" in 0 here/x there/y', BridgeTopic("", "in", 0, "here/x", "there/y")),
        ('"with space/#" out 1 "a b/"', BridgeTopic("with space/#", "out", 1, "a b/")),
        ("a/# in 1 retain=strip", BridgeTopic("a/#", "in", 1, retain="strip")),
        ("a/# retain=set expiry=60", BridgeTopic("a/#", retain="set", expiry_s=60)),
    ],
)
def test_a_line_is_read_and_written_in_one_form(line: str, expected: BridgeTopic) -> None:
    assert parse_bridge_topic(line) == expected
    assert parse_bridge_topic(str(expected)) == expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "expected PATTERN"),
        ("a b c d e f", "expected PATTERN"),
        ("a sideways", "expected a direction"),
        ("a out 3", "expected a QoS"),
        ("a out 1 +/ b/", "without wildcards"),
        ('"" out 1 a ""', "both topics"),
        ('"a', "closing"),
        ("a retain=maybe", "expected retain="),
        ("a expiry=1h", "whole seconds"),
    ],
)
def test_what_is_no_line_says_what_was_expected(line: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_bridge_topic(line)


def test_prefixes_are_exchanged_on_the_way() -> None:
    topic = parse_bridge_topic("a/# both 1 here/ there/x/")
    assert (topic.local_filter, topic.remote_filter) == ("here/a/#", "there/x/a/#")
    assert topic.to_remote(b"here/a/b") == b"there/x/a/b"
    assert topic.to_local(b"there/x/a/b") == b"here/a/b"
