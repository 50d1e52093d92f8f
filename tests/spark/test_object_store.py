"""Spark on tables in an object store, without a jar of Hadoop's: the source reads there, the pipeline writes there."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from broker_process import serve_environment
from holdfast.cli.pipeline_erasing import count_in_tables, follow_history
from holdfast.errors import StoreError, UsageError
from holdfast.history.compaction import compact
from holdfast.history.erased import Selector
from holdfast.history.place import Place
from holdfast.history.storage_options import VARIABLE
from holdfast.history.writer import HistoryWriter
from holdfast.spark.delta import Table, layouts
from holdfast.spark.files import add_action, write_file
from holdfast.spark.jobs.run import Runner
from holdfast.spark.keeper import Keeper, Lock
from holdfast.spark.succession import RETAINED_SCHEMA
from holdfast.spark.tables import RETAINED_TABLE
from log_records import retained
from object_store import S3Server, storage_file
from spark.publishes import publishes, write_history

READ = """
import json, sys
from holdfast.spark.jobs.past import retained_at
from holdfast.spark.ranges import History
from holdfast.spark.session import start_session

history, tables = sys.argv[1:]
spark = start_session("local[2]")
read = spark.read.format("holdfast").load(history)
past = retained_at(spark, History(history), tables, 50)
print(json.dumps([read.count(), read.where("topic = 't/3'").count(), past.how, past.rows.count()]))
"""
TABLES = "s3://lake/tables"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A history of 101 rows on 8 topics, of which most lie in one file that others were joined to."""
    server = S3Server()
    place = Place("s3://lake/history", str(storage_file(tmp_path, server.port)))
    writer = HistoryWriter(place, tmp_path / "quarantine")
    for first in range(1, 101, 10):
        writer.append([retained(f"t/{o % 7}", b"%d" % o, o) for o in range(first, first + 10)], first + 9)
    compact(writer.table, place)
    writer.append([retained("t/7", b"last", 101)], 101)
    writer.close()
    yield place
    server.stop()


def run(place: Place, folder: Path, *arguments: str) -> str:
    """What a process says that knows the store by its variable alone."""
    ran = subprocess.run(
        [sys.executable, *arguments],
        env=serve_environment({VARIABLE: place.storage_file}),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout


@pytest.mark.timeout(900)
def test_the_source_reads_in_an_object_store(place: Place, tmp_path: Path) -> None:
    found = json.loads(run(place, tmp_path, "-c", READ, place.uri, TABLES).splitlines()[-1])
    assert found == [101, 14, "replay", 7]


def test_what_is_erased_leaves_tables_in_an_object_store(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, place.storage_file)
    wanted = (TABLES, place, Selector("topic", "t/3"), 0)
    assert count_in_tables(*wanted) == {}, "there are no tables yet"
    assert layouts(TABLES) == {}
    table = Table(f"{TABLES}/retained", RETAINED_TABLE)
    rows = place.open().to_pyarrow_table().select(RETAINED_SCHEMA.names).cast(RETAINED_SCHEMA)
    [report] = write_file(rows, table.root, table.value).to_pylist()
    table.commit([add_action(Row(**report))], [], 102)
    assert count_in_tables(*wanted) == {"retained": 13}, "all that it was before; what is in force stays"
    run_at_work = Lock(TABLES)
    with pytest.raises(UsageError, match="another pipeline run"):
        follow_history(TABLES, place, "of a topic", *wanted[2:])
    run_at_work.release()
    assert follow_history(TABLES, place, "of a topic", *wanted[2:]) == {"retained": 13}
    assert Table(table.root, RETAINED_TABLE).rows == 101 - 13
    assert {name: layout["rows"] for name, layout in layouts(TABLES).items()} == {"retained": 101 - 13}


def test_two_runs_on_one_place_in_an_object_store_are_refused(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, place.storage_file)
    keeper = Keeper(spark, place.uri, TABLES)
    with pytest.raises(UsageError, match="another pipeline run"):
        Keeper(spark, place.uri, TABLES)
    keeper.close()


def test_a_run_on_tables_in_an_object_store_leaves_no_checkpoint_behind(
    spark: SparkSession, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, place.storage_file)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    history = write_history(tmp_path / "history", publishes(20, topics=5, seed=16))
    keeper = Keeper(spark, history, TABLES, tables=[RETAINED_TABLE])
    keeper.tables["retained"].commit([], [], keeper.history.end)
    seen: list[Path] = []
    start = DataStreamWriter.start

    def start_and_look(writer: DataStreamWriter) -> StreamingQuery:
        query = start(writer)
        seen.extend(folders_in(tmp_path / "temporary"))
        return query

    monkeypatch.setattr(DataStreamWriter, "start", start_and_look)
    Runner(keeper).once()
    assert len(seen) == 1
    assert folders_in(tmp_path / "temporary") == []
    write_history(tmp_path / "history", publishes(20, topics=5, seed=17, first=21))
    for file in (tmp_path / "history").glob("*.parquet"):
        file.write_bytes(b"")
    with pytest.raises(StoreError, match="damaged"):
        Runner(keeper).once()
    assert len(seen) == 2
    assert folders_in(tmp_path / "temporary") == []
    keeper.close()


def folders_in(path: Path) -> list[Path]:
    return [one for one in path.iterdir() if one.is_dir()]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_pipeline_keeps_its_tables_in_an_object_store(place: Place, tmp_path: Path) -> None:
    command, places = ("-m", "holdfast", "pipeline"), ("--history", place.uri, "--tables", TABLES)
    for _ in range(2):
        run(place, tmp_path, *command, "run", "--once", *places)
        kept = Place(f"{TABLES}/retained", place.storage_file).open().to_pyarrow_table()
        assert sorted(kept["topic"].to_pylist()) == [f"t/{number}" for number in range(8)]
        assert pc.max(kept["offset"]).as_py() == 101
    then = run(place, tmp_path, *command, "retained", "--at", "50", "--json", *places)
    assert sorted(json.loads(line)["offset"] for line in then.splitlines()) == list(range(44, 51))
