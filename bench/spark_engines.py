"""Ways to keep `retained`, on the same rows: our files, `deltalake`'s merge and overwrite of ranges, Spark's state.

A table of so many topics takes a batch of so many changes. What a library needs that is not its own is left out of its
time: it gets the batch as Arrow, in memory, while ours reads it from history through Spark.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from spark_history import batch as some_rows
from spark_history import topic_names
from spark_work import Figures, Memory, costs, session

# What one task of ours has at most, so that ranges are of the same size.
RANGE_ROWS = 250_000


def rows_for(first: int, topics: pa.Array, count: int) -> pa.RecordBatch:
    """The first `len(topics)` rows set each topic once; later ones are as they come."""
    if first > 1:
        return some_rows(first, count, topics)
    rows = some_rows(first, count, topics)
    columns = {name: rows.column(name) for name in rows.schema.names}
    size = rows.num_rows
    columns |= {"topic": topics, "outcome": pa.array(["set"] * size), "retain": pa.array([True] * size)}
    columns["expires_at"] = pa.nulls(size, rows.schema.field("expires_at").type)
    return pa.record_batch(list(columns.values()), schema=rows.schema)


def fill(history: str, topics: int, changes: int) -> None:
    """History of a row for each topic, and as many changes again."""
    from holdfast.history.writer import HistoryWriter

    names = topic_names(topics)
    writer = HistoryWriter(Path(history), Path(history).parent / "quarantine")
    try:
        writer.commit(rows_for(1, names, topics), topics)
        writer.commit(rows_for(topics + 1, names, changes), topics + changes)
    finally:
        writer.close()


def _changes(history: str, topics: int) -> tuple[pa.Table, pa.Table]:
    """The retained set before the batch, and the batch as the step takes it."""
    from holdfast.history.schema import arrow_schema
    from holdfast.spark.ranges import History, Piece, read_piece
    from holdfast.spark.succession import CLEARED, RETAINED, RETAINED_SCHEMA, SET

    table = History(history)

    def read(start: int, end: int) -> pa.Table:
        piece = Piece(start, end, table.holding(start, end))
        return pa.Table.from_batches(read_piece(piece, history, arrow_schema(), None, True), arrow_schema())

    held = read(1, topics + 1).select(RETAINED).cast(RETAINED_SCHEMA)
    rows = read(topics + 1, table.end)
    rows = rows.filter(pc.is_in(rows["outcome"], pa.array(["set", "cleared"])))
    kind = pc.if_else(pc.equal(rows["outcome"], "set"), SET, CLEARED).cast(pa.int8())
    return held, rows.select(RETAINED).cast(RETAINED_SCHEMA).append_column("kind", kind)


def engine_of_files(history: str, tables: str, topics: int, changes: int) -> Figures:
    from holdfast.spark.keeper import Keeper
    from holdfast.spark.tables import RETAINED_TABLE

    memory = Memory()
    with session() as spark:
        keeper = Keeper(spark, history, tables, tables=[RETAINED_TABLE])
        keeper.advance("retained", topics)
        took, cpu = costs(lambda: keeper.advance("retained", changes))
        keeper.close()
    return _figures(took, cpu, changes, memory, tables + "/retained")


def engine_of_merge(history: str, tables: str, topics: int, changes: int) -> Figures:
    """`MERGE`: what the batch leaves of each topic, on the driver."""
    held, rows = _changes(history, topics)
    write_deltalake(tables, held.sort_by("topic"), target_file_size=16 << 20)
    memory = Memory()

    def work() -> None:
        last = rows.group_by("topic").aggregate([("offset", "max")])
        source = rows.filter(pc.is_in(rows["offset"], last["offset_max"]))
        names = [name for name in source.column_names if name != "kind"]
        merge = DeltaTable(tables).merge(source, "old.topic = new.topic", source_alias="new", target_alias="old")
        merge = merge.when_matched_delete("new.kind = 2")
        merge = merge.when_matched_update({name: f"new.{name}" for name in names})
        merge.when_not_matched_insert({name: f"new.{name}" for name in names}, "new.kind = 1").execute()

    took, cpu = costs(work)
    return _figures(took, cpu, changes, memory, tables)


def engine_of_ranges(history: str, tables: str, topics: int, changes: int) -> Figures:
    """A range of topics after the other: read, step, overwrite where the topic is in it. A commit for each."""
    from holdfast.spark.derived import Batch
    from holdfast.spark.succession import retained_after

    held, rows = _changes(history, topics)
    write_deltalake(tables, held.sort_by("topic"), target_file_size=16 << 20)
    at = Batch(0, 0, changes, pc.max(rows["timestamp"]).cast(pa.int64()).as_py())
    memory = Memory()

    def work() -> None:
        for low, high in _ranges(held["topic"], rows.num_rows):
            bounds = [("topic", ">=", low), *([("topic", "<", high)] if high else [])]
            found = DeltaTable(tables).to_pyarrow_table(filters=bounds).cast(held.schema)
            inside = pc.greater_equal(rows["topic"], low)
            inside = pc.and_(inside, pc.less(rows["topic"], high)) if high else inside
            after = retained_after(found, rows.filter(inside), at)
            where = f"topic >= '{low}'" + (f" AND topic < '{high}'" if high else "")
            write_deltalake(tables, after, mode="overwrite", predicate=where)

    took, cpu = costs(work)
    return _figures(took, cpu, changes, memory, tables)


def _ranges(topics: pa.ChunkedArray, changes: int) -> Iterator[tuple[str, str | None]]:
    ordered = topics.take(pc.sort_indices(topics))
    step = len(ordered) * RANGE_ROWS // (len(ordered) + changes)
    lows = ["", *(ordered[place].as_py() for place in range(step, len(ordered), step))]
    yield from zip(lows, [*lows[1:], None], strict=True)


def engine_of_state(history: str, tables: str, topics: int, changes: int) -> Figures:
    """`transformWithState`: the last change of each topic as state in RocksDB, from a stream of the changes."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Last(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.kept = handle.getValueState("kept", "offset long, payload binary, outcome string")

        def handleInputRows(self, key, rows, timers):  # type: ignore[no-untyped-def]
            last = max(rows, key=lambda row: row.offset)
            self.kept.update((last.offset, last.payload, last.outcome))
            yield Row(topic=key[0], offset=last.offset)

        def close(self) -> None:
            pass

    memory = Memory()
    with session() as spark:
        spark.conf.set(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        source = spark.readStream.format("holdfast").option("startingOffsets", topics + 1)
        rows = source.option("endingOffsets", topics + 1 + changes).load(history)
        last = (
            rows.where("outcome IN ('set', 'cleared')")
            .select("topic", "offset", "payload", "outcome")
            .groupBy("topic")
            .transformWithState(Last(), "topic string, offset long", "update", "None")
        )

        def work() -> None:
            query = last.writeStream.outputMode("update").format("noop").trigger(availableNow=True)
            query.option("checkpointLocation", tables).start().awaitTermination()

        took, cpu = costs(work)
    return {"seconds": took, "cpu_s": cpu, **memory.stop(), "rows_per_s": changes / took}


def _figures(took: float, cpu: float, changes: int, memory: Memory, table: str) -> Figures:
    found = DeltaTable(table).to_pyarrow_table(columns=["offset"])["offset"]
    return {
        "seconds": took,
        "cpu_s": cpu,
        **memory.stop(),
        "rows_per_s": changes / took,
        # to see that all of them made the same table
        "rows": len(found),
        "sum_of_offsets": pc.sum(found).as_py(),
    }
