"""`holdfast pipeline` as people run it: what it prints, and that mistakes are one sentence and leave nothing behind."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.sql import Row, SparkSession

from holdfast.cli import pipeline_display
from holdfast.cli.pipeline_setup import Locations, find_locations, open_history
from holdfast.errors import UsageError
from holdfast.history.schema import LIVE_APP_ID
from holdfast.spark.delta import CLOSED, Table
from holdfast.spark.derived import DerivedTable
from holdfast.spark.files import add_action, write_file
from holdfast.spark.keeper import Keeper
from holdfast.spark.session import check_java, collector
from holdfast.spark.tables import TABLES, pipeline_tables
from spark.brokers import LIMIT_S, Holdfast, link_options, publisher, retained_rows, wait_for
from spark.commands import QUICK_JAVA, Pipeline, Ran, run_command
from spark.publishes import publishes, write_history

ROWS = publishes(500, topics=40, seed=61)


def as_process(*words: str, **environment: str) -> Ran:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "pipeline", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA, **environment},
    )


def refusal(*words: str) -> str:
    """The one line that a refused command prints."""
    ran = run_command(*words)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert ran.stdout == ""
    [line] = ran.stderr.splitlines()
    assert line.startswith("holdfast: ")
    return line


def test_who_counts_messages_is_told_that_live_ones_are_not_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = Locations(write_history(tmp_path / "history", ROWS[:10]), "", "", tmp_path)
    open_history(where, counts=True)
    assert capsys.readouterr().err == ""
    table = DeltaTable(where.history)
    marked = CommitProperties(app_transactions=[Transaction(LIVE_APP_ID, 0)])
    table.create_write_transaction([], "append", table.schema(), commit_properties=marked)
    open_history(where)
    assert capsys.readouterr().err == ""
    open_history(where, counts=True)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"note: history at {where.history} has no messages without RETAIN")
    assert 'history.record = "all"' in line


def test_missing_history_is_one_sentence_and_nothing_is_made(tmp_path: Path) -> None:
    line = refusal("run", "--once", "--data", str(tmp_path / "data"))
    assert f"there is no history table at {tmp_path}/data/history" in line
    assert not (tmp_path / "data").exists()


def test_a_wrong_address_is_one_sentence() -> None:
    assert "is the broker running?" in refusal("stats", "--history", "http://127.0.0.1:1")


def test_a_bad_moment_is_one_sentence_before_spark_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = write_history(tmp_path / "history", ROWS[:10])
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    line = refusal("retained", "--history", history, "--at", "last tuesday")
    assert line.endswith("or a time such as 2026-01-31T12:00:00Z, got 'last tuesday'")
    assert "expected an offset" in line
    assert "Java" not in line


def test_a_bad_output_file_is_refused_before_work(tmp_path: Path) -> None:
    assert "expected --out to end in .jsonl or .parquet" in refusal("retained", "--out", str(tmp_path / "set.xml"))


def test_without_java_the_command_says_what_to_install(tmp_path: Path) -> None:
    """As a process: one in which Spark runs already has its Java."""
    history = write_history(tmp_path / "history", ROWS[:10])
    ran = as_process("stats", "--history", history, JAVA_HOME=str(tmp_path))
    assert ran.returncode == 1
    [line] = ran.stderr.splitlines()
    assert line.startswith("holdfast: ")
    assert "apt-get install -y openjdk-17-jre-headless" in line


@pytest.mark.parametrize(("said", "fine"), [('openjdk version "11.0.2"', False), ('openjdk version "21.0.1"', True)])
def test_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, fine: bool) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if fine:
        check_java()
    else:
        with pytest.raises(UsageError, match="Java 17 or newer"):
            check_java()


@pytest.mark.parametrize(
    ("master", "options", "variable", "asked"),
    [
        ("local[2]", "", "", True),
        ("local[2]", "-Xss4m", "-Dfile.encoding=UTF-8", True),
        ("local[2]", "-XX:+UseG1GC", "", False),
        ("local[2]", "", "-XX:+UseZGC", False),
        ("spark://host:7077", "", "", False),
    ],
)
def test_java_is_asked_for_one_garbage_collector_at_most(
    monkeypatch: pytest.MonkeyPatch, master: str, options: str, variable: str, asked: bool
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", variable)
    assert bool(collector(master, options)) == asked


def test_without_the_extra_the_command_says_how_to_get_it(tmp_path: Path) -> None:
    """A folder in front of the real packages, as an installation without the extra would look."""
    code = (
        "import sys, importlib.util as util\n"
        "found = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'pyspark' else found(name, *rest)\n"
        "from holdfast.cli.main import main\n"
        f"main(['pipeline', 'stats', '--history', {str(tmp_path)!r}])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert ran.returncode == 1
    assert ran.stderr.strip() == (
        "holdfast: pyspark is not installed: `pip install 'holdfast-mqtt[spark]'` brings what the pipeline needs"
    )


@pytest.mark.parametrize("command", ["run", "retained", "audit", "restore", "report", "stats"])
def test_help_works_and_has_examples(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = run_command(command, "--help")
    assert shown.returncode == 0
    assert shown.stdout.count(f"holdfast pipeline {command}") > 1


def test_stats_lists_the_pipelines_tables_and_those_of_users(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    history = write_history(tmp_path / "history", ROWS)
    places = ("--history", history, "--tables", str(tmp_path / "tables"))
    assert json.loads(pipeline("stats", "--json", *places).stdout)["tables"] == {}
    schema = pa.schema([("offset", pa.int64()), ("topic", pa.string())])
    readings = DerivedTable("readings", schema, (), lambda _held, rows, _batch: rows)
    keeper = Keeper(spark, history, str(tmp_path / "tables"), tables=(*pipeline_tables(), readings))
    table, sizes = keeper.tables["readings"], []
    for row in ROWS[:3]:
        rows = pa.table({name: [row[name]] for name in schema.names}, schema)
        [report] = write_file(rows, table.root, readings, CLOSED).to_pylist()
        table.commit([add_action(Row(**report))], [], row["offset"] + 1)
        sizes.append(report["size"])
    assert keeper.compact(least=3) == 1
    keeper.close()
    (tmp_path / "tables" / "notes").mkdir()  # of a user, and no table

    found = json.loads(pipeline("stats", "--json", *places).stdout)["tables"]
    assert list(found) == [*TABLES, "readings"]
    assert (found["retained"]["files"], found["retained"]["rows"]) == (0, 0)
    assert found["retained"]["last_compaction"] is None
    [size] = [file.size for file in Table(table.root, readings).files]
    gain = {"files": 3, "bytes": sum(sizes), "files_after": 1, "bytes_after": size}
    assert found["readings"].pop("last_compaction").items() >= gain.items()
    assert found["readings"] == {
        "rows": 3,
        "files": 1,
        "bytes": size,
        "smallest": size,
        "largest": size,
        "replaced_files": 3,
        "replaced_bytes": sum(sizes),
    }


def test_a_mass_delete_is_audited_and_undone(pipeline: Pipeline, tmp_path: Path) -> None:
    """The whole story through the command line: publish, audit, delete everything, restore, audit again."""
    data = tmp_path / "data"
    broker = Holdfast(data)
    url = f"tcp://127.0.0.1:{broker.port}"
    try:
        with publisher(broker.port) as publish:
            for number in range(60):
                publish(f"site/{number % 3}/{number}", f"value {number}", retain=True)
        wait_for(lambda: rows_in(data) >= 60, "history")
        offset = max(row["offset"] for row in DeltaTable(data / "history").to_pyarrow_table().to_pylist())
        with publisher(broker.port) as publish:
            for number in range(60):
                if number % 3 == 1:
                    publish(f"site/1/{number}", b"", retain=True)
        wait_for(lambda: rows_in(data) >= 80, "history")
        restore = ("restore", "--at", str(offset), "--filter", "site/1/#", "--to", url, "--data", str(data))
        planned = pipeline(*restore, "--dry-run")
        assert "would publish 20 messages and 0 clears, 0 topics are as they were" in planned.stdout, planned.stderr
        assert len(snapshot(broker, 40)) == 40
        done = as_process(*restore, "--master", "local[2]", "--memory", "512m")
        assert "published 20 messages" in done.stdout, done.stderr
        assert chatter(done.stderr) == []
        assert snapshot(broker, 60) == {f"site/{n % 3}/{n}": f"value {n}" for n in range(60)}
        wait_for(lambda: rows_in(data) >= 100, "history")
        rows = DeltaTable(data / "history").to_pyarrow_table().to_pylist()
        assert not any(row["user_properties"] for row in rows), "messages come back as they were"
        audited = pipeline("audit", "--live", url, "--json", "--data", str(data))
        assert audited.returncode == 0, audited.stderr
        assert json.loads(audited.stdout)["topics"] == 60
    finally:
        broker.stop()


def test_a_run_ends_on_sigterm_and_says_what_spark_says_only_when_asked(tmp_path: Path) -> None:
    history = write_history(tmp_path / "history", ROWS)
    places = ("--history", history, "--tables", str(tmp_path / "tables"))
    log = tmp_path / "stderr"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "pipeline", "run", "-v", "--master", "local[2]", *places],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA},
        )
    assert process.stdout is not None
    with process.stdout as output:
        assert any(line.startswith("retained: 500 rows in ") for line in output)
        process.terminate()
        assert output.readlines()[-1] == "stopped\n"
    assert process.wait(60) == 0
    assert chatter(log.read_text()) != []


def test_a_run_starts_again_what_did_not_start_within_ten_seconds(tmp_path: Path) -> None:
    history = write_history(tmp_path / "history", ROWS)
    late = tmp_path / "late"
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *streaming_source*) mkdir {late} 2>/dev/null && sleep 12;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    ran = as_process(
        "run", "--once", "--history", history, "--tables", str(tmp_path / "tables"), PYSPARK_PYTHON=str(python)
    )
    assert late.exists(), "the stand-in for a busy machine was not asked for"
    assert ran.returncode == 0, ran.stderr
    assert DeltaTable(tmp_path / "tables" / "retained").version() > 0


def chatter(stderr: str) -> list[str]:
    """What Spark and Java say, without our own lines of progress and what Java says about its environment."""
    ours = re.compile(r"[a-z ]+: [\d,]+ of [\d,]+ rows|Picked up JAVA_TOOL_OPTIONS")
    return [line for line in stderr.splitlines() if line and not ours.match(line)]


def test_what_takes_long_is_shown_with_rows_and_rate(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the tasks wait until it has been shown that the other half is done."""
    monkeypatch.setattr(pipeline_display, "PATIENCE_S", 0.1)
    monkeypatch.setattr(pipeline_display, "LINE_S", 0.1)
    gate = tmp_path / "gate"

    class Screen(StringIO):
        def write(self, text: str) -> int:
            if re.match("counting: [1-9]", text):
                gate.touch()
            return super().write(text)

    def wait_at_the_gate(row: Any) -> None:
        while row.id >= 4 and not gate.exists():
            time.sleep(0.05)

    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with pipeline_display.spark_work(spark, "counting", 1_000_000):
        spark.range(8, numPartitions=8).rdd.foreach(wait_at_the_gate)
    lines = screen.getvalue().splitlines()
    assert lines[0].startswith("counting: ")
    found = [re.fullmatch(r"counting: ([\d,]+) of 1,000,000 rows ([\d,]+) rows/s", line) for line in lines]
    done = [int(match[1].replace(",", "")) for match in found if match]
    assert done == sorted(done)
    assert done[-1] > 0


def test_what_is_quick_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pipeline_display.shown("quick", 10) as meter:
        meter.set(10)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_on_a_terminal_it_is_seen_that_spark_starts(tmp_path: Path, flags: list[str]) -> None:
    """A Java that takes its time, and then does not come up."""
    gate = tmp_path / "gate"
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        '#!/bin/sh\n[ "$1" = -version ] && { echo \'openjdk version "21.0.1"\' >&2; exit; }\n'
        f"until [ -e {gate} ]; do sleep 0.1; done\nexit 1\n"
    )
    java.chmod(0o755)
    history = write_history(tmp_path / "history", ROWS[:10])
    seen, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "pipeline", "stats", "--history", history, "--master", "local[2]", *flags],
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200", "JAVA_HOME": str(tmp_path)},
    )
    os.close(terminal)
    if flags:  # nothing will be seen that could be waited for
        threading.Timer(3, gate.touch).start()
    text = ""
    with os.fdopen(seen, "rb", buffering=0) as screen, suppress(OSError):  # EIO: nobody writes to it any more
        while part := screen.read(65536):
            text += part.decode()
            if "starting Spark on local[2]" in text:
                gate.touch()
    process.wait(LIMIT_S)
    assert ("starting Spark on local[2]" in text) is not bool(flags), text
    assert "holdfast: Spark did not start on local[2]" in text


def test_where_nobody_watches_waiting_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline_display, "PATIENCE_S", 0.01)
    with pipeline_display.waiting("for something"):
        time.sleep(0.1)
    assert capfd.readouterr() == ("", "")


def test_the_device_template_comes_from_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('[pipeline]\ndevices = "plant/{machine}/#"\n')
    assert find_locations(None, None, None, tmp_path / "holdfast.toml").devices == "plant/{machine}/#"
    assert find_locations(None, None, None, None).devices == "site/{site}/line/{line}/{device}/#"
    (tmp_path / "holdfast.toml").write_text('[pipeline]\ndevices = "plant/#"\n')
    with pytest.raises(UsageError, match="expected a topic with names in braces"):
        find_locations(None, None, None, tmp_path / "holdfast.toml")


def rows_in(data: Path) -> int:
    return DeltaTable(data / "history").to_pyarrow_table().num_rows if (data / "history" / "_delta_log").exists() else 0


def snapshot(broker: Holdfast, count: int) -> dict[str, str]:
    rows = retained_rows(link_options(broker.port), "site/#", count)
    return {row["topic"]: row["payload"].decode() for row in rows}
