"""A damaged file is named, with what to do; no answer is given that leaves its rows out."""

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from holdfast.cli.main import build_app
from holdfast.cli.pipeline_setup import spark_in_one_sentence
from holdfast.errors import StoreError, UsageError
from holdfast.spark.failure import check_whole
from holdfast.spark.keeper import Keeper, history_frame
from holdfast.spark.ranges import History
from holdfast.spark.replay import fold_history
from spark.publishes import publishes, write_history

ROWS = publishes(400, topics=20, seed=71)


@pytest.fixture
def history(tmp_path: Path) -> str:
    return write_history(tmp_path / "data" / "history", ROWS, files=4)


def cut_to(share: float) -> Callable[[Path], None]:
    def cut(path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * share)])

    return cut


def overwrite(path: Path) -> None:
    """Damage that leaves the size as it was."""
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    path.write_bytes(content)


def invoke(*words: str) -> BaseException | None:
    return CliRunner().invoke(build_app("pipeline"), ["pipeline", *words]).exception


@pytest.mark.parametrize("share", [0, 0.5])
@pytest.mark.parametrize("command", ["run --once", "retained --replay", "audit", "stats", "report"])
def test_a_cut_file_of_history_is_named_before_spark_starts(
    tmp_path: Path, history: str, command: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # Spark would not start
    damaged = History(history).files[2].path
    cut_to(share)(Path(damaged))
    error = invoke(*command.split(), "--data", str(tmp_path / "data"))
    assert isinstance(error, StoreError)
    assert str(error).startswith(f"history file {damaged} is damaged (it has ")
    assert f"`holdfast doctor {tmp_path}/data --repair`" in str(error)
    assert not (tmp_path / "data" / "pipeline").exists()


def test_damage_that_shows_only_in_reading_is_named_too(spark: SparkSession, tmp_path: Path, history: str) -> None:
    table = History(history)
    damaged = table.files[1].path
    overwrite(Path(damaged))
    check_whole(table)
    with pytest.raises(UsageError) as caught, spark_in_one_sentence(False):
        history_frame(spark, table).collect()
    assert f"history file {damaged} is damaged (Spark cannot read it): put it back from a backup" in str(caught.value)
    assert f"`holdfast doctor {tmp_path}/data --repair`" in str(caught.value)


def test_damage_that_the_fold_finds_is_named_too(spark: SparkSession, tmp_path: Path, history: str) -> None:
    table = History(history)
    damaged = table.files[1].path
    overwrite(Path(damaged))
    with pytest.raises(UsageError) as caught, spark_in_one_sentence(False):
        fold_history(spark, table).collect()
    assert f"history file {damaged} is damaged (it cannot be read): put it back from a backup" in str(caught.value)
    assert f"`holdfast doctor {tmp_path}/data --repair`" in str(caught.value)


def test_a_damaged_file_of_a_table_is_made_anew(spark: SparkSession, tmp_path: Path, history: str) -> None:
    keeper = Keeper(spark, history, str(tmp_path / "data" / "pipeline"))
    keeper.advance("traffic", 1000)
    root = Path(keeper.tables["traffic"].root)
    [damaged] = DeltaTable(root).file_uris()
    cut_to(0.7)(Path(damaged))
    with pytest.raises(UsageError) as caught, spark_in_one_sentence(False):
        keeper.tables["traffic"].frame(spark).collect()
    keeper.close()
    assert f"{damaged} is damaged" in str(caught.value)
    assert f"remove the folder {root} and run `holdfast pipeline run --once`" in str(caught.value)


def test_what_the_message_advises_works(spark: SparkSession, tmp_path: Path, history: str) -> None:
    """Move the file away and run the doctor: the rest can be read again."""
    damaged = History(history).files[-1]
    cut_to(0.5)(Path(damaged.path))
    Path(damaged.path).rename(tmp_path / "set-aside")
    done = CliRunner().invoke(build_app("doctor"), ["doctor", str(tmp_path / "data"), "--repair"])
    assert done.exit_code == 0, done.output
    assert Path(damaged.path).name in done.output
    mended = History(history)
    check_whole(mended)
    left = [row.offset for row in history_frame(spark, mended).select("offset").orderBy("offset").collect()]
    assert left == list(range(1, damaged.first))
