"""Taking rows out of the table for good: out of its newest version, out of the older ones, and off the disk.

Rows in force stay, because the broker still has those messages. The table is written anew file by file, each in a
commit of its own, so that whoever writes can go on in between. The first commit brings the record of what goes, and all
that follows is found again from it: an erasure that was cut off anywhere is finished by carrying it out again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from holdfast.broker.topics import matches
from holdfast.errors import StoreError
from holdfast.history.erased import Erasure, Selector
from holdfast.history.forget import forget_versions
from holdfast.history.place import At
from holdfast.history.reader import records
from holdfast.history.schema import (
    ERASED_APP_ID,
    ERASED_PROTOCOL,
    ERASED_TOPIC,
    OUTCOME_CLEARED,
    OUTCOME_LIVE,
    OUTCOME_SET,
    WRITER_APP_ID,
    arrow_schema,
)
from holdfast.history.table import WRITING, data_files, erasures_finished, first_line, last_offset
from holdfast.history.upkeep import in_force

LOOKED_AT = ["offset", "timestamp", "topic", "outcome", "expires_at"]
PLACE = ["offset", "timestamp", "topic", "mark"]


@dataclass(frozen=True)
class Found:
    """What a selector finds up to an offset: `rows` that go, in offset order, in the columns LOOKED_AT; the offsets
    of those that leave a mark, and of those that stay because they are in force.
    """

    rows: pa.Table
    marks: pa.Array
    in_force: pa.Array


@dataclass(frozen=True)
class Step:
    """How many of the table's files have been gone through, and when all is done what has been erased."""

    files: int
    of: int
    erasure: Erasure | None = None


def find(table: DeltaTable, selector: Selector, upto: int, at_ms: int) -> Found:
    """Looks for what is to be erased; `at_ms` is the moment at which expiry is judged."""
    kept = pa.array([offset for offset, _ in records(table)], pa.int64())
    data = table.to_pyarrow_dataset()
    within = pc.field("offset") <= upto
    wanted = within & ~pc.field("offset").isin(kept)
    if not selector.has_wildcard:
        wanted &= pc.field(selector.column) == selector.value
    hits: list[pa.Table] = []
    for batch in data.scanner(columns=LOOKED_AT, filter=wanted).to_batches():
        part = pa.Table.from_batches([batch])
        hits.append(part.filter(covered(part["topic"], selector.value)) if selector.has_wildcard else part)
    found = pa.concat_tables(hits) if hits else data.to_table(columns=LOOKED_AT, filter=pc.field("offset") < 0)
    decided = pc.field("outcome").isin([OUTCOME_SET, OUTCOME_CLEARED])
    topics = pc.field("topic").isin(found["topic"].unique())
    verdicts = data.to_table(columns=LOOKED_AT, filter=within & decided & topics)
    held = in_force(verdicts, at_ms)
    stays = pc.is_in(found["offset"], held)
    rows = found.filter(pc.invert(stays)).sort_by("offset")
    verdicts = verdicts.sort_by([("topic", "ascending"), ("offset", "ascending")])
    marks = behind_a_value(verdicts, rows["offset"].combine_chunks())
    return Found(rows, marks, found.filter(stays)["offset"].combine_chunks())


def covered(topics: pa.ChunkedArray, topic_filter: str) -> pa.ChunkedArray:
    levels = topic_filter.encode().split(b"/")
    known = topics.unique().to_pylist()
    named = [topic for topic in known if matches(levels, topic.encode().split(b"/"))]
    return pc.is_in(topics, pa.array(named, pa.string()).cast(topics.type))


def behind_a_value(verdicts: pa.Table, erased: pa.Array) -> pa.Array:
    """The offsets of erased verdicts that come right after a value of the same topic that is not erased. `verdicts`
    are sorted by topic and offset.
    """
    if verdicts.num_rows < 2:
        return pa.array([], pa.int64())
    offsets, topics = verdicts["offset"].combine_chunks(), verdicts["topic"].combine_chunks()
    goes = pc.is_in(offsets, erased)
    outcomes = verdicts["outcome"].combine_chunks()
    before = verdicts.num_rows - 1
    held = pc.and_(pc.invert(goes.slice(0, before)), pc.equal(outcomes.slice(0, before), OUTCOME_SET))
    same = pc.equal(topics.slice(0, before), topics.slice(1))
    return offsets.slice(1).filter(pc.and_(goes.slice(1), pc.and_(held, same)))


def carry_out(table: DeltaTable, at: At, name: str, selector: Selector, at_ms: int) -> Iterator[Step]:
    """Erases, and yields after each file, when others may commit too. The table has to be opened anew afterwards.

    An erasure of that name that was begun before is finished as it was begun. Raises StoreError when the table cannot
    be written; what has been done by then stays done.
    """
    try:
        yield from _carry_out(table, at, name, selector, at_ms)
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"rows of the history cannot be erased: {first_line(error)}") from error


def _carry_out(table: DeltaTable, at: At, name: str, selector: Selector, at_ms: int) -> Iterator[Step]:
    known = [erasure for _, erasure in records(table)]
    erasure = next((one for one in known if one.name == name), None)
    begun = erasure is not None
    if erasure is None:
        upto = last_offset(table)
        number = max([erasures_finished(table), *(one.number for one in known)]) + 1
        erasure = Erasure(name, number, selector, at_ms, upto, 0)
    found = find(table, selector, erasure.upto, erasure.at_ms)
    if not begun:
        erasure = Erasure(name, erasure.number, selector, at_ms, erasure.upto, found.rows.num_rows)
    gone = found.rows["offset"].combine_chunks()
    record = None if begun or not len(gone) else place_of_record(table, gone, found.marks, erasure.upto)
    if record is not None and not pc.is_in(pa.scalar(record), gone).as_py():
        append_record(table, record, erasure)
    touched = [file for file in data_files(table) if any_between(gone, file.first, file.last)]
    # The record first: from then on it is known what goes.
    touched.sort(key=lambda file: record is None or not file.first <= record <= file.last)
    for done, file in enumerate(touched, 1):
        within = pc.and_(pc.greater_equal(gone, file.first), pc.less_equal(gone, file.last))
        rewrite(table, file.first, file.last, gone.filter(within), found.marks, record, erasure)
        yield Step(done, len(touched))
    # Who looks for torn commits has to know how far the table had come before the first of them.
    said = [Transaction(WRITER_APP_ID, last_offset(table), None)]
    if erasure.rows:
        said.append(Transaction(ERASED_APP_ID, erasure.number, None))
    forget_versions(table, at, said)
    yield Step(len(touched), len(touched), erasure)


def any_between(offsets: pa.Array, first: int, last: int) -> bool:
    return bool(pc.any(pc.and_(pc.greater_equal(offsets, first), pc.less_equal(offsets, last))).as_py())


def place_of_record(table: DeltaTable, gone: pa.Array, marks: pa.Array, upto: int) -> int:
    """The last offset that is free then, or one that never had a row, as connections take offsets too. Where there is
    neither, the last mark is the record as well.
    """
    free = gone.filter(pc.invert(pc.is_in(gone, marks)))
    if len(free):
        offset: int = pc.max(free).as_py()
        return offset
    unused = unused_offset(table, upto)
    last: int = pc.max(gone).as_py()
    return last if unused is None else unused


def unused_offset(table: DeltaTable, upto: int) -> int | None:
    """An offset without a row: behind a file, in one, or before the first."""
    data = table.to_pyarrow_dataset()
    files = data_files(table)
    for file in reversed(files):
        near = (pc.field("offset") >= file.first) & (pc.field("offset") <= file.last + 1)
        used = set(data.to_table(columns=["offset"], filter=near)["offset"].to_pylist())
        unused = next((one for one in range(min(file.last + 1, upto), file.first, -1) if one not in used), None)
        if unused is not None:
            return unused
    return files[0].first - 1 if files and files[0].first > 1 else None


def append_record(table: DeltaTable, offset: int, erasure: Erasure) -> None:
    """The record in a row that takes nobody's place, with the time of the row before it, or of the first."""
    firsts = [file.first for file in data_files(table)]
    start = max((first for first in firsts if first <= offset), default=firsts[0])
    near = (pc.field("offset") >= start) & (pc.field("offset") <= max(start, offset))
    rows = table.to_pyarrow_dataset().to_table(columns=["timestamp"], filter=near)
    place = {"offset": offset, "timestamp": pc.max(rows["timestamp"]).as_py(), "mark": False}
    row = pa.Table.from_pylist([left_behind(place, True, erasure)], arrow_schema())
    once = CommitProperties(max_commit_retries=0)  # a store may have taken it although its answer was lost
    write_deltalake(table, row, mode="append", writer_properties=WRITING, commit_properties=once)


def rewrite(
    table: DeltaTable, first: int, last: int, gone: pa.Array, marks: pa.Array, record: int | None, erasure: Erasure
) -> None:
    """Writes the rows with offsets from `first` to `last` anew, without those that go."""
    within = (pc.field("offset") >= first) & (pc.field("offset") <= last)
    data = table.to_pyarrow_dataset()
    schema = data.schema

    def is_record(rows: pa.Table) -> pa.ChunkedArray:
        return pc.equal(rows["offset"], -1 if record is None else record)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in data.scanner(filter=within).to_batches():
            rows = pa.Table.from_batches([batch], schema)
            going = pc.is_in(rows["offset"], gone)
            marked = pc.is_in(rows["offset"], marks)
            places = rows.append_column("mark", marked).filter(pc.and_(going, pc.or_(marked, is_record(rows))))
            left = [left_behind(row, row["offset"] == record, erasure) for row in places.select(PLACE).to_pylist()]
            added = pa.Table.from_pylist(left, arrow_schema()).cast(schema)
            kept = pa.concat_tables([rows.filter(pc.invert(going)), added]).sort_by("offset")
            yield from kept.combine_chunks().to_batches()

    write_deltalake(
        table,
        pa.RecordBatchReader.from_batches(schema, batches()),
        mode="overwrite",
        predicate=f"offset >= {first} AND offset <= {last}",
        writer_properties=WRITING,
    )


def left_behind(place: dict[str, object], is_record: bool, erasure: Erasure) -> dict[str, object]:
    """The row that stands for one that goes, at its place: a mark, the record, or both."""
    return {
        "offset": place["offset"],
        "timestamp": place["timestamp"],
        "topic": place["topic"] if place["mark"] else ERASED_TOPIC,
        "payload": b"",
        "qos": 0,
        "retain": place["mark"],
        "client_id": "",
        "protocol": ERASED_PROTOCOL,
        "user_properties": erasure.record() if is_record else erasure.mark(),
        "outcome": OUTCOME_CLEARED if place["mark"] else OUTCOME_LIVE,
    }
