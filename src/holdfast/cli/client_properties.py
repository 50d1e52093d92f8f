"""MQTT 5 properties on the command line, in mosquitto's words: `-D COMMAND IDENTIFIER VALUE`.

A user property has a fourth word (`-D publish user-property NAME VALUE`), which no option parser with a fixed number of
words per option can read. `PropertyCommand` packs the words into one before the parser sees them; `parse_properties`
takes them apart again.
"""

from typing import Any, Final

import typer.core

from holdfast.errors import UsageError
from holdfast.protocol.mqtt.properties import Properties

SEPARATOR: Final = "\0"  # the one character that a command line argument cannot contain
FLAGS: Final = ("-D", "--property")

TEXT: Final = "text"
TOPIC: Final = "topic"
BINARY: Final = "binary"
PAIR: Final = "pair"
ID: Final = "identifier"
_LIMITS: Final = {"flag": 1, "u16": 0xFFFF, "u32": 0xFFFFFFFF, ID: 268_435_455}

# Identifier to field and kind of value.
IDENTIFIERS: Final = {
    "authentication-data": ("auth_data", BINARY),
    "authentication-method": ("auth_method", TEXT),
    "content-type": ("content_type", TEXT),
    "correlation-data": ("correlation_data", BINARY),
    "maximum-packet-size": ("maximum_packet_size", "u32"),
    "message-expiry-interval": ("message_expiry", "u32"),
    "payload-format-indicator": ("payload_format", "flag"),
    "receive-maximum": ("receive_maximum", "u16"),
    "request-problem-information": ("request_problem_info", "flag"),
    "request-response-information": ("request_response_info", "flag"),
    "response-topic": ("response_topic", TOPIC),
    "session-expiry-interval": ("session_expiry", "u32"),
    "subscription-identifier": ("subscription_ids", ID),
    "topic-alias": ("topic_alias", "u16"),
    "topic-alias-maximum": ("topic_alias_maximum", "u16"),
    "user-property": ("user_properties", PAIR),
    "will-delay-interval": ("will_delay", "u32"),
}
_MESSAGE: Final = (
    "content-type",
    "correlation-data",
    "message-expiry-interval",
    "payload-format-indicator",
    "response-topic",
    "user-property",
)
COMMANDS: Final = {
    "connect": (
        "authentication-data",
        "authentication-method",
        "maximum-packet-size",
        "receive-maximum",
        "request-problem-information",
        "request-response-information",
        "session-expiry-interval",
        "topic-alias-maximum",
        "user-property",
    ),
    "publish": (*_MESSAGE, "topic-alias"),
    "subscribe": ("subscription-identifier", "user-property"),
    "unsubscribe": ("user-property",),
    "disconnect": ("session-expiry-interval", "user-property"),
    "will": (*_MESSAGE, "will-delay-interval"),
}


class PropertyCommand(typer.core.TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        takes_value = {
            flag for parameter in self.params if not getattr(parameter, "is_flag", False) for flag in parameter.opts
        }
        return super().parse_args(ctx, pack_properties(args, takes_value))


def pack_properties(args: list[str], takes_value: set[str]) -> list[str]:
    """The same arguments, with the three or four words behind each `-D` joined into one."""
    packed: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        packed.append(word)
        if word == "--":
            break
        if word in FLAGS:
            count = 4 if rest[1:2] == ["user-property"] else 3
            if len(rest) < count:
                form = "COMMAND user-property NAME VALUE" if count == 4 else "COMMAND IDENTIFIER VALUE"
                raise UsageError(f"{word} {' '.join(rest)}: expected {form}")
            packed.append(SEPARATOR.join(rest[:count]))
            del rest[:count]
        elif word in takes_value and rest:
            packed.append(rest.pop(0))
    return packed + rest


def parse_properties(packed: list[str], commands: tuple[str, ...]) -> dict[str, Properties]:
    """Properties by command. `commands` are those that make sense for the program."""
    found: dict[str, Properties] = {}
    for words in packed:
        command, identifier, *values = words.split(SEPARATOR)
        command = command.lower()
        if command not in commands:
            raise UsageError(f"-D {command}: expected one of {', '.join(commands)}")
        if identifier not in IDENTIFIERS:
            raise UsageError(f"-D {command} {identifier}: no such property, expected {', '.join(COMMANDS[command])}")
        if identifier not in COMMANDS[command]:
            raise UsageError(f"-D {command} {identifier}: {command} has no such property")
        _set(found.setdefault(command, Properties()), f"-D {command}", identifier, values)
    return found


def _set(properties: Properties, where: str, identifier: str, values: list[str]) -> None:
    field, kind = IDENTIFIERS[identifier]
    if kind == PAIR:
        pairs = properties.user_properties or []
        properties.user_properties = [*pairs, (values[0], values[1])]
        return
    value = values[0]
    if getattr(properties, field) is not None:
        raise UsageError(f"{where} {identifier}: given twice, expected once")
    if kind == TEXT:
        setattr(properties, field, value)
    elif kind in (TOPIC, BINARY):
        setattr(properties, field, value.encode("utf-8", "surrogateescape"))
    else:
        number = _number(value, _LIMITS[kind], f"{where} {identifier}")
        setattr(properties, field, [number] if kind == ID else number)


def _number(value: str, limit: int, where: str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = -1
    if not 0 <= number <= limit:
        raise UsageError(f"{where}: value is {value!r}, expected 0 to {limit}")
    return number
