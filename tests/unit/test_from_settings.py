"""Which changed settings a running broker takes over, and which it must name because they need a restart."""

import pytest

from holdfast.broker.settings import SHARED_SETTINGS, shared_settings
from holdfast.config import Settings
from holdfast.config.settings import SHARED_KEYS
from holdfast.from_settings import broker_settings, needs_restart, what_is_recorded

TAKEN_OVER = [
    {"log": {"level": "debug"}},
    {"auth": {"check_retain_source": False}},
    {"auth": {"allow_anonymous": True}},
    {"auth": {"client_id": "%u-*"}},
    {"tls": {"min_version": "1.3"}},
    {"bans": {"users": ["mallory"]}},
    {"retainer": {"max_retained_messages": 5}},
    {"access": [{"permission": "deny", "action": "publish", "filter": "#"}]},
]
NEED_A_RESTART = [
    ({"limits": {"max_qos": 1}}, ["limits.max_qos"]),
    ({"retainer": {"storage_type": "ram", "max_payload_size": "1KB"}}, ["retainer.storage_type"]),
    ({"callback": {"url": "http://127.0.0.1:1/", "at_once": 3}}, ["callback.at_once"]),
    ({"listen": ["tcp://127.0.0.1:1"]}, ["listen"]),
    ({"api": {"cors": ["https://example.org"]}}, ["api.cors"]),
    ({"durability": "none", "sys": {"interval": 3}}, ["durability", "sys.interval"]),
]


@pytest.mark.parametrize("change", TAKEN_OVER, ids=str)
def test_a_running_broker_takes_it_over(change: dict[str, object]) -> None:
    changed = Settings.model_validate(change)
    assert changed != Settings(), "the row must change something"
    assert needs_restart(Settings(), changed) == []


@pytest.mark.parametrize(("change", "named"), NEED_A_RESTART, ids=str)
def test_it_is_named_because_it_needs_a_restart(change: dict[str, object], named: list[str]) -> None:
    assert needs_restart(Settings(), Settings.model_validate(change)) == named


@pytest.mark.parametrize(
    ("history", "said"),
    [
        (
            {},
            "every publish with RETAIN is recorded and kept for 30d or until the table has 10GiB, whichever comes",
        ),
        ({"record": "all", "retention": 0}, "every publish is recorded and kept until the table has 10GiB;"),
        (
            {"filter": ["a/#", "b"], "retention_bytes": 0},
            "every publish with RETAIN to a/#, b is recorded and kept for 30d;",
        ),
        ({"retention": 0, "retention_bytes": 0}, "kept forever; rows of currently retained messages are always kept."),
    ],
)
def test_the_log_says_what_is_recorded_for_how_long_and_how_to_change_it(history: dict[str, object], said: str) -> None:
    line = what_is_recorded(Settings.model_validate({"history": history}))
    assert said in line
    assert all(key in line for key in ("history.record", "history.retention", "history.retention_bytes"))


def another(key: str) -> object:
    """A value of a setting that is not its default."""
    default: object = Settings()
    for part in key.split("."):
        default = getattr(default, part)
    if isinstance(default, bool):
        return not default
    return [{"filter": "a/#", "action": "refuse"}] if isinstance(default, list) else 7


@pytest.mark.parametrize("key", [*SHARED_KEYS, "limits.max_qos", "limits.max_subscriptions", "limits.max_inflight"])
def test_what_nodes_agree_on_is_what_is_called_the_clusters(key: str) -> None:
    section, _, name = key.partition(".")
    value = 1 if key == "limits.max_qos" else another(key)
    changed = broker_settings(Settings.model_validate({section: {name: value}}))
    assert (shared_settings(changed) != shared_settings(broker_settings(Settings()))) == (key in SHARED_KEYS)


def test_nothing_is_shared_that_no_setting_is_named_for() -> None:
    assert len(SHARED_KEYS) == len(SHARED_SETTINGS) + 1  # the policies are a list of their own
