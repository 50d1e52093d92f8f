import pytest

from holdfast.broker.access import ALL, PUBLISH, RECEIVE, RETAIN, SUBSCRIBE, Access, Rule


def may(access: Access, action: int, topic: str, user: str = "alice", client: str = "c1") -> bool:
    return access.may(action, user, client, topic.encode().split(b"/"))


def test_the_first_matching_rule_decides() -> None:
    access = Access([Rule(False, PUBLISH, b"a/secret", None, None), Rule(True, ALL, b"a/#", None, None)], False)
    assert not may(access, PUBLISH, "a/secret")
    assert may(access, PUBLISH, "a/b")
    assert may(access, RECEIVE, "a/secret")


@pytest.mark.parametrize("unmatched", [True, False])
def test_what_no_rule_matches_gets_the_default(unmatched: bool) -> None:
    assert may(Access([Rule(True, ALL, b"a", None, None)], unmatched), PUBLISH, "b") is unmatched


def test_a_subscription_needs_a_rule_that_covers_all_of_it() -> None:
    access = Access([Rule(True, SUBSCRIBE, b"a/+", None, None)], False)
    assert may(access, SUBSCRIBE, "a/b")
    assert may(access, SUBSCRIBE, "a/+")
    assert not may(access, SUBSCRIBE, "a/#")
    assert not may(access, SUBSCRIBE, "#")


def test_the_right_to_retain_is_its_own() -> None:
    access = Access([Rule(True, PUBLISH, b"a/#", None, None)], False)
    assert may(access, PUBLISH, "a/b")
    assert not may(access, RETAIN, "a/b")


def test_rules_can_name_user_and_client() -> None:
    access = Access([Rule(True, ALL, b"u", "alice", None), Rule(True, ALL, b"c", None, "c1")], False)
    assert may(access, PUBLISH, "u")
    assert not may(access, PUBLISH, "u", user="bob")
    assert may(access, PUBLISH, "c", user="bob")
    assert not may(access, PUBLISH, "c", client="c2")


@pytest.mark.parametrize("name", ["+", "#", "a/b", "", "x+", "#/#"])
def test_a_name_with_wildcards_or_separators_widens_no_pattern(name: str) -> None:
    access = Access([Rule(True, ALL, b"home/%u/#", None, None)], False)
    assert not may(access, PUBLISH, f"home/{name}/x", user=name)
    assert not may(access, PUBLISH, "home/alice/x", user=name)


def test_placeholders_are_filled_once() -> None:
    access = Access([Rule(True, ALL, b"%u/%c", None, None)], False)
    assert may(access, PUBLISH, "%c/c1", user="%c")
    assert not may(access, PUBLISH, "c1/c1", user="%c")
