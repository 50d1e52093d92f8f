"""Declarations as tables of the pipeline: one for each, and with them `quarantine` and `schema_drift`.

Steps are objects that hold plain values, because executors call them. What did not decode is found by the quarantine's
own pass over the same rows: a table is one commit, and two tables cannot be written by one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.history.schema import ERASED_PROTOCOL, OUTCOME_CLEARED
from holdfast.spark.declared import sparkplug
from holdfast.spark.declared.declaration import DRIFT, QUARANTINE, ROW_COLUMNS, WINDOW_COLUMNS, Column, Declaration
from holdfast.spark.declared.decoders import FRESH, REASONS, decode
from holdfast.spark.declared.values import ARROW
from holdfast.spark.derived import Batch, DerivedTable
from holdfast.spark.topics import TopicFilter, TopicTemplate, literal

QUARANTINE_SCHEMA: Final = pa.schema([*[*REASONS][:3], pa.field("table", pa.string()), REASONS.field("reason")])
DRIFT_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("table", pa.string()),
        ("field", pa.string()),
        ("type", pa.string()),
        ("first_offset", pa.int64()),
        ("first_seen", ARROW["timestamp"]),
        ("last_offset", pa.int64()),
        ("last_seen", ARROW["timestamp"]),
        ("messages", pa.int64()),
    ]
)
_DRIFT_KEY: Final = ["topic", "table", "field", "type"]
_ALIVE: Final = f"not (protocol <=> {literal(ERASED_PROTOCOL)})"
_NOT_CLEARED: Final = f"outcome <> {literal(OUTCOME_CLEARED)}"
_READ: Final = ("offset", "timestamp", "topic", "payload", "outcome")


def declared_tables(declarations: Sequence[Declaration]) -> list[DerivedTable]:
    """The tables of these declarations; none where there are none."""
    if not declarations:
        return []
    return [*(table_of(one) for one in declarations), quarantine_of(declarations), drift_of(declarations)]


def table_of(declaration: Declaration) -> DerivedTable:
    if declaration.decoder == "sparkplug":
        return _sparkplug(declaration)
    match declaration.kind:
        case "latest":
            return _latest(declaration)
        case "aggregate":
            return _aggregate(declaration)
        case _:
            return DerivedTable(
                declaration.name,
                row_schema(declaration),
                (),
                HistoryStep(declaration),
                takes=_takes(declaration),
                where=_where(declaration),
                rule=rule_of(declaration),
            )


def rule_of(declaration: Declaration) -> str:
    """What may not change while a table has rows. Where a column comes from may: that is how one is mended."""
    types = ", ".join(f"{column.name} {column.aggregate} {column.type}" for column in declaration.columns)
    window = f" in {declaration.window_us // 1_000_000} s" if declaration.window_us else ""
    by = f" by {', '.join(declaration.key)}" if declaration.kind != "history" else ""
    return " ".join(f"{declaration.kind}{by}{window}: {types or declaration.decoder}".split())


def quarantine_of(declarations: Sequence[Declaration]) -> DerivedTable:
    """Rows of history that a table could not take, with the reason; `replay` takes them out again."""
    return DerivedTable(
        QUARANTINE,
        QUARANTINE_SCHEMA,
        (),
        QuarantineStep(tuple(declarations)),
        takes=_all_takes(declarations),
        where=" or ".join(_where(one) for one in declarations),
    )


def drift_of(declarations: Sequence[Declaration]) -> DerivedTable:
    """Fields that payloads have and no declaration names: since when, on which topic, how often."""
    parts = [one for one in declarations if one.decoder in ("json", "cbor", "protobuf")]
    return DerivedTable(
        DRIFT,
        DRIFT_SCHEMA,
        tuple(_DRIFT_KEY),
        DriftStep(tuple(parts)),
        takes=_all_takes(parts),
        where=" or ".join(_where(one) for one in parts) or "false",
    )


def row_schema(declaration: Declaration) -> pa.Schema:
    parts = [*ROW_COLUMNS, *((column.name, column.type) for column in declaration.columns)]
    return pa.schema([(name, ARROW[kind]) for name, kind in parts])


def _takes(declaration: Declaration) -> dict[str, str]:
    wanted = [*_READ, *(column.of_history for column in declaration.columns if column.of_history)]
    return {name: f"`{name}`" for name in dict.fromkeys(wanted)}


def _all_takes(declarations: Sequence[Declaration]) -> dict[str, str]:
    return {name: text for one in declarations for name, text in _takes(one).items()} or {"topic": "`topic`"}


def _where(declaration: Declaration, cleared: bool = False) -> str:
    found = f"{TopicFilter(declaration.filter).sql()} and {_ALIVE}"
    return f"({found})" if cleared else f"({found} and {_NOT_CLEARED})"


class HistoryStep:
    """Every message that decodes is a row."""

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration

    def __call__(self, held: pa.Table, rows: pa.Table, batch: Batch) -> pa.Table:
        return decode(self.declaration, rows).rows.cast(row_schema(self.declaration))


class QuarantineStep:
    """Every message that does not."""

    def __init__(self, declarations: tuple[Declaration, ...]) -> None:
        self.declarations = declarations

    def __call__(self, held: pa.Table, rows: pa.Table, batch: Batch) -> pa.Table:
        return pa.concat_tables([self._of(one, rows) for one in self.declarations])

    def _of(self, declaration: Declaration, rows: pa.Table) -> pa.Table:
        bad = undecoded(declaration, rows)
        named = bad.append_column("table", pa.repeat(pa.scalar(declaration.name), bad.num_rows))
        return named.select(QUARANTINE_SCHEMA.names).cast(QUARANTINE_SCHEMA)


def undecoded(declaration: Declaration, rows: pa.Table) -> pa.Table:
    """Offset, time, topic and reason of what a declaration is about and cannot read."""
    if declaration.decoder != "sparkplug":
        return decode(declaration, rows).bad
    mine = rows.filter(TopicFilter(declaration.filter).mask(rows["topic"].combine_chunks()))
    reasons = [
        sparkplug.problem_of(topic, payload)
        for topic, payload in zip(mine["topic"].to_pylist(), mine["payload"].to_pylist(), strict=True)
    ]
    marked = mine.select(REASONS.names[:3]).append_column("reason", pa.array(reasons, pa.string()))
    return marked.filter(marked["reason"].is_valid())


class DriftStep:
    def __init__(self, declarations: tuple[Declaration, ...]) -> None:
        self.declarations = declarations

    def __call__(self, held: pa.Table, rows: pa.Table, batch: Batch) -> pa.Table:
        found = [held]
        for declaration in self.declarations:
            fresh = decode(declaration, rows, notice=True).fresh
            found.append(self._counted(fresh, declaration.name))
        # with threads the order of the rows is left to chance
        merged = pa.concat_tables(found).group_by(_DRIFT_KEY, use_threads=False)
        sums = merged.aggregate(
            [
                ("first_offset", "min"),
                ("first_seen", "min"),
                ("last_offset", "max"),
                ("last_seen", "max"),
                ("messages", "sum"),
            ]
        )
        names = [*_DRIFT_KEY, "first_offset_min", "first_seen_min", "last_offset_max", "last_seen_max", "messages_sum"]
        return sums.select(names).rename_columns(DRIFT_SCHEMA.names).cast(DRIFT_SCHEMA)

    @staticmethod
    def _counted(fresh: pa.Table, table: str) -> pa.Table:
        assert fresh.schema.names == FRESH.names
        columns = {
            "topic": fresh["topic"],
            "table": pa.repeat(pa.scalar(table), fresh.num_rows),
            "field": fresh["field"],
            "type": fresh["type"],
            "first_offset": fresh["offset"],
            "first_seen": fresh["timestamp"],
            "last_offset": fresh["offset"],
            "last_seen": fresh["timestamp"],
            "messages": pa.repeat(pa.scalar(1, pa.int64()), fresh.num_rows),
        }
        return pa.table(columns).cast(DRIFT_SCHEMA)


# One row for each key.


def _latest(declaration: Declaration) -> DerivedTable:
    key = _by_topic_first(declaration)
    first = _key_sql(declaration, key[0])
    return DerivedTable(
        declaration.name,
        row_schema(declaration),
        key,
        LatestStep(declaration),
        takes={**_takes(declaration), key[0]: first},
        where=f"{_where(declaration, cleared=True)} and {first} is not null",
        rule=rule_of(declaration),
    )


def _by_topic_first(declaration: Declaration) -> tuple[str, ...]:
    """The key, with a column in front that is known without the payload: by it rows are brought together."""
    known = {column.name for column in declaration.columns if not column.in_payload} | {"topic"}
    return tuple(sorted(declaration.key, key=lambda name: name not in known))


def _key_sql(declaration: Declaration, name: str) -> str:
    if name == "topic":
        return "`topic`"
    [column] = [one for one in declaration.columns if one.name == name]
    if column.of_history is not None:
        return f"`{column.of_history}`"
    place = TopicTemplate(str(declaration.template)).places[str(column.level)]
    level = f"get(split(topic, '/'), {place})"
    return level if column.type == "string" else f"try_cast({level} as {column.type})"


class LatestStep:
    """The newest message that decodes, of each key. Clearing a retained message takes the row of its topic away."""

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration

    def __call__(self, held: pa.Table, rows: pa.Table, batch: Batch) -> pa.Table:
        decoded = decode(self.declaration, rows)
        merged = pa.concat_tables([held, decoded.rows.cast(held.schema)]).combine_chunks()
        newest = merged.group_by(list(self.declaration.key)).aggregate([("offset", "max")])["offset_max"]
        kept = merged.filter(pc.is_in(merged["offset"], newest.combine_chunks()))
        if not decoded.cleared.num_rows:
            return kept
        gone = dict(
            zip(*(decoded.cleared.sort_by("offset")[name].to_pylist() for name in ("topic", "offset")), strict=True)
        )
        lasts = [
            offset > gone.get(topic, -1)
            for topic, offset in zip(kept["topic"].to_pylist(), kept["offset"].to_pylist(), strict=True)
        ]
        return kept.filter(pa.array(lasts, pa.bool_()))


# One row for each window and key.

_MERGED: Final = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}


def _aggregate(declaration: Declaration) -> DerivedTable:
    width = declaration.window_us
    return DerivedTable(
        declaration.name,
        aggregate_schema(declaration),
        ("window_start", *declaration.key),
        AggregateStep(declaration),
        takes={
            **_takes(declaration),
            "window_start": f"timestamp_micros(unix_micros(timestamp) - pmod(unix_micros(timestamp), {width}L))",
        },
        where=_where(declaration),
        rule=rule_of(declaration),
    )


def aggregate_schema(declaration: Declaration) -> pa.Schema:
    """The window, its key, the number of messages, the aggregates, and what has to be known to go on with them."""
    fields: list[tuple[str, pa.DataType]] = [("window_start", ARROW["timestamp"])]
    fields += [(one.name, ARROW[one.type]) for one in declaration.columns if not one.aggregate]
    fields.append((WINDOW_COLUMNS[1][0], pa.int64()))
    for column in declaration.columns:
        if column.aggregate:
            fields.append((column.name, ARROW[column.type]))
            fields += [(name, kind) for name, kind in beside(column).items()]
    return pa.schema(fields)


def beside(column: Column) -> Mapping[str, pa.DataType]:
    """What a column needs beside it: an average its sum and count, the first and the last their offset."""
    match column.aggregate:
        case "avg":
            return {f"{column.name}_sum": pa.float64(), f"{column.name}_count": pa.int64()}
        case "first" | "last":
            return {f"{column.name}_offset": pa.int64()}
        case _:
            return {}


class AggregateStep:
    """What the messages of a window come to, by the broker's clock."""

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        self.group = ["window_start", *declaration.key]
        self.columns = [column for column in declaration.columns if column.aggregate]

    def __call__(self, held: pa.Table, rows: pa.Table, batch: Batch) -> pa.Table:
        schema = aggregate_schema(self.declaration)
        return self._merge(pa.concat_tables([held.cast(schema), self._single(rows, schema)]), schema)

    def _single(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Each message as what it adds to its window."""
        found = decode(self.declaration, rows).rows
        micros = found["timestamp"].cast(pa.int64())
        width = self.declaration.window_us
        start = pc.multiply(pc.divide(micros, width), width)
        one = pa.repeat(pa.scalar(1, pa.int64()), found.num_rows)
        columns: dict[str, Any] = {"window_start": start.cast(ARROW["timestamp"]), "messages": one}
        columns |= {name: found[name] for name in self.declaration.key}
        for column in self.columns:
            value = found[column.name] if column.aggregate != "count" else None
            valid = found[column.name].is_valid()
            match column.aggregate:
                case "count":
                    columns[column.name] = valid.cast(pa.int64())
                case "avg":
                    columns[column.name] = value
                    columns[f"{column.name}_sum"] = value
                    columns[f"{column.name}_count"] = valid.cast(pa.int64())
                case "first" | "last":
                    columns[column.name] = value
                    columns[f"{column.name}_offset"] = pc.if_else(valid, found["offset"], pa.scalar(None, pa.int64()))
                case _:
                    columns[column.name] = value
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)

    def _merge(self, parts: pa.Table, schema: pa.Schema) -> pa.Table:
        sums = [("messages", "sum")]
        ordered: list[Column] = []
        for column in self.columns:
            if column.aggregate in _MERGED:
                sums.append((column.name, _MERGED[column.aggregate]))
            elif column.aggregate == "avg":
                sums += [(f"{column.name}_sum", "sum"), (f"{column.name}_count", "sum")]
            else:
                ordered.append(column)
        merged = parts.group_by(self.group, use_threads=False).aggregate(sums)
        found = {name: merged[name] for name in self.group}
        found |= {name: merged[f"{name}_{how}"] for name, how in sums}
        for column in self.columns:
            if column.aggregate == "avg":
                count = found[f"{column.name}_count"]
                known = pc.if_else(pc.greater(count, 0), count, pa.scalar(None, pa.int64()))
                found[column.name] = pc.divide(found[f"{column.name}_sum"], known.cast(pa.float64()))
        result = pa.table(found)
        for column in ordered:
            result = self._ordered(parts, column, result)
        return result.select(schema.names).cast(schema)

    def _ordered(self, parts: pa.Table, column: Column, result: pa.Table) -> pa.Table:
        """The first or last value, by offset, in the groups of a result that is in the order of its groups."""
        place = f"{column.name}_offset"
        how = column.aggregate
        mine = parts.select([*self.group, column.name, place]).sort_by(place)
        # sorted by offset, those without a value are last; the aggregates leave them out
        picked = mine.group_by(self.group, use_threads=False).aggregate([(column.name, how), (place, how)])
        keyed = {tuple(row[name] for name in self.group): row for row in picked.to_pylist()}
        rows = [keyed[tuple(row[name] for name in self.group)] for row in result.select(self.group).to_pylist()]
        for name, kind in ((column.name, ARROW[column.type]), (place, pa.int64())):
            result = result.append_column(name, pa.array([row[f"{name}_{how}"] for row in rows], kind))
        return result


# Sparkplug.


def _sparkplug(declaration: Declaration) -> DerivedTable:
    latest = declaration.kind == "latest"
    return DerivedTable(
        declaration.name,
        sparkplug_schema(declaration),
        ("edge", "device", "metric"),
        SparkplugStep(declaration),
        takes={**_takes(declaration), "edge": sparkplug.EDGE_SQL},
        where=_where(declaration),
        ended="" if latest else sparkplug.ENDED,
        rule=rule_of(declaration),
    )


def sparkplug_schema(declaration: Declaration) -> pa.Schema:
    latest = declaration.kind == "latest"
    return pa.schema([one for one in sparkplug.SCHEMA if not (latest and one.name == sparkplug.ENDED)])


class SparkplugStep:
    """Every value of every metric; as `latest` only those that no other has followed."""

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration

    def __call__(self, held: pa.Table, rows: pa.Table, batch: Batch) -> pa.Table:
        latest = self.declaration.kind == "latest"
        if latest:
            held = held.append_column(sparkplug.ENDED, pa.nulls(held.num_rows, pa.int64()))
        mine = rows.filter(TopicFilter(self.declaration.filter).mask(rows["topic"].combine_chunks()))
        found = sparkplug.follow(held.cast(sparkplug.SCHEMA), mine)
        return found.filter(found[sparkplug.ENDED].is_null()).drop_columns([sparkplug.ENDED]) if latest else found
