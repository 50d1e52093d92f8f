"""What a user declares, checked: from a `pipeline.toml` or from Python, with every problem said at once.

A declaration is plain values, because it goes to executors. Where a column comes from is one text: `{site}` a level of
the topic, `@client_id` a column of history, anything else a place in the payload (`drive.speed`, `tags[0]`, `$` for all
of it).
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.errors import ConfigError, UsageError
from holdfast.history.schema import COLUMNS
from holdfast.problem import Problem, nearest, shown
from holdfast.quantity import parse_duration
from holdfast.spark.declared.paths import WHOLE, parse_path
from holdfast.spark.topics import TopicFilter, TopicTemplate

KINDS: Final = ("history", "latest", "aggregate")
DECODERS: Final = ("json", "number", "text", "raw", "cbor", "protobuf", "sparkplug")
# Their payload is a single value: it has no places in it.
SINGLE: Final = {"number": ("double", "long", "int"), "text": ("string",), "raw": ("binary",)}
TYPES: Final = ("string", "double", "long", "int", "boolean", "timestamp", "binary")
AGGREGATES: Final = ("count", "sum", "avg", "min", "max", "first", "last")
UNITS: Final = ("s", "ms", "us", "ns")
# Every row of a history and of a latest table says where it comes from.
ROW_COLUMNS: Final = (("offset", "long"), ("timestamp", "timestamp"), ("topic", "string"))
WINDOW_COLUMNS: Final = (("window_start", "timestamp"), ("messages", "long"))
QUARANTINE: Final = "quarantine"
DRIFT: Final = "schema_drift"
SPARKPLUG_FILTER: Final = "spBv1.0/#"
_HISTORY_TYPES: Final = {
    name: "int" if kind == "byte" else kind for name, kind in COLUMNS if not kind.startswith("array")
}
_ENTRY_KEYS: Final = (
    *("name", "filter", "template", "decoder", "columns", "kind", "key", "window", "descriptor_set", "message"),
)
_COLUMN_KEYS: Final = ("type", "from", "required", "unit", "aggregate")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_COLUMN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Column:
    """A column of a table. `source` says where it comes from; `unit` is that of a time given as a number."""

    name: str
    type: str
    source: str
    required: bool = False
    unit: str = ""
    aggregate: str = ""

    @property
    def level(self) -> str | None:
        """The name in the template whose level of the topic this is."""
        return self.source[1:-1] if self.source.startswith("{") else None

    @property
    def of_history(self) -> str | None:
        """The column of history that this is."""
        return self.source[1:] if self.source.startswith("@") else None

    @property
    def in_payload(self) -> bool:
        return self.level is None and self.of_history is None


@dataclass(frozen=True)
class Declaration:
    """One table of a user's. `key`: the columns of which `latest` has one row, and `aggregate` one for each window."""

    name: str
    filter: str
    decoder: str
    kind: str = "history"
    template: str | None = None
    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ("topic",)
    window_us: int = 0
    message: str = ""
    descriptor_set: bytes = field(default=b"", repr=False)

    @property
    def payload_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.in_payload)


def read_declarations(path: Path, reserved: Iterable[str] = ()) -> list[Declaration]:
    """Returns the tables that a file declares; raises ConfigError, a line for each problem.

    `reserved` are names that tables of the pipeline have already.
    """
    origin = f"file {path}"
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read the declaration: {(error.strerror or str(error)).lower()} ({origin})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not a TOML file: {str(error)[:1].lower()}{str(error)[1:]} ({origin})") from None
    entries = document.get("table")
    problems = [
        Problem(key, f"unknown key (value {shown(value)}); nearest known key: table", origin)
        for key, value in document.items()
        if key != "table"
    ]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        problems.append(Problem("table", f"expected tables, each under [[table]], got {shown(entries)}", origin))
        entries = []
    readers = [_Reader(entry, f"table[{place}]", path.parent) for place, entry in enumerate(entries)]
    found = [reader.declaration() for reader in readers]
    for reader in readers:
        problems += [Problem(one.key, one.message, origin) for one in reader.problems]
    problems += [Problem(one.key, one.message, origin) for one in _names(found, reserved)]
    if problems:
        raise ConfigError("\n".join(str(problem) for problem in problems))
    return found


def declare(**entry: Any) -> Declaration:
    """The same from Python: what stands under `[[table]]` as keyword arguments. Raises ConfigError as the file does."""
    reader = _Reader(entry, "table", Path())
    found = reader.declaration()
    if reader.problems:
        raise ConfigError("\n".join(str(problem) for problem in reader.problems))
    return found


def _names(found: list[Declaration], reserved: Iterable[str]) -> Iterable[Problem]:
    taken = {*reserved, QUARANTINE, DRIFT}
    for place, declaration in enumerate(found):
        if declaration.name in taken:
            yield Problem(f"table[{place}].name", f"{shown(declaration.name)} is taken, expected a name of its own")
        taken.add(declaration.name)


class _Reader:
    """Reads one entry. What is wrong is noted and reading goes on, with something in the place of the bad value."""

    def __init__(self, entry: Mapping[str, Any], key: str, folder: Path) -> None:
        self.entry, self.key, self.folder = entry, key, folder
        self.problems: list[Problem] = []

    def declaration(self) -> Declaration:
        self._known(self.entry, _ENTRY_KEYS, "")
        name = self._text("name", "")
        if name and not _NAME.fullmatch(name):
            self._say("name", f"expected lower-case letters, digits and _, got {shown(name)}")
        decoder = self._choice("decoder", DECODERS)
        kind = self._choice("kind", KINDS, "history")
        template, topic_filter = self._topics(decoder)
        columns = self._columns(decoder, kind, template)
        message, descriptor_set = self._message(decoder, columns)
        return Declaration(
            name=name,
            filter=topic_filter,
            decoder=decoder,
            kind=kind,
            template=None if template is None else template.text,
            columns=columns,
            key=self._keys(decoder, kind, columns),
            window_us=self._window(kind),
            message=message,
            descriptor_set=descriptor_set,
        )

    def _say(self, key: str, message: str) -> None:
        self.problems.append(Problem(f"{self.key}.{key}", message))

    def _known(self, values: Mapping[str, Any], known: tuple[str, ...], prefix: str) -> None:
        for name, value in values.items():
            if name not in known:
                near = nearest(name, known)
                self._say(prefix + name, f"unknown key (value {shown(value)}); nearest known key: {near}")

    def _text(self, key: str, default: str | None = None) -> str:
        value = self.entry.get(key, default)
        if isinstance(value, str) and value:
            return value
        got = shown(value) if value else "none"
        self._say(key, f"expected a text, got {got}")
        return ""

    def _choice(self, key: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value = self.entry.get(key, default)
        if value in choices:
            return str(value)
        got = "none" if value is None else shown(value)
        self._say(key, f"expected one of {', '.join(choices)}, got {got}")
        return ""

    def _topics(self, decoder: str) -> tuple[TopicTemplate | None, str]:
        """The template, if any, and the filter: its own where it is given, else the template's."""
        template = None
        given = self.entry.get("filter", SPARKPLUG_FILTER if decoder == "sparkplug" else None)
        topic_filter = ""
        try:
            if "template" in self.entry:
                template = TopicTemplate(self._text("template"))
                topic_filter = template.filter.text
        except UsageError as error:
            self._say("template", str(error))
            return None, "#"
        if decoder == "sparkplug" and template is not None:
            self._say("template", "expected none: Sparkplug says itself what the levels of its topics are")
        if given is None:
            if template is None:
                self._say("filter", "expected a topic filter here, or a template, got none")
            return template, topic_filter or "#"
        try:
            topic_filter = TopicFilter(given if isinstance(given, str) else "").text
        except UsageError as error:
            self._say("filter", str(error))
            return template, "#"
        if decoder == "sparkplug":
            levels = topic_filter.split("/")
            if levels[0] != "spBv1.0" or any(level not in ("+", "#") for level in levels[2:3]):
                self._say(
                    "filter",
                    f"expected spBv1.0/# or spBv1.0/GROUP/#, births and deaths included, got {shown(topic_filter)}",
                )
        return template, topic_filter

    def _columns(self, decoder: str, kind: str, template: TopicTemplate | None) -> tuple[Column, ...]:
        given = self.entry.get("columns", {})
        if decoder == "sparkplug":
            if given:
                self._say("columns", "expected none: a Sparkplug table has columns of its own")
            return ()
        if not isinstance(given, Mapping):
            self._say("columns", f"expected names with their types, got {shown(given)}")
            return ()
        if not given:
            self._say("columns", "expected at least one column, got none")
        fixed = [name for name, _ in (WINDOW_COLUMNS if kind == "aggregate" else ROW_COLUMNS)]
        found = []
        taken = set(fixed)
        for name, value in given.items():
            key = f"columns.{name}"
            if not _COLUMN_NAME.fullmatch(name):
                self._say(key, "expected a name of letters, digits and _")
            elif name.lower() in taken:
                whose = "every such table has one of that name" if name.lower() in fixed else "it is there already"
                self._say(key, f"expected another name: {whose}")
            taken.add(name.lower())
            column = self._column(name, value, decoder, kind, template)
            if column is not None:
                found.append(column)
        return tuple(found)

    def _column(self, name: str, value: Any, decoder: str, kind: str, template: TopicTemplate | None) -> Column | None:
        key = f"columns.{name}"
        spec = {"type": value} if isinstance(value, str) else value
        if not isinstance(spec, Mapping):
            self._say(key, f"expected a type, or {{ type = …, from = … }}, got {shown(value)}")
            return None
        self._known(spec, _COLUMN_KEYS, f"{key}.")
        names = template.names if template is not None else []
        source = spec.get("from", f"{{{name}}}" if name in names else WHOLE if decoder in SINGLE else name)
        aggregate = spec.get("aggregate", "")
        counted = {"count": "long", "avg": "double"}.get(aggregate)
        of_history = _HISTORY_TYPES.get(str(source)[1:]) if str(source).startswith("@") else None
        implied = counted or of_history or ("string" if source == f"{{{name}}}" else None)
        kind_of_value = spec.get("type", implied)
        if kind_of_value not in TYPES:
            got = "none" if kind_of_value is None else shown(kind_of_value)
            near = f"; nearest: {nearest(kind_of_value, TYPES)}" if isinstance(kind_of_value, str) else ""
            self._say(
                f"{key}.type" if "type" in spec or kind_of_value is None else key,
                f"expected one of {', '.join(TYPES)}, got {got}{near}",
            )
            return None
        unit = spec.get("unit", "")
        if unit and (unit not in UNITS or kind_of_value != "timestamp"):
            self._say(f"{key}.unit", f"expected one of {', '.join(UNITS)}, of a timestamp, got {shown(unit)}")
        required = spec.get("required", False)
        if not isinstance(required, bool):
            self._say(f"{key}.required", f"expected true or false, got {shown(required)}")
        if aggregate and (aggregate not in AGGREGATES or kind != "aggregate"):
            self._say(
                f"{key}.aggregate",
                f"expected one of {', '.join(AGGREGATES)}, in a table of kind aggregate, got {shown(aggregate)}",
            )
        elif counted and kind_of_value != counted:
            self._say(f"{key}.type", f"expected {counted}, which {aggregate} gives, got {shown(kind_of_value)}")
        elif aggregate == "sum" and kind_of_value not in ("long", "double"):
            self._say(f"{key}.type", f"expected long or double, to sum, got {shown(kind_of_value)}")
        single = SINGLE.get(decoder, TYPES) if source == WHOLE and aggregate != "count" else TYPES
        if kind_of_value not in single:
            self._say(
                f"{key}.type", f"expected {' or '.join(single)}, which {decoder} gives, got {shown(kind_of_value)}"
            )
        if not isinstance(source, str) or not self._is_source(f"{key}.from", source, decoder, names):
            return None
        if of_history is not None and not aggregate and kind_of_value != of_history:
            self._say(f"{key}.type", f"expected {of_history}, as in history, got {shown(kind_of_value)}")
        if name.lower() in _HISTORY_TYPES and source.lower() != f"@{name.lower()}":
            self._say(key, f'expected another name, or from = "@{name}": history has a column of that name')
        return Column(name, str(kind_of_value), source, required is True, str(unit), str(aggregate))

    def _is_source(self, key: str, source: str, decoder: str, names: list[str]) -> bool:
        if source.startswith("{"):
            if source[1:-1] not in names or not source.endswith("}"):
                known = ", ".join(f"{{{name}}}" for name in names) or "none: there is no template"
                self._say(key, f"expected a name of the template ({known}), got {shown(source)}")
                return False
        elif source.startswith("@"):
            if source[1:] not in _HISTORY_TYPES:
                self._say(key, f"expected a column of history after @, got {shown(source)}")
                return False
        elif decoder in SINGLE and source != WHOLE:
            self._say(key, f"expected $: the payload of a {decoder} has no parts, got {shown(source)}")
            return False
        else:
            try:
                parse_path(source)
            except ValueError as error:
                self._say(key, str(error))
                return False
        return True

    def _keys(self, decoder: str, kind: str, columns: tuple[Column, ...]) -> tuple[str, ...]:
        given = self.entry.get("key")
        names = [column.name for column in columns]
        if decoder == "sparkplug":
            if kind == "aggregate":
                self._say("kind", "expected history or latest: a Sparkplug table has no windows")
            if given is not None:
                self._say("key", "expected none: a Sparkplug table has one row for each metric")
            return ("group", "node", "device", "metric")
        if kind == "history":
            if given is not None:
                self._say("key", "expected none: a history has every row")
            return ("offset",)
        if given is None:
            given = (
                [name for name in names if not self._is_aggregate(columns, name)] if kind == "aggregate" else ["topic"]
            )
        given = [given] if isinstance(given, str) else given
        known = names if kind == "aggregate" else ["topic", *names]
        if not isinstance(given, list) or any(name not in known for name in given) or len(set(given)) < len(given):
            self._say("key", f"expected names of columns ({', '.join(known)}), each once, got {shown(given)}")
            return ("topic",)
        outside = {"topic", *(column.name for column in columns if not column.in_payload)}
        if kind == "latest" and not outside & set(given):
            self._say(
                "key",
                f"expected at least one of {', '.join(sorted(outside))}, which are known without the payload, "
                f"got {shown(given)}",
            )
        if kind == "aggregate":
            for column in columns:
                if bool(column.aggregate) == (column.name in given):
                    expected = "none in a column of the key" if column.aggregate else ", ".join(AGGREGATES)
                    got = shown(column.aggregate) if column.aggregate else "none"
                    self._say(f"columns.{column.name}.aggregate", f"expected {expected}, got {got}")
        return tuple(given)

    @staticmethod
    def _is_aggregate(columns: tuple[Column, ...], name: str) -> bool:
        return any(column.aggregate for column in columns if column.name == name)

    def _window(self, kind: str) -> int:
        given = self.entry.get("window")
        if kind != "aggregate":
            if given is not None:
                self._say("window", f"expected none in a table of kind {kind}, got {shown(given)}")
            return 0
        try:
            seconds = parse_duration(given) if given is not None else 0
        except ValueError:
            seconds = 0
        if not 1 <= seconds <= 86_400 or 86_400 % seconds:
            got = "none" if given is None else shown(given)
            self._say("window", f"expected a duration that divides a day, such as 1m, 15m, 1h or 1d, got {got}")
            return 60_000_000
        return int(seconds * 1_000_000)

    def _message(self, decoder: str, columns: tuple[Column, ...]) -> tuple[str, bytes]:
        if decoder != "protobuf":
            for key in ("message", "descriptor_set"):
                if key in self.entry:
                    self._say(key, f"expected none: only protobuf has one, got {shown(self.entry[key])}")
            return "", b""
        from holdfast.spark.declared.protobuf import MessageReader

        message, file = self._text("message"), self._text("descriptor_set")
        if not message or not file:
            return message, b""
        try:
            descriptors = (self.folder / file).read_bytes()
        except OSError as error:
            self._say("descriptor_set", f"cannot read {file}: {(error.strerror or str(error)).lower()}")
            return message, b""
        try:
            reader = MessageReader(descriptors, message)
        except ValueError as error:
            self._say("message", str(error))
            return message, b""
        for column in columns:
            missing = reader.missing(column.source) if column.in_payload else None
            if missing is not None:
                self._say(f"columns.{column.name}.from", missing)
        return message, descriptors
