"""Spark on tables in an object store, without a jar of Hadoop's: the source reads there, the pipeline writes there."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest

from broker_process import serve_environment
from holdfast.history.compaction import compact
from holdfast.history.place import Place
from holdfast.history.storage_options import VARIABLE
from holdfast.history.writer import HistoryWriter
from log_records import retained
from object_store import S3Server, storage_file

READ = """
import json, sys
from holdfast.spark.session import start_session

spark = start_session("local[2]")
read = spark.read.format("holdfast").load(sys.argv[1])
print(json.dumps([read.count(), read.where("topic = 't/3'").count()]))
"""


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
    assert json.loads(run(place, tmp_path, "-c", READ, place.uri).splitlines()[-1]) == [101, 14]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_pipeline_keeps_its_tables_in_an_object_store(place: Place, tmp_path: Path) -> None:
    tables = "s3://lake/tables"
    command = ("-m", "holdfast", "pipeline", "run", "--once", "--history", place.uri, "--tables", tables)
    for _ in range(2):
        run(place, tmp_path, *command)
        kept = Place(f"{tables}/retained", place.storage_file).open().to_pyarrow_table()
        assert sorted(kept["topic"].to_pylist()) == [f"t/{number}" for number in range(8)]
        assert pc.max(kept["offset"]).as_py() == 101
