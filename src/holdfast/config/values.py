"""The kinds of values that settings have, checked and in one form: sizes, durations, topics, addresses, names.

Sizes and durations are as people write them: `1MiB`, `512KB`, `15m`, `1h30m`. A plain number is bytes or seconds.
Decimal and binary size units mean what they say (1KB is 1000 bytes, 1KiB is 1024).
"""

import re
from ipaddress import ip_network
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema

from holdfast.broker.topics import is_valid_filter
from holdfast.config.listener import parse_listener

SIZE_UNITS: Final = {
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
DURATION_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}

_NUMBER: Final = r"\d[\d_]*(?:\.\d+)?"
_SIZE: Final = re.compile(rf"({_NUMBER})\s*([a-z]*)", re.IGNORECASE)
_DURATION_PART: Final = re.compile(rf"({_NUMBER})\s*([a-z]+)\s*", re.IGNORECASE)
_PLAIN: Final = re.compile(_NUMBER)


def parse_size(value: object) -> int:
    """Bytes."""
    expected = "a size such as 65536, 512KB or 1MiB"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if not isinstance(value, str):
        raise ValueError(f"expected {expected}, got {value!r}")
    found = _SIZE.fullmatch(value.strip())
    unit = SIZE_UNITS.get(found[2].lower() or "b") if found else None
    if found is None or unit is None:
        raise ValueError(f"expected {expected}, got {value!r}")
    return round(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit


def parse_duration(value: object) -> int | float:
    """Seconds; a whole number of them is an int."""
    expected = "a duration such as 30, 30s, 15m, 1h or 2d"
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return _seconds(round(value * 1000))
    if not isinstance(value, str):
        raise ValueError(f"expected {expected}, got {value!r}")
    text = value.strip()
    if _PLAIN.fullmatch(text):
        return _seconds(round(float(text) * 1000))
    position = total_ms = 0
    while position < len(text):
        part = _DURATION_PART.match(text, position)
        unit_ms = DURATION_UNITS_MS.get(part[2].lower()) if part else None
        if part is None or unit_ms is None:
            raise ValueError(f"expected {expected}, got {value!r}")
        total_ms += round(float(part[1]) * unit_ms)
        position = part.end()
    if not text:
        raise ValueError(f"expected {expected}, got {value!r}")
    return _seconds(total_ms)


def _seconds(ms: int) -> int | float:
    return ms // 1000 if ms % 1000 == 0 else ms / 1000


def milliseconds(duration: float) -> int:
    return round(duration * 1000)


def format_size(size: int) -> str:
    """The shortest exact form: 1048576 is 1MiB, 512000 is 512KB, 1000001 stays a number."""
    for unit in ("TiB", "GiB", "MiB", "KiB", "TB", "GB", "MB", "KB"):
        if size and size % SIZE_UNITS[unit.lower()] == 0:
            return f"{size // SIZE_UNITS[unit.lower()]}{unit}"
    return str(size)


def format_duration(duration: float) -> str:
    ms = milliseconds(duration)
    for unit in ("w", "d", "h", "m", "s", "ms"):
        if ms and ms % DURATION_UNITS_MS[unit] == 0:
            return f"{ms // DURATION_UNITS_MS[unit]}{unit}"
    return "0"


def check_no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"expected a whole number, got {str(value).lower()}")
    return value


def one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


def whole_seconds(value: float) -> int:
    if value != int(value):
        raise ValueError(f"expected whole seconds, got {value:g}s")
    return int(value)


def check_topic_filter(value: str) -> str:
    if not is_valid_filter(value.encode(), 65535) or "\0" in value:
        raise ValueError(f"expected a topic filter (`#` last and alone, `+` alone in its level), got {value!r}")
    return value


def check_topic_name(value: str) -> str:
    if not 0 < len(value.encode()) <= 65535 or any(c in value for c in "+#\0"):
        raise ValueError(f"expected a topic without wildcards, got {value!r}")
    return value


def check_topic_template(value: str) -> str:
    levels = value.split("/")
    names = [level[1:-1] for level in levels if level.startswith("{") and level.endswith("}")]
    if not names or len(set(names)) < len(names) or not all(name.isidentifier() for name in names):
        raise ValueError(f"expected a topic with names in braces, each once, such as site/{{device}}/#, got {value!r}")
    check_topic_filter("/".join("+" if level.startswith("{") else level for level in levels))
    return value


def check_host_and_port(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if value and not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"expected host:port, or nothing, got {value!r}")
    return value


def check_listener_url(value: str) -> str:
    parse_listener(value)
    return value


def check_websocket_path(value: str) -> str:
    if not value.startswith("/") or any(c in value for c in "?# "):
        raise ValueError(f"expected a path that starts with /, got {value!r}")
    return value


def one_or_many_numbers(value: object) -> object:
    return [value] if isinstance(value, int) else value


def check_network(value: str) -> str:
    try:
        ip_network(value, strict=False)
    except ValueError:
        raise ValueError(
            f"expected an address such as 10.0.0.7, or a network such as 10.0.0.0/8, got {value!r}"
        ) from None
    return value


def check_origin(value: str) -> str:
    if value != "*" and not (value.startswith(("http://", "https://")) and value.count("/") == 2):
        raise ValueError(f"expected an origin such as https://ops.example, or *, got {value!r}")
    return value.lower()


def check_http_url(value: str) -> str:
    parts = urlsplit(value)
    if value and (parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc):
        raise ValueError("expected a URL such as https://127.0.0.1:9000/login, without a user name in it")
    return value


Size = Annotated[int, PlainValidator(parse_size), WithJsonSchema({"type": "string", "title": "size"})]
Duration = Annotated[float, PlainValidator(parse_duration), WithJsonSchema({"type": "string", "title": "duration"})]
Count = Annotated[int, BeforeValidator(check_no_boolean), Field(ge=0)]
WholeSeconds = Annotated[Duration, AfterValidator(whole_seconds)]
TopicFilter = Annotated[str, AfterValidator(check_topic_filter)]
TopicFilters = Annotated[list[TopicFilter], BeforeValidator(one_or_many), Field(min_length=1)]
Action = Literal["publish", "subscribe", "retain", "receive", "all"]
Qos = Annotated[int, BeforeValidator(check_no_boolean), Field(ge=0, le=2)]
Network = Annotated[str, AfterValidator(check_network)]
Origin = Annotated[str, AfterValidator(check_origin)]
Networks = Annotated[list[Network], BeforeValidator(one_or_many)]
Names = Annotated[list[str], BeforeValidator(one_or_many)]
