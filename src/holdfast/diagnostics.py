"""Text for people: one line per event on standard error, as `key=value` pairs or as JSON.

Modules write with the standard library (`logging.getLogger("holdfast.net")`) and put an event's values into `extra`.
What a client chose (ids, topics) is quoted wherever it could be taken for another field or another line, in an event as
in a value, and values whose name says that they are secret are never written.
"""

import json
import logging
import re
import sys
import traceback
from datetime import UTC, datetime
from typing import Final, TextIO

ROOT: Final = "holdfast"
SECRET: Final = re.compile(r"password|secret|token|authorization|credential", re.IGNORECASE)
PLAIN: Final = re.compile(r"[\w.:/+#$%@*,;<>()\[\]{}~^&|!?-]+")
# What an event may be made of without being quoted: no quotes, and no `=`, with which a field would begin.
PLAIN_EVENT: Final = re.compile(r"[\w .:/+#$%@*,;<>()\[\]{}~^&|!?-]+")

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def configure(level: str, style: str, stream: TextIO | None = None) -> None:
    """May be called again, to change level and format while running."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logger = logging.getLogger(ROOT)
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The values of an event, in the order they were given."""
    fields: dict[str, object] = {
        name: "***" if SECRET.search(name) else value
        for name, value in record.__dict__.items()
        if name not in _STANDARD and not name.startswith("_")
    }
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        fields["error"] = f"{type(error).__name__}: {error}"
        fields["traceback"] = "".join(traceback.format_exception(error)).rstrip()
    return fields


def time_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event = record.getMessage()
        if not PLAIN_EVENT.fullmatch(event):
            event = quoted(event)
        pairs = [f"{name}={quoted(value)}" for name, value in fields_of(record).items()]
        return " ".join([time_of(record), f"{record.levelname.lower():7}", event, *pairs])


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        # a field never replaces one of ours
        event.update((name if name not in event else f"{name}_", value) for name, value in fields_of(record).items())
        return json.dumps(event, default=text_of)


def quoted(value: object) -> str:
    """As it is when it cannot be misread, else a JSON string: no client can forge a line or a field."""
    text = text_of(value)
    return text if PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=not text.isprintable())


def text_of(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
