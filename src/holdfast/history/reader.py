"""Questions to the past: what happened to a topic, and what was retained at a moment.

The answers come from replaying the table. The last row with a verdict decides about a topic; whether it had expired is
asked of the moment, never of today.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from holdfast.broker.topics import matches
from holdfast.history.erased import Erasure, erasure_of
from holdfast.history.place import At
from holdfast.history.schema import ERASED_PROTOCOL, OUTCOME_CLEARED, OUTCOME_SET
from holdfast.history.table import complete_from, data_files, last_offset, live_from, load

MICROSECONDS = pa.timestamp("us", tz="UTC")
# Rows that are decoded at once, whatever their size.
BATCH_ROWS = 1024
# What finds a row again, and tells whose it is, without what makes it heavy.
FINDING = ["offset", "topic", "client_id", "username", "protocol"]
# In place of a topic filter: all topics, those too that begin with a dollar sign, which no wildcard reaches.
EVERY_TOPIC = ""


class HistoryReader:
    """One version of the table. `refresh` moves to the newest."""

    def __init__(self, at: At) -> None:
        self.table: DeltaTable = load(at)

    def refresh(self) -> None:
        self.table.update_incremental()

    @property
    def last(self) -> int:
        return last_offset(self.table)

    @property
    def complete_from(self) -> int:
        return complete_from(self.table)

    @property
    def live_from(self) -> int:
        return live_from(self.table)

    def of_topic(
        self,
        topic: str,
        from_ms: int = 0,
        to_ms: int = 0,
        most: int = 0,
        before: int = 0,
        columns: list[str] | None = None,
    ) -> pa.Table:
        """The rows of one topic in offset order, of those before an offset the newest `most` when these are given."""
        wanted = pc.field("topic") == topic
        if from_ms:
            wanted &= pc.field("timestamp") >= moment(from_ms)
        if to_ms:
            wanted &= pc.field("timestamp") <= moment(to_ms)
        if before:
            wanted &= pc.field("offset") < before
        data = self.table.to_pyarrow_dataset()
        if not most:
            return data.to_table(columns=columns, filter=wanted).sort_by("offset")
        found: list[pa.Table] = []
        missing = most
        for low, high in self.newest_first(before):
            within = (pc.field("offset") > low) & (pc.field("offset") <= high)
            rows = data.to_table(columns=columns, filter=wanted & within)
            found.append(rows.sort_by("offset"))
            missing -= rows.num_rows
            if missing <= 0:
                break
        rows = pa.concat_tables([*reversed(found)]) if found else data.head(0, columns=columns)
        return rows.slice(max(0, rows.num_rows - most))

    def newest_first(self, before: int) -> Iterator[tuple[int, int]]:
        """Ranges of offsets (above, up to) from the newest file on, each over twice as many files as the one before:
        who asks for the last few rows reads the last few files.
        """
        files = data_files(self.table)
        ends = sorted({file.last for file in files if not before or file.first < before}, reverse=True)
        start, step = 0, 1
        while start < len(ends):
            behind = start + step
            yield (ends[behind] if behind < len(ends) else -1), ends[start]
            start, step = behind, step * 2

    def retained_at(self, at_ms: int, topic_filter: str = "#") -> pa.Table:
        """What a new subscriber would have been sent at that moment, in topic order."""
        return self.retained(pc.field("timestamp") <= moment(at_ms), at_ms, topic_filter)

    def retained_upto(self, offset: int, at_ms: int, topic_filter: str = "#") -> pa.Table:
        """The retained set after the publish with that offset, with expiry as of `at_ms`."""
        return self.retained(pc.field("offset") <= offset, at_ms, topic_filter)

    def retained(self, upto: pc.Expression, at_ms: int, topic_filter: str) -> pa.Table:
        return self.rows(self.retained_offsets(upto, at_ms, topic_filter)).sort_by("topic")

    def rows(self, offsets: pa.Array) -> pa.Table:
        """The rows with these offsets. Files and row groups that lie beyond them all are not read."""
        rows = self.rows_within(offsets, None)
        assert rows is not None
        return rows

    def rows_within(self, offsets: pa.Array, most_bytes: int | None) -> pa.Table | None:
        """The rows with these offsets, or None when they have more bytes than that."""
        ends = pc.min_max(offsets)
        within = (pc.field("offset") >= ends["min"]) & (pc.field("offset") <= ends["max"])
        wanted = within & pc.field("offset").isin(offsets)
        data = self.table.to_pyarrow_dataset()
        if most_bytes is None:
            return data.to_table(filter=wanted)
        found, is_whole = batches_within(data, wanted, most_bytes)
        return found if is_whole else None

    def retained_within(
        self, upto: pc.Expression, at_ms: int, topic_filter: str, most_bytes: int
    ) -> tuple[pa.Table, bool]:
        """What was retained, in topic order: whole rows as long as these are no more bytes than that, else the columns
        of FINDING. Which of the two it is comes second.
        """
        wanted = pc.field("offset").isin(self.retained_offsets(upto, at_ms, topic_filter))
        data = self.table.to_pyarrow_dataset()
        found, is_whole = batches_within(data, wanted, most_bytes)
        if not is_whole:
            found = data.to_table(columns=FINDING, filter=wanted)
        return found.sort_by("topic"), is_whole

    def retained_offsets(self, upto: pc.Expression, at_ms: int, topic_filter: str) -> pa.Array:
        data = self.table.to_pyarrow_dataset()
        wanted = upto & pc.field("outcome").isin([OUTCOME_SET, OUTCOME_CLEARED])
        if topic_filter != EVERY_TOPIC and "#" not in topic_filter and "+" not in topic_filter:
            wanted &= pc.field("topic") == topic_filter
        rows = data.to_table(columns=["offset", "topic", "outcome", "expires_at"], filter=wanted)
        last = last_verdicts(rows)
        alive = pc.or_kleene(pc.is_null(last["expires_at"]), pc.greater(last["expires_at"], moment(at_ms)))
        last = last.filter(pc.and_(pc.equal(last["outcome"], OUTCOME_SET), alive))
        return matching(last, topic_filter)["offset"].combine_chunks()


def batches_within(data: ds.Dataset, wanted: pc.Expression, most_bytes: int) -> tuple[pa.Table, bool]:
    """The rows that are wanted up to so many bytes, and whether these are all."""
    batches: list[pa.RecordBatch] = []
    size = 0
    scanner = data.scanner(filter=wanted, batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1)
    for batch in scanner.to_batches():
        batches.append(batch)
        size += batch.nbytes
        if size > most_bytes:
            return pa.Table.from_batches(batches, data.schema), False
    return pa.Table.from_batches(batches, data.schema), True


def records(table: DeltaTable) -> list[tuple[int, Erasure]]:
    """The erasures of a table, finished or not, with the offsets of their records."""
    wanted = pc.field("protocol") == ERASED_PROTOCOL
    rows = table.to_pyarrow_dataset().to_table(columns=["offset", "user_properties"], filter=wanted)
    known = ((row["offset"], erasure_of(row)) for row in rows.sort_by("offset").to_pylist())
    return [(offset, erasure) for offset, erasure in known if erasure is not None]


def last_verdicts(rows: pa.Table) -> pa.Table:
    """For each topic the last of its rows that set or cleared something."""
    rows = rows.filter(pc.is_in(rows["outcome"], pa.array([OUTCOME_SET, OUTCOME_CLEARED])))
    newest = rows.group_by("topic").aggregate([("offset", "max")])
    return rows.filter(pc.is_in(rows["offset"], newest["offset_max"].combine_chunks()))


def matching(rows: pa.Table, topic_filter: str) -> pa.Table:
    if topic_filter == EVERY_TOPIC:
        return rows
    levels = topic_filter.encode().split(b"/")
    keep = [matches(levels, topic.encode().split(b"/")) for topic in rows["topic"].to_pylist()]
    return rows.filter(pa.array(keep, pa.bool_()))


def moment(at_ms: int) -> pa.Scalar:
    return pa.scalar(at_ms * 1000, MICROSECONDS)
