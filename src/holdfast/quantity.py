"""Sizes and durations as people write them: `1MiB`, `512KB`, `15m`, `1h30m`.

A plain number is bytes or seconds. Decimal and binary size units mean what they say (1KB is 1000 bytes, 1KiB is 1024).
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import PlainValidator, WithJsonSchema

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


def parse_size(value: object, *, units: Mapping[str, int] = SIZE_UNITS) -> int:
    """The size in bytes. `units` may say that some unit means something else. Raises ValueError."""
    expected = "a size such as 65536, 512KB or 1MiB"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if not isinstance(value, str):
        raise ValueError(f"expected {expected}, got {value!r}")
    found = _SIZE.fullmatch(value.strip())
    unit = units.get(found[2].lower() or "b") if found else None
    if found is None or unit is None:
        raise ValueError(f"expected {expected}, got {value!r}")
    return round(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit


def parse_percentage(value: object) -> float | None:
    """The number before the `%`; None where there is no such sign. Raises ValueError."""
    if not isinstance(value, str) or not value.strip().endswith("%"):
        return None
    number = value.strip()[:-1].strip()
    if not _PLAIN.fullmatch(number) or float(number) > 100:
        raise ValueError(f"expected a percentage such as 5%, got {value!r}")
    return float(number)


def parse_duration(value: object) -> int | float:
    """The duration in seconds; a whole number of them is an int. Raises ValueError."""
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


Size = Annotated[int, PlainValidator(parse_size), WithJsonSchema({"type": "string", "title": "size"})]
Duration = Annotated[float, PlainValidator(parse_duration), WithJsonSchema({"type": "string", "title": "duration"})]
