"""From payloads to columns, in Arrow: what decoded, what did not and why, and what nobody declared.

Each decoder has a rule for one payload, in plain Python. Where whole columns can be done at once (`number`, `text`,
`raw`, and `json` whose places are names), that is tried first; a batch that the fast path is not sure of goes by the
rule, so that both give the same rows.
"""

import io
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from holdfast.history.schema import OUTCOME_CLEARED
from holdfast.spark.declared.declaration import Column, Declaration
from holdfast.spark.declared.paths import MISSING, Path, find, parse_path
from holdfast.spark.declared.values import ARROW, brief, converter, parse_number, type_name
from holdfast.spark.topics import TopicFilter, TopicTemplate

REASONS: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("topic", pa.string()),
        ("reason", pa.string()),
    ]
)
FRESH: Final = pa.schema([*[*REASONS][:3], pa.field("field", pa.string()), pa.field("type", pa.string())])
# Arrow's reader of JSON goes deeper with each bracket and has no bound of its own.
MOST_BRACKETS: Final = 100
# Below so many rows a batch that failed is not tried again in halves.
LEAST_FAST: Final = 128
_PLAIN_NUMBER: Final = r"\A-?\d{1,15}(\.\d{1,15})?\z"
_PLAIN_WHOLE: Final = {"long": r"\A-?\d{1,18}\z", "int": r"\A-?\d{1,9}\z"}
# What Arrow may read of a JSON text for a column; a type that is not here goes by the rule.
_JSON_TYPES: Final = {
    "string": pa.string(),
    "double": pa.float64(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
}

# A payload as plain values, with what it has that no descriptor knows. Raises ValueError.
Parse = Callable[[bytes], tuple[Any, list[str]]]


class Decoded(NamedTuple):
    """`rows`: offset, timestamp, topic and the declared columns. `bad`: REASONS. `fresh`: FRESH, undeclared fields.

    `cleared`: offset and topic of publishes that cleared a retained message; they have no value.
    """

    rows: pa.Table
    bad: pa.Table
    fresh: pa.Table
    cleared: pa.Table


def decode(declaration: Declaration, rows: pa.Table, *, notice: bool = False) -> Decoded:
    """Decodes those of these rows of history that the declaration is about. `notice`: undeclared fields too."""
    mine = TopicFilter(declaration.filter)
    topics = rows["topic"].combine_chunks()
    rows = rows.filter(mine.mask(topics))
    if declaration.template is not None and TopicTemplate(declaration.template).filter.text != mine.text:
        rows = rows.filter(TopicTemplate(declaration.template).filter.mask(rows["topic"].combine_chunks()))
    gone = pc.equal(rows["outcome"], OUTCOME_CLEARED)
    cleared = rows.filter(gone).select(["offset", "timestamp", "topic"])
    rows = rows.filter(pc.invert(gone)).combine_chunks()
    values = _payloads(declaration, rows, notice)
    reasons, found = values.reasons, dict(values.columns)
    for column in declaration.columns:
        if column.name not in found:
            found[column.name], why = _beside(declaration, column, rows)
            reasons = pc.coalesce(reasons, why)
    bad = reasons.is_valid()
    good = pc.invert(bad)
    columns = {name: rows[name].filter(good) for name in ("offset", "timestamp", "topic")}
    columns |= {column.name: found[column.name].filter(good) for column in declaration.columns}
    refused = [*(rows[name].filter(bad) for name in REASONS.names[:3]), reasons.filter(bad)]
    return Decoded(pa.table(columns), pa.table(refused, schema=REASONS), pa.concat_tables(values.fresh), cleared)


class _Values(NamedTuple):
    """Columns of the payload, a reason for each row that has none, and undeclared fields as FRESH."""

    columns: dict[str, pa.Array]
    reasons: pa.Array
    fresh: list[pa.Table]


def _beside(declaration: Declaration, column: Column, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
    """A column that does not come from the payload, and why where there is none."""
    nothing_wrong = pa.nulls(rows.num_rows, pa.string())
    if not rows.num_rows:
        return pa.array([], ARROW[column.type]), nothing_wrong
    if column.level is None:
        return rows[str(column.of_history)].combine_chunks().cast(ARROW[column.type]), nothing_wrong
    place = TopicTemplate(str(declaration.template)).places[column.level]
    levels = pc.list_element(pc.split_pattern(rows["topic"].combine_chunks(), "/"), place)
    if column.type == "string":
        return levels, nothing_wrong
    values: list[Any] = []
    reasons: list[str | None] = []
    for level in levels.to_pylist():
        try:
            values.append(parse_level(level, column))
            reasons.append(None)
        except ValueError as error:
            values.append(None)
            reasons.append(f"{column.source}: {error}")
    return pa.array(values, ARROW[column.type]), pa.array(reasons, pa.string())


def parse_level(level: str, column: Column) -> Any:
    """A level of a topic as a value that is no text. Raises ValueError."""
    if column.type == "boolean":
        if level not in ("true", "false"):
            raise ValueError(f"expected true or false, got {brief(level)}")
        return level == "true"
    is_text = column.type == "timestamp" and not column.unit
    return converter(column.type, column.unit)(level if is_text else parse_number(level))


def _payloads(declaration: Declaration, rows: pa.Table, notice: bool) -> _Values:
    payloads = rows["payload"].combine_chunks() if rows.num_rows else pa.array([], pa.binary())
    fast = _FAST.get(declaration.decoder)
    found = fast(declaration, rows, payloads, notice) if fast is not None else None
    if found is not None:
        return found
    if fast is None or len(payloads) <= LEAST_FAST or not _could_be_fast(declaration):
        return _by_rule(declaration, rows, payloads, notice)
    # a few that the fast path is not sure of must not make all the others slow
    half = len(payloads) // 2
    first = _payloads(declaration, rows.slice(0, half), notice)
    second = _payloads(declaration, rows.slice(half), notice)
    columns = {name: pa.concat_arrays([first.columns[name], second.columns[name]]) for name in first.columns}
    return _Values(columns, pa.concat_arrays([first.reasons, second.reasons]), [*first.fresh, *second.fresh])


def _by_rule(declaration: Declaration, rows: pa.Table, payloads: pa.Array, notice: bool) -> _Values:
    parse = parser(declaration)
    columns = declaration.payload_columns
    plan = [(one, parse_path(one.source), _converter(one)) for one in columns]
    known = _tree([path for _, path, _ in plan])
    values: list[list[Any]] = [[] for _ in plan]
    reasons: list[str | None] = []
    fresh: list[tuple[int, str, str]] = []
    for row, payload in enumerate(payloads.to_pylist()):
        line: list[Any] = [None] * len(plan)
        reason = None
        try:
            whole, unknown = parse(payload)
            for place, (column, path, convert) in enumerate(plan):
                line[place] = _one(column, find(whole, path), convert)
            if notice:
                fresh += [(row, name, "unknown") for name in unknown]
                fresh += [(row, name, type_name(value)) for name, value in _undeclared(whole, known)]
        except ValueError as error:
            reason, line = str(error), [None] * len(plan)
        except RecursionError:
            reason, line = "expected a payload that is not nested so deeply", [None] * len(plan)
        reasons.append(reason)
        for place, value in enumerate(line):
            values[place].append(value)
    arrays = {one.name: pa.array(part, ARROW[one.type]) for (one, _, _), part in zip(plan, values, strict=True)}
    return _Values(arrays, pa.array(reasons, pa.string()), [_fresh_rows(rows, fresh)])


def _converter(column: Column) -> Callable[[Any], Any]:
    """A count asks only whether there is a value."""
    return converter(column.type, column.unit) if column.aggregate != "count" else lambda _value: 1


def _fresh_rows(rows: pa.Table, found: list[tuple[int, str, str]]) -> pa.Table:
    numbers = pa.array([row for row, _, _ in found], pa.int64())
    columns = [rows[name].take(numbers) for name in FRESH.names[:3]]
    for part in (1, 2):
        columns.append(pa.chunked_array([pa.array([one[part] for one in found], pa.string())]))
    return pa.table(columns, schema=FRESH)


def _one(column: Column, value: Any, convert: Callable[[Any], Any]) -> Any:
    if value is MISSING or value is None:
        if column.required:
            raise ValueError(f"{column.source}: expected a value, got {'none' if value is MISSING else 'null'}")
        return None
    try:
        return convert(value)
    except ValueError as error:
        where = "" if column.source == "$" else f"{column.source}: "
        raise ValueError(f"{where}{error}") from None


Tree = dict[str, Any]


def _tree(paths: Iterable[Path]) -> Tree:
    """What is declared, by name; an empty dict, or a number, ends what is looked at."""
    tree: Tree = {}
    for path in paths:
        here = tree
        for place, step in enumerate(path):
            if isinstance(step, int):
                here[""] = {}
                break
            here = here.setdefault(step, {})
            if place == len(path) - 1:
                here[""] = {}
    if () in paths:
        tree[""] = {}
    return tree


def _undeclared(value: Any, known: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Fields of an object that nobody declared. What is declared whole is not looked into."""
    if not isinstance(value, dict) or "" in known:
        return
    for key, inner in value.items():
        name = str(key)
        if name not in known:
            if inner is not None:
                yield prefix + name, inner
        else:
            yield from _undeclared(inner, known[name], f"{prefix}{name}.")


def parser(declaration: Declaration) -> Parse:
    """The rule for one payload."""
    match declaration.decoder:
        case "number":
            return lambda payload: (parse_number(_text(payload)), [])
        case "text":
            return lambda payload: (_text(payload), [])
        case "raw":
            return lambda payload: (payload, [])
        case "json":
            return lambda payload: (_json(payload), [])
        case "cbor":
            return _cbor()
        case "protobuf":
            return _protobuf(declaration)
        case other:
            raise ValueError(f"expected a decoder of single payloads, got {other!r}")


def _text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise ValueError(f"expected text in UTF-8, got {brief(payload)}") from None


def _json(payload: bytes) -> Any:
    try:
        return json.loads(_text(payload))
    except json.JSONDecodeError as error:
        raise ValueError(f"expected JSON, got {brief(_text(payload))}: {error.msg.lower()}") from None


def _cbor() -> Parse:
    import cbor2

    def parse(payload: bytes) -> tuple[Any, list[str]]:
        stream = io.BytesIO(payload)
        try:
            value = cbor2.load(stream)
        except (cbor2.CBORError, ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"expected CBOR, got {brief(payload)}: {error}") from None
        if stream.tell() != len(payload):
            raise ValueError(f"expected one value in CBOR, got {len(payload) - stream.tell()} bytes after it")
        return value, []

    return parse


def _protobuf(declaration: Declaration) -> Parse:
    from holdfast.spark.declared.protobuf import MessageReader, plain, unknown_fields

    reader = MessageReader(declaration.descriptor_set, declaration.message)

    def parse(payload: bytes) -> tuple[Any, list[str]]:
        message = reader.parse(payload)
        return plain(message), [f"#{number}" for number in unknown_fields(message)]

    return parse


# The fast paths. None: not sure of this batch.


def _fast_number(declaration: Declaration, rows: pa.Table, payloads: pa.Array, notice: bool) -> _Values | None:
    """Numbers that are written plainly at once, the others by the rule."""
    columns = declaration.payload_columns
    if not columns:
        return None
    kinds = {column.type for column in columns if column.aggregate != "count"}
    narrowest = next((_PLAIN_WHOLE[kind] for kind in ("int", "long") if kind in kinds), _PLAIN_NUMBER)
    plain = pc.match_substring_regex(payloads, narrowest)
    odd = pc.invert(plain)
    texts = payloads.filter(plain).cast(pa.string())
    rest = _by_rule(declaration, rows.filter(odd), payloads.filter(odd), notice)
    order = pc.array_sort_indices(pa.concat_arrays([pc.indices_nonzero(plain), pc.indices_nonzero(odd)]))
    found = {}
    for column in columns:
        good = _present(texts) if column.aggregate == "count" else texts.cast(ARROW[column.type])
        found[column.name] = pa.concat_arrays([good, rest.columns[column.name]]).take(order)
    reasons = pa.concat_arrays([pa.nulls(len(texts), pa.string()), rest.reasons]).take(order)
    return _Values(found, reasons, [FRESH.empty_table()])


def _present(values: pa.Array) -> pa.Array:
    """What a count counts: 1 where there is a value."""
    return pc.if_else(values.is_valid(), pa.scalar(1, pa.int64()), pa.scalar(None, pa.int64()))


def _fast_text(declaration: Declaration, rows: pa.Table, payloads: pa.Array, notice: bool) -> _Values | None:
    try:
        texts = payloads.cast(pa.string())
    except pa.ArrowInvalid:
        return None
    return _whole(declaration, texts)


def _fast_raw(declaration: Declaration, rows: pa.Table, payloads: pa.Array, notice: bool) -> _Values | None:
    return _whole(declaration, payloads)


def _whole(declaration: Declaration, values: pa.Array) -> _Values | None:
    found = {
        column.name: _present(values) if column.aggregate == "count" else values
        for column in declaration.payload_columns
    }
    return _Values(found, pa.nulls(len(values), pa.string()), [FRESH.empty_table()])


def _fast_json(declaration: Declaration, rows: pa.Table, payloads: pa.Array, notice: bool) -> _Values | None:
    """All objects in one pass of Arrow's own reader."""
    columns = declaration.payload_columns
    paths = [parse_path(column.source) for column in columns]
    schema = _explicit(columns, paths) if len(payloads) else None
    lines = _lines(payloads) if schema is not None else None
    if lines is None:
        return None
    try:
        table = pj.read_json(
            pa.BufferReader(lines),
            pj.ReadOptions(use_threads=False, block_size=lines.size + 1),
            pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer" if notice else "ignore"),
        ).combine_chunks()
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(payloads):
        return None
    root = pa.StructArray.from_arrays([column.combine_chunks() for column in table.columns], fields=list(table.schema))
    found = {column.name: _at(root, path) for column, path in zip(columns, paths, strict=True)}
    for column in columns:
        if column.aggregate == "count":
            found[column.name] = _present(found[column.name])
    for column in columns:
        array = found[column.name]
        if column.required and array.null_count:
            return None
        if column.type == "double" and not pc.all(pc.is_finite(array), min_count=0).as_py():
            return None
    fresh = _fresh(root, _tree(paths), "", rows) if notice else ()
    return _Values(found, pa.nulls(len(payloads), pa.string()), [FRESH.empty_table(), *fresh])


def _could_be_fast(declaration: Declaration) -> bool:
    """Whether it was the rows that the fast path was not sure of."""
    columns = declaration.payload_columns
    if declaration.decoder == "json":
        return _explicit(columns, [parse_path(column.source) for column in columns]) is not None
    return declaration.decoder == "text"


def _explicit(columns: tuple[Column, ...], paths: list[Path]) -> pa.Schema | None:
    """The declared places as Arrow's reader wants to be told them. None: it cannot, or one lies within another."""
    tree: dict[str, Any] = {}
    # a count takes the type that another column has there
    for column, path in sorted(zip(columns, paths, strict=True), key=lambda one: one[0].aggregate == "count"):
        if column.type not in _JSON_TYPES or not path or any(isinstance(step, int) for step in path):
            return None
        here = tree
        *outer, last = map(str, path)
        for step in outer:
            here = here.setdefault(step, {})
            if not isinstance(here, dict):
                return None
        known = here.get(last)
        if column.aggregate == "count":
            if not isinstance(known, pa.DataType):
                return None
        elif known is None:
            here[last] = _JSON_TYPES[column.type]
        elif known != _JSON_TYPES[column.type]:
            return None
    return pa.schema(_fields(tree))


def _fields(tree: dict[str, Any]) -> list[pa.Field]:
    return [pa.field(name, pa.struct(_fields(kind)) if isinstance(kind, dict) else kind) for name, kind in tree.items()]


def _lines(payloads: pa.Array) -> pa.Buffer | None:
    """The payloads, one in a line, where that is sure to be read back as one object each.

    After `}` the `{` of the next line can only begin another object, so as many objects as lines means one each.
    """
    try:
        texts = payloads.cast(pa.string())
    except pa.ArrowInvalid:
        return None
    brackets = [pc.max(pc.count_substring(texts, bracket)).as_py() for bracket in "{["]
    sure = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    if max(brackets) > MOST_BRACKETS or not pc.all(sure).as_py() or pc.any(pc.match_substring(texts, "\n")).as_py():
        return None
    if pc.any(pc.match_substring(texts, "\r")).as_py():
        return None
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n")
    return joined[0].as_buffer()


def _at(root: pa.StructArray, path: Path) -> pa.Array:
    return pc.struct_field(root, list(path))


def _fresh(here: pa.StructArray, known: Tree, prefix: str, rows: pa.Table) -> Iterator[pa.Table]:
    """Fields that the reader found and nobody declared."""
    for part in here.type:
        inner = pc.struct_field(here, [part.name])
        if part.name in known:
            if "" not in known[part.name] and pa.types.is_struct(part.type):
                yield from _fresh(inner, known[part.name], f"{prefix}{part.name}.", rows)
        elif inner.null_count < len(inner):
            found = rows.select(FRESH.names[:3]).filter(inner.is_valid())
            for text in (prefix + part.name, _json_name(part.type)):
                found = found.append_column("", pa.repeat(pa.scalar(text), found.num_rows))
            yield found.rename_columns(FRESH.names).cast(FRESH)


def _json_name(kind: pa.DataType) -> str:
    """What JSON calls what Arrow took for this: times are texts that look like one."""
    if pa.types.is_struct(kind):
        return "object"
    if pa.types.is_list(kind):
        return "array"
    if pa.types.is_boolean(kind):
        return "boolean"
    return "number" if pa.types.is_integer(kind) or pa.types.is_floating(kind) else "string"


_FAST: Final = {"number": _fast_number, "text": _fast_text, "raw": _fast_raw, "json": _fast_json}
