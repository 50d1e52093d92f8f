"""Files of rows that have ended, joined without having all of them in memory: as if they had been written at once."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.spark import files
from holdfast.spark.delta import CLOSED
from holdfast.spark.derived import DerivedTable
from holdfast.spark.files import join_files, read_file, write_file

SCHEMA = pa.schema([("topic", pa.string()), ("offset", pa.int64()), ("to_offset", pa.int64()), ("size", pa.int32())])
ENDING = DerivedTable("ending", SCHEMA, ("topic",), lambda held, rows, batch: rows, ended="to_offset")
ADDED = DerivedTable("added", SCHEMA, (), lambda held, rows, batch: rows)


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GROUP_ROWS", 100)
    monkeypatch.setattr(files, "JOINED_ROWS", 0)


def some_rows(seed: int, count: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    offsets = rng.permutation(np.arange(seed * 10_000, seed * 10_000 + count))
    sizes = pa.array(rng.integers(0, 50, count), pa.int32(), mask=rng.random(count) < 0.1)
    ends = offsets + 2 ** rng.integers(0, 20, count)
    return pa.table([pa.array([f"t/{n % 7}" for n in offsets]), offsets, ends, sizes], schema=SCHEMA)


def write(root: Path, value: DerivedTable, *tables: pa.Table) -> list[str]:
    return [write_file(table, str(root), value, CLOSED)["path"][0].as_py() for table in tables]


@pytest.mark.parametrize("value", [ENDING, ADDED], ids=["by life", "as added"])
@pytest.mark.parametrize("counts", [(2500, 1, 1700), (0, 3), (40,)], ids=str)
def test_joined_files_are_what_one_file_of_all_their_rows_would_be(
    tmp_path: Path, value: DerivedTable, counts: tuple[int, ...]
) -> None:
    tables = [some_rows(seed, count) for seed, count in enumerate(counts)]
    [joined] = join_files(str(tmp_path), write(tmp_path, value, *tables), value).to_pylist()
    [whole] = write_file(pa.concat_tables(tables), str(tmp_path), value, CLOSED).to_pylist()
    assert joined["rows"] == whole["rows"] == sum(counts)
    assert json.loads(joined["stats"]) == json.loads(whole["stats"])
    assert read_file(str(tmp_path), joined["path"], value) == read_file(str(tmp_path), whole["path"], value)
    groups = pq.ParquetFile(tmp_path / joined["path"]).metadata
    assert all(groups.row_group(n).num_rows == 100 for n in range(groups.num_row_groups - 1))


def test_a_file_whose_rows_lie_in_another_order_loses_none(tmp_path: Path) -> None:
    pq.write_table(some_rows(0, 3000), tmp_path / "unsorted.parquet")
    names = ["unsorted.parquet", *write(tmp_path, ENDING, some_rows(1, 500))]
    [joined] = join_files(str(tmp_path), names, ENDING).to_pylist()
    found = read_file(str(tmp_path), joined["path"], ENDING)
    expected = pa.concat_tables([some_rows(0, 3000), some_rows(1, 500)])
    assert found.sort_by("offset") == expected.sort_by("offset")
