"""What in a retained set is worth a look. Read by the broker's policies, the API, the command line and the Spark
report, which therefore say the same of the same set.

**Hidden topics** begin with `$`. No wildcard reaches them, and they are left out of everything below.

**A command topic** is one on which a message is an order, not a state; kept, it is carried out again at every
reconnect. Letters count the same large and small. A topic is one when

- one of its levels is `cmnd`, `cmd`, `command` or `commands` (Tasmota, ESPHome, Shelly, AWS, and names people
  choose), or
- its last level is `set` and it has more than one (Zigbee2MQTT, Homie, Home Assistant), or
- it is a Sparkplug command: `spBv1.0` first, `NCMD` or `DCMD` third.

**A stale message** was set before a moment, usually 30 days ago.

**A publisher has gone** when it has a name, all of its retained messages are stale, and it has no session. Where
sessions are not known, as in the history, the messages decide alone. What came through the API has no named
publisher: its client id is that of an operation. Nor has what a client sent that gave itself no id: the one it was
given is another each time.

**A ghost** is a stale message whose publisher has gone or has no name.

**Discovery** is Home Assistant's: `homeassistant/<component>/[<node>/]<object>/config`. Its state topic is the first
of `state_topic` and `stat_t` that is a text and not empty. A `~` at its beginning, else one at its end, stands for
the text under `~`, where there is one. A discovery without state names a state topic on which nothing is retained,
and which, as far as is known, nobody publishes to: a device whose state is never kept is well all the same. A running
broker knows that of these topics; in the history it is not looked for.
"""

from typing import Final

HIDDEN: Final = "$"
API_PROTOCOL: Final = "api"

COMMAND_LEVELS: Final = ("cmnd", "cmd", "command", "commands")
COMMAND_LAST: Final = "set"
SPARKPLUG_FIRST: Final = "spbv1.0"
SPARKPLUG_THIRD: Final = ("ncmd", "dcmd")

DISCOVERY_FIRST: Final = "homeassistant"
DISCOVERY_LAST: Final = "config"
DISCOVERY_LEVELS: Final = (4, 5)
STATE_TOPIC_KEYS: Final = ("state_topic", "stat_t")
BASE_TOPIC_KEY: Final = "~"

# The client ids that a broker gives to those without one.
ASSIGNED_PREFIX: Final = "hf-"
ASSIGNED_PATTERN: Final = "^hf-[0-9a-f]{8}-[0-9]+$"
_RANDOM_DIGITS: Final = "0123456789abcdef"

_COMMAND_LEVELS: Final = [level.encode() for level in COMMAND_LEVELS]
_COMMAND_LAST: Final = COMMAND_LAST.encode()
_SPARKPLUG_FIRST: Final = SPARKPLUG_FIRST.encode()
_SPARKPLUG_THIRD: Final = [level.encode() for level in SPARKPLUG_THIRD]
_DISCOVERY_FIRST: Final = DISCOVERY_FIRST.encode()
_DISCOVERY_LAST: Final = DISCOVERY_LAST.encode()


def is_hidden(topic: bytes) -> bool:
    return topic.startswith(b"$")


def is_command(topic: bytes) -> bool:
    """Whether this is a command topic."""
    if is_hidden(topic):
        return False
    levels = topic.lower().split(b"/")
    count = len(levels)
    if count > 1 and levels[count - 1] == _COMMAND_LAST:
        return True
    for level in levels:
        if level in _COMMAND_LEVELS:
            return True
    return count > 2 and levels[0] == _SPARKPLUG_FIRST and levels[2] in _SPARKPLUG_THIRD


def is_named(client_id: str, protocol: str) -> bool:
    """Whether a message tells which client published it."""
    return client_id != "" and protocol != API_PROTOCOL and not is_assigned(client_id)


def is_assigned(client_id: str) -> bool:
    """Whether a broker made up this client id: ASSIGNED_PATTERN, without the price of an expression."""
    if not client_id.startswith(ASSIGNED_PREFIX):
        return False
    drawn, dash, number = client_id[len(ASSIGNED_PREFIX) :].partition("-")
    if len(drawn) != 8 or dash == "" or number == "":
        return False
    return all(one in _RANDOM_DIGITS for one in drawn) and all(one in "0123456789" for one in number)


def is_stale(stored_at_ms: int, before_ms: int) -> bool:
    return stored_at_ms < before_ms


def has_gone(newest_ms: int, before_ms: int, has_session: bool) -> bool:
    """Whether a named publisher has gone, given when its newest retained message was set."""
    return is_stale(newest_ms, before_ms) and not has_session


def is_discovery(topic: bytes) -> bool:
    """Whether this is a topic of a discovery configuration."""
    if not topic.startswith(_DISCOVERY_FIRST):
        return False
    levels = topic.split(b"/")
    count = len(levels)
    return count in DISCOVERY_LEVELS and levels[0] == _DISCOVERY_FIRST and levels[count - 1] == _DISCOVERY_LAST


def state_topic(config: object) -> str:
    """The state topic that a discovery configuration names; empty when it names none. `config` is parsed JSON."""
    if not isinstance(config, dict):
        return ""
    for key in STATE_TOPIC_KEYS:
        topic = config.get(key)
        if isinstance(topic, str) and topic != "":
            return resolved(topic, config.get(BASE_TOPIC_KEY))
    return ""


def resolved(topic: str, base: object) -> str:
    """A topic with its `~` filled in."""
    if isinstance(base, str):
        if topic.startswith("~"):
            return base + topic[1:]
        if topic.endswith("~"):
            return topic[:-1] + base
    return topic
