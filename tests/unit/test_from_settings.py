"""Which changed settings a running broker takes over, and which it must name because they need a restart."""

import pytest

from holdfast.config import Settings
from holdfast.from_settings import needs_restart

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
