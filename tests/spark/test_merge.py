"""What tasks make of a batch, run by run, without Spark: packed rows in, files out, and tables hold what they must."""

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import Row as SparkRow

from holdfast.history.schema import arrow_schema
from holdfast.spark.delta import Table
from holdfast.spark.derived import Batch
from holdfast.spark.files import add_action
from holdfast.spark.leaves import Runs, crowded
from holdfast.spark.merge import PACKED, RUN, Change, Part, Task, pack
from holdfast.spark.options import micros
from holdfast.spark.succession import CLEARED, LIVE, REFUSED, SET
from holdfast.spark.tables import TABLES
from spark.publishes import Row, publishes
from spark.test_fold import expected, normal

ROWS = publishes(2_000, topics=120, seed=33)
NAMES = ("retained", "retained_intervals", "topic_stats")
KINDS = {"set": SET, "cleared": CLEARED, "live": LIVE}


def taken(rows: list[Row]) -> pa.Table:
    """What Spark would make of history's rows for these tables."""
    table = pa.Table.from_pylist(rows, schema=arrow_schema())
    kinds = [KINDS.get(row["outcome"], REFUSED) for row in rows]
    changed = pa.array([kind in (SET, CLEARED) for kind in kinds])
    more = {
        "kind": pa.array(kinds, pa.int8()),
        "size": pc.binary_length(table["payload"]),
        "bit": pa.array([1 << (hash(row["client_id"]) % 60) for row in rows]),
        "taken by retained": changed,
        "taken by retained_intervals": changed,
    }
    for name, column in more.items():
        table = table.append_column(name, column)
    return table.drop_columns(["retain", "outcome"])


def run_of(runs: Runs, topic: str) -> int:
    return sum(topic >= bound for bound in runs.bounds)


def follow(tables: dict[str, Table], rows: list[Row], runs: Runs) -> None:
    """One batch, as `Keeper.apply` does it; what reaches a task is what a shuffle would bring it."""
    parts = []
    for table in tables.values():
        leaves = [file for file in table.files if not file.closed]
        parts.append(Part(table.value, table.root, leaves, crowded(leaves), 25))
    batch = Batch(rows[0]["offset"], rows[-1]["offset"] + 1, len(rows), micros(rows[-1]["timestamp"]))
    table = taken(rows)
    numbers = pa.array([run_of(runs, row["topic"]) for row in rows], pa.int32())
    packed = pa.Table.from_batches(pack(iter(table.append_column(RUN, numbers).to_batches(max_chunksize=100))))
    found = {name: Change([], set()) for name in tables}
    for run in range(runs.tasks):
        mine = packed.filter(pc.equal(packed[RUN], run))
        mark = pa.table({RUN: pa.array([run], pa.int32()), PACKED: pa.array([None], pa.binary())})
        for reports in Task(runs, parts, batch)(iter(pa.concat_tables([mine, mark]).to_batches())):
            for report in reports.to_pylist():
                change = found[report["table"]]
                if report["rows"]:
                    change.added.append(add_action(SparkRow(**report)))
                else:
                    change.removed.add(report["path"])
    for name, each in tables.items():
        replaced = [file for file in each.files if file.path in found[name].removed]
        each.commit(found[name].added, replaced, batch.end)


def rows_of(table: Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(table.root).to_pyarrow_table().to_pylist()
    return rows


@pytest.mark.parametrize("seed", range(4))
def test_tables_do_not_depend_on_batches_nor_on_runs(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    topics = sorted({row["topic"] for row in ROWS})
    tables = {name: Table(str(tmp_path / name), TABLES[name]) for name in NAMES}
    rows = ROWS
    while rows:
        size = draw.choice((1, 5, 40, 300, 700))
        follow(tables, rows[:size], Runs(sorted(draw.sample(topics, draw.choice((0, 1, 4))))))
        rows = rows[size:]
        for table in tables.values():
            open_leaves = sorted((file.low, file.high) for file in table.files if not file.closed)
            assert all(low <= high for low, high in open_leaves)
    end = ROWS[-1]
    held = [row for row in rows_of(tables["retained"]) if not row["expires_at"] or row["expires_at"] > end["timestamp"]]
    assert {row["topic"]: normal(row) for row in held} == expected(ROWS, offset=end["offset"])
    assert len(held) == len({row["topic"] for row in held})
    sets = [row["offset"] for row in ROWS if row["outcome"] == "set"]
    assert sorted(row["offset"] for row in rows_of(tables["retained_intervals"])) == sets
    counted: dict[str, int] = defaultdict(int)
    for row in ROWS:
        counted[row["topic"]] += 1
    assert {row["topic"]: row["messages"] for row in rows_of(tables["topic_stats"])} == counted


def test_leaves_that_a_batch_does_not_name_are_left_alone(tmp_path: Path) -> None:
    tables = {"topic_stats": Table(str(tmp_path / "topic_stats"), TABLES["topic_stats"])}
    [table] = tables.values()
    follow(tables, ROWS[:1500], Runs([]))
    before = {file.path: file for file in table.files}
    follow(tables, ROWS[1500:1501], Runs([]))
    after = {file.path for file in table.files}
    gone = [file for path, file in before.items() if path not in after]
    assert len(before) > 3
    assert [file.low <= ROWS[1500]["topic"] <= file.high for file in gone] == [True]
