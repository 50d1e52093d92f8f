"""The rules of `holdfast.rules` as tables of cases, for everything that follows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

COMMANDS = [
    "cmnd/lamp/POWER",
    "cmnd",
    "tasmota/cmnd/POWER",
    "home/kitchen/lamp/cmnd/POWER",
    "zigbee2mqtt/lamp/set",
    "a/set",
    "1/2/3/4/5/6/7/8/9/set",
    "lamp/SET",
    "Device/Command",
    "shellies/plug/relay/0/command",
    "shelly/command/switch:0",
    "cmd/app/device",
    "factory/commands/line/1",
    "a/CMD/b",
    "spBv1.0/plant/NCMD/edge",
    "spBv1.0/plant/DCMD/edge/pump",
    "spbv1.0/plant/ncmd/edge",
]
NO_COMMANDS = [
    "set",
    "set/point",
    "a/setpoint",
    "a/set/b",
    "stat/lamp/POWER",
    "commander/1",
    "a/cmds",
    "spBv1.0/plant/NDATA/edge",
    "spBv1.0/NCMD/plant/edge",
    "plant/spBv1.0/NCMD/edge",
    "$hidden/set",
    "a\nset",
    "ümlaut/zustand",
]

DISCOVERIES = [
    "homeassistant/sensor/a/config",
    "homeassistant/sensor/node/a/config",
    "homeassistant/sensor//config",
]
NO_DISCOVERIES = [
    "homeassistant/config",
    "homeassistant/sensor/config",
    "homeassistant/sensor/1/2/3/config",
    "homeassistant/sensor/a/state",
    "homeassistants/sensor/a/config",
    "HomeAssistant/sensor/a/config",
    "home/homeassistant/sensor/a/config",
]

# The payload of a discovery, and the state topic that it names.
STATE_TOPICS = [
    (b'{"state_topic": "dev/state"}', "dev/state"),
    (b'{"stat_t": "dev/state"}', "dev/state"),
    (b'{"state_topic": "long", "stat_t": "short"}', "long"),
    (b'{"state_topic": "", "stat_t": "short"}', "short"),
    (b'{"state_topic": 5, "stat_t": "short"}', "short"),
    (b'{"state_topic": null}', ""),
    (b'{"~": "dev/a", "stat_t": "~/state"}', "dev/a/state"),
    (b'{"~": "dev/a", "stat_t": "state/~"}', "state/dev/a"),
    (b'{"~": "dev/a", "stat_t": "~"}', "dev/a"),
    (b'{"~": "dev/a", "stat_t": "~/x/~"}', "dev/a/x/~"),
    (b'{"~": "dev/a", "stat_t": "a/~/b"}', "a/~/b"),
    (b'{"~": "", "stat_t": "~state"}', "state"),
    (b'{"stat_t": "~/state"}', "~/state"),
    (b'{"~": 5, "stat_t": "~/state"}', "~/state"),
    (b'{"name": "no state"}', ""),
    (b'["state_topic"]', ""),
    (b'"state_topic"', ""),
    (b"no JSON", ""),
    (b"\xff", ""),
    (b"", ""),
]


@dataclass(frozen=True)
class Held:
    """A retained message: days since it was set, and who set it."""

    topic: str
    days: int
    client_id: str
    protocol: str = "5.0"


# With 30 days: which of these are ghosts, and which publishers have gone. Nobody has a session.
HELD = [
    Held("gone/1", 40, "gone"),
    Held("gone/2", 31, "gone"),
    Held("there/1", 40, "there"),
    Held("there/2", 1, "there"),
    Held("nameless/old", 40, ""),
    Held("nameless/new", 1, ""),
    Held("api/old", 40, "api-1", "api"),
    Held("api/new", 1, "api-1", "api"),
    Held("young/1", 29, "young"),
    Held("unnamed/old", 40, "hf-0123abcd-7"),  # what a broker calls a client that gave itself no id
    Held("unnamed/older", 41, "hf-89abcdef-12"),
    Held("unnamed/new", 1, "hf-0123abcd-8"),
    Held("$hidden/1", 40, "hidden"),
]
GHOSTS = {"gone/1", "gone/2", "nameless/old", "api/old", "unnamed/old", "unnamed/older"}
GONE = {"gone"}

NOW_MS = 1_800_000_000_000


@dataclass(frozen=True)
class RestoreCase:
    """A message of the past, what is retained now, and the verdict with and without `replace`. `left_ms` is the time
    that the past message has to live, None when it never expires.
    """

    name: str
    verdict: str
    replacing: str
    left_ms: int | None = None
    present: bool = True
    changed: dict[str, Any] = field(default_factory=dict)


CONTENT: dict[str, Any] = {
    "payload": b"value",
    "qos": 1,
    "content_type": "text/plain",
    "response_topic": "back",
    "correlation_data": b"\x00\xff",
    "payload_format": 1,
    "user_properties": [("a", "1"), ("b", "2")],
}

RESTORES = [
    RestoreCase("nothing there", "restored", "restored", present=False),
    RestoreCase("nothing there, lives", "restored", "restored", 400, present=False),
    RestoreCase("nothing there, over", "expired", "expired", 0, present=False),
    RestoreCase("the same", "present", "present"),
    RestoreCase("the same, another expiry", "present", "present", 400),
    RestoreCase("the same, over", "expired", "expired", -1),
    RestoreCase("something else, over", "expired", "expired", -1, changed={"payload": b"other"}),
    RestoreCase("another payload", "present", "restored", changed={"payload": b"other"}),
    RestoreCase("another QoS", "present", "restored", changed={"qos": 0}),
    RestoreCase("another content type", "present", "restored", changed={"content_type": None}),
    RestoreCase("another response topic", "present", "restored", changed={"response_topic": "elsewhere"}),
    RestoreCase("other correlation data", "present", "restored", changed={"correlation_data": b""}),
    RestoreCase("another payload format", "present", "restored", changed={"payload_format": 0}),
    RestoreCase("no user properties", "present", "restored", changed={"user_properties": []}),
    RestoreCase("another order", "present", "restored", changed={"user_properties": [("b", "2"), ("a", "1")]}),
]
# Milliseconds to live, and the expiry interval to publish with.
SECONDS_LEFT = [(1, 1), (400, 1), (999, 1), (1000, 1), (1001, 2), (3_600_000, 3600)]
