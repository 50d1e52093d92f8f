"""Messages and packets as text: what `sub -F` prints of each message, and the line that `-d` prints for each packet.

A format string is in mosquitto_sub's language, checked once and then applied to each message. `%` starts a part of the
message, `@` a part of the local time (as strftime), `\\` a character that is hard to type. A width may stand after `%`,
as in printf: `%-20t`, `%06l`, `%10.10t`.
"""

import json
import re
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from holdfast.errors import UsageError
from holdfast.protocol.mqtt.packets import (
    Ack,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Publish,
    SubAck,
    Subscribe,
    Unsubscribe,
)
from holdfast.protocol.mqtt.properties import Properties

ESCAPES: Final = {"\\": b"\\", "0": b"\0", "a": b"\a", "e": b"\033", "n": b"\n", "r": b"\r", "t": b"\t", "v": b"\v"}
ZERO_PADDED: Final = "AEFlmSxX"  # where a leading 0 means padding with zeros
CUT: Final = "CIRt"  # where a maximum width applies
_FIELD: Final = re.compile(r"%(?P<flags>[0-]*)(?P<width>\d*)(?:\.(?P<most>\d*))?(?P<what>.)?", re.DOTALL)
NAMES = (
    "reserved",
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "AUTH",
)


class Moment:
    """When a message came, read once so that every part of a line tells the same time."""

    def __init__(self) -> None:
        self.nanoseconds = time.time_ns()

    @property
    def local(self) -> datetime:
        return datetime.fromtimestamp(self.nanoseconds // 1_000_000_000).astimezone()

    def strftime(self, code: str) -> str:
        if code == "N":
            return f"{self.nanoseconds % 1_000_000_000:09d}"
        return self.local.strftime(f"%{code}")

    def iso(self) -> str:
        return self.local.strftime("%Y-%m-%dT%H:%M:%S%z")

    def precise(self) -> str:
        microseconds = self.nanoseconds // 1_000 % 1_000_000
        return self.local.strftime(f"%Y-%m-%dT%H:%M:%S.{microseconds:06d}%z")


Part = Callable[[Publish, Moment], bytes]


class PayloadNotJson(Exception):
    """`%J` met a payload that is not JSON; the message is not printed."""


def compile_format(template: str, pretty: bool = False) -> list[Part]:
    """The parts of a line. Raises UsageError for a sequence that does not exist."""
    parts: list[Part] = []
    position = 0
    while position < len(template):
        start = template[position]
        if start == "%":
            found = _FIELD.match(template, position)
            assert found is not None
            parts.append(_field(found, pretty))
            position = found.end()
        elif start in "@\\":
            code = template[position + 1 : position + 2]
            parts.append(_time(code) if start == "@" else _escape(code))
            position += 2
        else:
            end = next((at for at in range(position, len(template)) if template[at] in "%@\\"), len(template))
            parts.append(_literal(template[position:end].encode("utf-8", "surrogateescape")))
            position = end
    return parts


def render(parts: list[Part], message: Publish, moment: Moment) -> bytes:
    return b"".join([part(message, moment) for part in parts])


def _literal(text: bytes) -> Part:
    return lambda message, moment: text


def _escape(code: str) -> Part:
    if code not in ESCAPES:
        raise UsageError(f"-F: \\{code} is not an escape, expected one of {' '.join(chr(92) + key for key in ESCAPES)}")
    return _literal(ESCAPES[code])


def _time(code: str) -> Part:
    if not code:
        raise UsageError("-F: @ stands at the end, expected a letter behind it")
    if code == "@":
        return _literal(b"@")
    return lambda message, moment: moment.strftime(code).encode()


def _field(found: re.Match[str], pretty: bool) -> Part:
    what = found["what"]
    if what is None:
        raise UsageError("-F: % stands at the end, expected a letter behind it")
    if what == "%":
        return _literal(b"%")
    if what in "jJ":
        return lambda message, moment: _json(message, moment, what == "J", pretty).encode()
    value = _VALUES.get(what)
    if value is None:
        raise UsageError(
            f"-F: %{what} does not exist, expected one of {' '.join('%' + key for key in (*_VALUES, *'jJ'))}"
        )
    left = "-" in found["flags"]
    fill = b"0" if "0" in found["flags"] and not left and what in ZERO_PADDED else b" "
    width = int(found["width"] or 0)
    most = int(found["most"]) if found["most"] and what in CUT else None
    if not width and most is None:
        return value

    def padded(message: Publish, moment: Moment) -> bytes:
        text = value(message, moment)[:most]
        return text.ljust(width) if left else text.rjust(width, fill)

    return padded


def _property(name: str) -> Part:
    def value(message: Publish, moment: Moment) -> bytes:
        found = None if message.properties is None else getattr(message.properties, name)
        if found is None:
            return b""
        return found if isinstance(found, bytes) else str(found).encode()

    return value


def _user_properties(message: Publish, moment: Moment) -> bytes:
    pairs = None if message.properties is None else message.properties.user_properties
    return " ".join(f"{key}:{value}" for key, value in pairs or []).encode()


def _subscription_ids(message: Publish, moment: Moment) -> bytes:
    ids = None if message.properties is None else message.properties.subscription_ids
    return " ".join(str(number) for number in ids or []).encode()


def _unix_time(message: Publish, moment: Moment) -> bytes:
    seconds, nanoseconds = divmod(moment.nanoseconds, 1_000_000_000)
    return f"{seconds}.{nanoseconds:09d}".encode()


_VALUES: Final[dict[str, Part]] = {
    "t": lambda message, moment: message.topic,
    "p": lambda message, moment: message.payload,
    "q": lambda message, moment: b"%d" % message.qos,
    "r": lambda message, moment: b"%d" % message.retain,
    "l": lambda message, moment: b"%d" % len(message.payload),
    "m": lambda message, moment: b"%d" % message.packet_id,
    "x": lambda message, moment: message.payload.hex().encode(),
    "X": lambda message, moment: message.payload.hex().upper().encode(),
    "A": _property("topic_alias"),
    "C": _property("content_type"),
    "D": _property("correlation_data"),
    "E": _property("message_expiry"),
    "F": _property("payload_format"),
    "P": _user_properties,
    "R": _property("response_topic"),
    "S": _subscription_ids,
    "I": lambda message, moment: moment.iso().encode(),
    "U": _unix_time,
}


def _json(message: Publish, moment: Moment, raw: bool, pretty: bool) -> str:
    fields: dict[str, Any] = {
        "tst": moment.precise(),
        "topic": message.topic.decode(),
        "qos": message.qos,
        "retain": int(message.retain),
        "payloadlen": len(message.payload),
    }
    if message.qos:
        fields["mid"] = message.packet_id
    if message.properties is not None:
        fields["properties"] = _json_properties(message.properties)
    if raw:
        try:
            fields["payload"] = json.loads(message.payload) if message.payload else None
        except ValueError as error:
            raise PayloadNotJson(f"the payload on {message.topic.decode()} is not JSON: {error}") from error
    else:
        fields["payload"] = message.payload.decode("utf-8", "replace")
    if pretty:
        return json.dumps(fields, ensure_ascii=False, indent=2)
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _json_properties(properties: Properties) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "payload-format-indicator": properties.payload_format,
        "message-expiry-interval": properties.message_expiry,
        "content-type": properties.content_type,
        "response-topic": None if properties.response_topic is None else properties.response_topic.decode(),
        "correlation-data": _readable(properties.correlation_data),
        "topic-alias": properties.topic_alias,
        "subscription-identifier": _one_or_all(properties.subscription_ids),
    }
    if properties.user_properties is not None:
        by_name: dict[str, list[str]] = {}
        for key, value in properties.user_properties:
            by_name.setdefault(key, []).append(value)
        fields["user-properties"] = {key: _one_or_all(values) for key, values in by_name.items()}
    return {name: value for name, value in fields.items() if value is not None}


def _readable(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _one_or_all(values: list[Any] | None) -> Any:
    """A single value as itself, several as a list."""
    return values[0] if values is not None and len(values) == 1 else values


def trace(direction: str, packet: Packet) -> None:
    print(f"{direction} {describe(packet)}", file=sys.stderr)


def describe(packet: Packet) -> str:
    detail = _detail(packet)
    return f"{NAMES[packet.kind]} ({detail})" if detail else NAMES[packet.kind]


def _detail(packet: Packet) -> str:
    if isinstance(packet, Publish):
        topic = packet.topic.decode("utf-8", "replace")
        flags = f"d{packet.dup:d}, q{packet.qos}, r{packet.retain:d}, m{packet.packet_id}"
        return f"{flags}, '{topic}', {len(packet.payload)} bytes"
    if isinstance(packet, Ack):
        return f"m{packet.packet_id}, reason 0x{packet.reason:02X}"
    if isinstance(packet, Connect):
        return f"'{packet.client_id}', clean {packet.clean_start:d}, keep alive {packet.keep_alive} s"
    if isinstance(packet, ConnAck):
        return f"session present {packet.session_present:d}, reason 0x{packet.reason:02X}"
    if isinstance(packet, Subscribe):
        filters = ", ".join(f"'{item.topic_filter.decode('utf-8', 'replace')}' q{item.qos}" for item in packet.requests)
        return f"m{packet.packet_id}, {filters}"
    if isinstance(packet, Unsubscribe):
        filters = ", ".join(f"'{item.decode('utf-8', 'replace')}'" for item in packet.topic_filters)
        return f"m{packet.packet_id}, {filters}"
    if isinstance(packet, SubAck):
        return ", ".join([f"m{packet.packet_id}", *(f"0x{reason:02X}" for reason in packet.reasons)])
    if isinstance(packet, Disconnect | Auth):
        return f"reason 0x{packet.reason:02X}"
    return ""
