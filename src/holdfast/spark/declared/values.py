"""A value of a payload as a value of a column, or why not: the rule for every decoder."""

import base64
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

ARROW: Final = {
    "string": pa.string(),
    "double": pa.float64(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
}
PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_BOUNDS: Final = {"long": 1 << 63, "int": 1 << 31}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def converter(kind: str, unit: str = "") -> Callable[[Any], Any]:
    """A function from a decoded value to one of this type. It raises ValueError with what was expected and got."""
    if kind == "timestamp":
        return lambda value: to_timestamp(value, unit)
    return {
        "string": to_string,
        "double": to_double,
        "long": lambda value: to_whole(value, "long"),
        "int": lambda value: to_whole(value, "int"),
        "boolean": to_boolean,
        "binary": to_binary,
    }[kind]


def parse_number(text: str) -> int | float:
    """A number that is written out, as payloads of a single value are."""
    stripped = text.strip()
    if not _NUMBER.fullmatch(stripped):
        raise ValueError(f"expected a number, got {brief(text)}")
    try:
        return int(stripped)
    except ValueError:
        return float(stripped)


def to_double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError(f"expected a number, got {brief(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {brief(value)}")
    return number


def to_whole(value: Any, kind: str) -> int:
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if not is_number or (not isinstance(value, int) and (not math.isfinite(value) or value != int(value))):
        raise ValueError(f"expected a whole number, got {brief(value)}")
    number = int(value)
    if not -_BOUNDS[kind] <= number < _BOUNDS[kind]:
        raise ValueError(f"expected a whole number that fits {kind}, got {brief(value)}")
    return number


def to_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, got {brief(value)}")
    return value


def to_string(value: Any) -> str:
    """Text as it is; anything else as JSON, so that a column can take a part of a payload whole."""
    text = value if isinstance(value, str) else as_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"expected text in Unicode, got {brief(text)}") from None
    return text


def to_binary(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):  # JSON has no other way
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            pass
    raise ValueError(f"expected bytes, or their base64, got {brief(value)}")


def to_timestamp(value: Any, unit: str) -> datetime:
    """ISO 8601, UTC unless it says otherwise; with a unit, a number since 1970."""
    found: datetime | None = None
    try:
        if isinstance(value, datetime):
            found = value
        elif unit and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            found = _EPOCH + timedelta(microseconds=_micros(value, PER_SECOND[unit]))
        elif not unit and isinstance(value, str):
            found = datetime.fromisoformat(value)
    except (ValueError, OverflowError):
        found = None
    if found is None:
        expected = f"a number of {unit} since 1970" if unit else "a time in ISO 8601"
        raise ValueError(f"expected {expected}, got {brief(value)}")
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _micros(value: Any, per_second: int) -> int:
    """Rounded down, by whole numbers where the value is one."""
    return math.floor(value * 1_000_000 / per_second) if not isinstance(value, int) else value * 1_000_000 // per_second


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    """What JSON has no word for: bytes as base64, times as ISO 8601, the rest as its text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value)


def type_name(value: Any) -> str:
    """What JSON calls such a value; bytes and times have a name of their own."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float() | Decimal():
            return "number"
        case str():
            return "string"
        case bytes():
            return "binary"
        case datetime():
            return "timestamp"
        case dict():
            return "object"
        case list() | tuple():
            return "array"
        case _:
            return type(value).__name__


def brief(value: Any, width: int = 80) -> str:
    if isinstance(value, bytes):
        text = f"{len(value)} bytes {value[:16].hex(' ')}" + (" …" if len(value) > 16 else "")
    elif isinstance(value, int) and value.bit_length() > 256:
        text = f"a number of {value.bit_length()} bits"
    else:
        try:
            text = as_json(value)
        except (ValueError, TypeError, RecursionError):  # keys that JSON cannot have, circles, numbers without end
            text = type_name(value)
        text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= width else text[: width - 1] + "…"
