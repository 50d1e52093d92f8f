"""Rules in TOML: what each condition does, and how the broker asks."""

import pytest

from holdfast.broker.access import ANY_QOS, PUBLISH, RECEIVE, RETAIN, SUBSCRIBE, Access
from holdfast.config.settings import Settings
from holdfast.from_settings import access_rules


def rules(*access: dict[str, object], no_match: str = "deny", groups: dict[str, list[str]] | None = None) -> Access:
    group = [{"name": name, "users": users} for name, users in (groups or {}).items()]
    settings = Settings.model_validate({"access": list(access), "auth": {"no_match": no_match, "group": group}})
    made = access_rules(settings)
    assert made is not None
    return made


def may(access: Access, action: int, topic: str, user: str = "u", client: str = "c", **more: object) -> bool:
    return access.may(action, user, client, topic.encode().split(b"/"), **more)  # type: ignore[arg-type]


def test_without_rules_nothing_is_asked() -> None:
    assert access_rules(Settings()) is None


def test_the_first_rule_that_matches_decides() -> None:
    access = rules(
        {"permission": "deny", "action": "publish", "filter": "a/b"},
        {"permission": "allow", "action": "publish", "filter": "a/#"},
    )
    assert not may(access, PUBLISH, "a/b")
    assert may(access, PUBLISH, "a/c")
    assert not may(access, PUBLISH, "b")


def test_the_right_to_retain_is_a_right_of_its_own() -> None:
    access = rules({"permission": "allow", "action": "publish", "filter": "#"})
    assert may(access, PUBLISH, "a")
    assert not may(access, RETAIN, "a")


def test_a_group_is_its_users() -> None:
    access = rules(
        {"permission": "allow", "action": "publish", "filter": "#", "group": "crew"}, groups={"crew": ["ann", "bob"]}
    )
    assert may(access, PUBLISH, "a", "ann")
    assert may(access, PUBLISH, "a", "bob")
    assert not may(access, PUBLISH, "a", "crew")
    assert not may(access, PUBLISH, "a", "")


def test_a_rule_for_one_qos_is_about_no_other() -> None:
    access = rules({"permission": "allow", "action": ["publish", "subscribe"], "filter": "#", "qos": [0, 1]})
    assert access.asks_qos
    assert [may(access, PUBLISH, "a", qos=qos) for qos in (0, 1, 2)] == [True, True, False]
    assert [may(access, SUBSCRIBE, "#", qos=qos) for qos in (0, 1, 2)] == [True, True, False]


def test_a_denial_of_one_qos_does_not_stop_deliveries() -> None:
    access = rules(
        {"permission": "deny", "action": "subscribe", "filter": "#", "qos": 2},
        {"permission": "allow", "action": "all", "filter": "#"},
    )
    assert not may(access, SUBSCRIBE, "a", qos=2)
    assert may(access, SUBSCRIBE, "a", qos=ANY_QOS)
    assert access.may_receive("u", "c", [b"a"], False)


def test_a_rule_for_certificates_is_about_no_password() -> None:
    access = rules({"permission": "allow", "action": "publish", "filter": "#", "certificate": True})
    assert may(access, PUBLISH, "a", certified=True)
    assert not may(access, PUBLISH, "a")


def test_a_subscription_to_everything_does_not_bring_what_is_denied() -> None:
    access = rules(
        {"permission": "deny", "action": "subscribe", "filter": "secret/#"},
        {"permission": "allow", "action": "all", "filter": "#"},
    )
    assert may(access, SUBSCRIBE, "#")
    assert access.may_receive("u", "c", [b"open"], False)
    assert not access.may_receive("u", "c", [b"secret", b"x"], False)


@pytest.mark.parametrize("name", ["+", "#", "a/b", "/", "a+", "", "x/#"])
def test_a_name_cannot_widen_a_pattern(name: str) -> None:
    access = rules({"permission": "allow", "action": "all", "filter": ["u/%u/x", "c/%c/x"]})
    for topic in ("u/a/x", "u/a/b/x", "u//x", f"u/{name}/x"):
        assert not may(access, PUBLISH, topic, user=name, client="plain")
    for topic in ("c/a/x", "c/a/b/x", f"c/{name}/x"):
        assert not may(access, PUBLISH, topic, user="plain", client=name)
    assert not may(access, SUBSCRIBE, "u/+/x", user=name, client="plain")


def test_a_placeholder_in_a_name_is_not_filled_in_again() -> None:
    access = rules({"permission": "allow", "action": "publish", "filter": "u/%u"})
    assert may(access, PUBLISH, "u/%c", user="%c", client="victim")
    assert not may(access, PUBLISH, "u/victim", user="%c", client="victim")


def test_a_wildcard_is_no_way_to_topics_of_the_broker() -> None:
    access = rules({"permission": "allow", "action": "all", "filter": ["#", "+/#"]})
    assert not may(access, RECEIVE, "$SYS/broker/version")
    assert not may(access, SUBSCRIBE, "$SYS/#")


@pytest.mark.parametrize("name", ["b/ob", "+", "#", "b+", "b#", "/"])
def test_a_denial_holds_for_names_that_do_not_fit_its_pattern(name: str) -> None:
    access = rules(
        {"permission": "deny", "action": "all", "filter": ["status/%u/locked", "id/%c/locked"]},
        {"permission": "allow", "action": "all", "filter": "#"},
    )
    for action in (PUBLISH, SUBSCRIBE):
        assert not may(access, action, f"status/{name}/locked", user=name, client="plain")
        assert not may(access, action, f"id/{name}/locked", user="plain", client=name)
        assert may(access, action, "elsewhere", user=name, client=name)
        assert may(access, action, "status/other/locked", user="plain", client="plain")
        assert may(access, action, "status/other/locked", user="", client="plain"), "who has no name is denied nothing"


def test_a_denial_that_begins_with_a_name_covers_all_for_one_that_does_not_fit() -> None:
    access = rules(
        {"permission": "deny", "action": "all", "filter": "%u/locked"},
        {"permission": "allow", "action": "all", "filter": ["#", "$mine/#"]},
    )
    for topic in ("$mine/bob/locked", "anything"):
        assert not may(access, PUBLISH, topic, user="$mine/bob")
