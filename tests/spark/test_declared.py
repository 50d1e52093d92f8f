"""Tables that users declare, from a real broker through `holdfast pipeline run` to any reader of Delta."""

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from deltalake import DeltaTable
from paho.mqtt.enums import CallbackAPIVersion
from pyspark.sql import SparkSession

from broker_process import BrokerProcess, start_holdfast
from holdfast.errors import UsageError
from holdfast.spark.declared import Declaration, declare
from holdfast.spark.declared.declaration import DECODERS, KINDS, TYPES
from holdfast.spark.declared.replay import quarantine_anew, replay
from holdfast.spark.declared.sparkplug import SCHEMA
from holdfast.spark.declared.tables import DRIFT_SCHEMA, QUARANTINE_SCHEMA, declared_tables
from holdfast.spark.jobs.run import Runner
from holdfast.spark.keeper import Keeper
from holdfast.spark.ranges import History
from spark.brokers import publisher, wait_for
from spark.commands import Pipeline
from spark.publishes import publishes, write_history
from sparkplug_wire import NOON, bd_seq, double, metric, sparkplug

GUIDE = (Path(__file__).parents[2] / "docs/guides/tables.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def declarations() -> str:
    return "\n".join(text for text in blocks("toml") if text.startswith("# pipeline.toml"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = start_holdfast(tmp_path / "data", args=("--set", "history.record=all"))
    yield running
    running.stop()


class Story:
    """A broker's history and the tables that a command makes of it."""

    def __init__(self, folder: Path, pipeline: Pipeline) -> None:
        self.folder, self.pipeline = folder, pipeline
        self.file = folder / "pipeline.toml"

    def __call__(self, *words: str) -> str:
        ran = self.pipeline(*words, "--declared", str(self.file), "--data", str(self.folder / "data"))
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def rows(self, table: str, *columns: str) -> list[Any]:
        """Rows of a table. Offsets are told as places in history: the broker numbers messages of its own too."""
        data = self.folder / "data"
        offsets = DeltaTable(data / "history").to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
        places = {offset: place for place, offset in enumerate(sorted(offsets), 1)}
        found = DeltaTable(data / "pipeline" / table).to_pyarrow_table().to_pylist()
        for row in found:
            row |= {name: places[row[name]] for name in ("offset", "to_offset") if row.get(name) is not None}
        return sorted((tuple(row[name] for name in columns) for row in found), key=repr)

    def wait_for(self, count: int) -> None:
        path = self.folder / "data" / "history"
        there: Callable[[], bool] = lambda: (path / "_delta_log").is_dir() and History(str(path)).rows == count  # noqa: E731
        wait_for(there, f"history to have {count} rows")


def edge_node_that_dies(port: int) -> None:
    """A birth, two values by alias, and the will of a connection that breaks."""
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="edge")
    client.will_set("spBv1.0/Plant/NDEATH/Edge1", sparkplug(NOON, None, bd_seq(3)), qos=1)
    client.connect("127.0.0.1", port)
    client.loop_start()
    speed = metric("speed", alias=1, datatype=10, value=double(0.0))
    data = [sparkplug(NOON, seq, metric(alias=1, value=double(value))) for seq, value in ((1, 7.5), (3, 8.5))]
    for kind, payload in (("NBIRTH", sparkplug(NOON, 0, bd_seq(3), speed)), ("NDATA", data[0]), ("NDATA", data[1])):
        client.publish(f"spBv1.0/Plant/{kind}/Edge1", payload, qos=1).wait_for_publish(60)
    client.loop_stop()
    opened = client.socket()
    assert isinstance(opened, socket.socket)
    opened.shutdown(socket.SHUT_RDWR)
    opened.close()


@pytest.mark.timeout(900)
def test_the_guide_from_publish_to_replay(broker: BrokerProcess, tmp_path: Path, pipeline: Pipeline) -> None:
    story = Story(tmp_path, pipeline)
    story.file.write_text(declarations())
    with publisher(broker.port) as publish:
        for value in ("20.5", "21.5", "warm"):
            publish("site/2/line/1/press/temperature", value, 1, False)
        publish("site/2/line/1/press/info", json.dumps({"model": "M1", "drive": {"speed": 3}, "v": 2}), 1, True)
        publish("site/2/line/1/saw/info", json.dumps({"started": NOON}), 1, True)
    edge_node_that_dies(broker.port)
    story.wait_for(9)

    story("run", "--once")
    assert story.rows("temperatures", "offset", "site", "line", "device", "celsius") == [
        (1, "2", 1, "press", 20.5),
        (2, "2", 1, "press", 21.5),
    ]
    assert story.rows("machines", "device", "model", "speed") == [("press", "M1", 3.0)]
    # one row, or two where a minute ended between the messages
    windows = story.rows("temperature_by_minute", "site", "messages", "mean", "highest")
    assert {site for site, *_ in windows} == {"2"}
    assert sum(messages for _, messages, *_ in windows) == 2
    assert sum(messages * mean for _, messages, mean, _ in windows) == 42.0
    assert max(highest for *_, highest in windows) == 21.5
    assert story.rows("metrics", "metric", "double_value", "is_stale", "seq_gap", "to_offset") == [
        ("bdSeq", None, False, False, 9),
        ("bdSeq", None, True, False, None),
        ("speed", 0.0, False, False, 7),
        ("speed", 7.5, False, False, 8),
        ("speed", 8.5, False, True, 9),
        ("speed", 8.5, True, False, None),
    ]
    assert story.rows("quarantine", "offset", "table", "reason") == [
        (3, "temperature_by_minute", 'expected a number, got "warm"'),
        (3, "temperatures", 'expected a number, got "warm"'),
        (5, "machines", "model: expected a value, got none"),
    ]
    assert story.rows("schema_drift", "table", "topic", "field", "type", "messages") == [
        ("machines", "site/2/line/1/press/info", "v", "number", 1)
    ]

    mended = declarations().replace('model = { type = "string", required = true }', 'model = "string"')
    story.file.write_text(mended)
    said = story("replay", "--dry-run").splitlines()
    assert "machines: 1 rows would be replayed, 0 still do not decode" in said
    assert len(story.rows("quarantine", "offset")) == 3
    said = story("replay").splitlines()
    assert "machines: 1 rows replayed, 0 still do not decode" in said
    assert "temperatures: 0 rows replayed, 1 still do not decode" in said
    assert story.rows("machines", "device", "model") == [("press", "M1"), ("saw", None)]
    assert [table for table, _ in story.rows("quarantine", "table", "offset")] == [
        "temperature_by_minute",
        "temperatures",
    ]
    run_the_examples_in_python(story)


def run_the_examples_in_python(story: Story) -> None:
    data = story.folder / "data"
    found: dict[str, Any] = {"spark": SparkSession.active()}
    for text in blocks("python"):
        exec(compile(text.replace('"data/', f'"{data}/'), "docs/guides/tables.md", "exec"), found)
    assert found["now"].count() == 0  # the node is dead
    assert story.rows("alarms", "text") == []


LEVEL = {"device": {"from": "{device}"}}
BASE: dict[str, Any] = {"template": "site/{site}/line/{line}/{device}/temp", "decoder": "number"}


def kept(
    spark: SparkSession, folder: Path, *declared: Declaration, max_offsets: int = 1000
) -> dict[str, list[dict[str, Any]]]:
    """Brings tables up to date, as a command does, and returns their rows."""
    tables = declared_tables(declared)
    keeper = Keeper(spark, str(folder / "history"), str(folder / "tables"), tables=tables)
    try:
        quarantine_anew(keeper, declared)
        Runner(keeper, max_offsets=max_offsets).once()
    finally:
        keeper.close()
    return contents(folder, [table.name for table in tables])


def contents(folder: Path, names: list[str]) -> dict[str, list[dict[str, Any]]]:
    return {
        name: sorted(DeltaTable(folder / "tables" / name).to_pyarrow_table().to_pylist(), key=repr) for name in names
    }


def three(**changes: Any) -> tuple[Declaration, ...]:
    """A table of each kind, of the same values. Sums of doubles depend on their order, so there are none."""
    base = BASE | changes.pop("base", {})
    value = {"type": "double", **changes}
    windows = {**LEVEL, "n": {**changes, "aggregate": "count"}, "last": {**value, "aggregate": "last"}}
    return (
        declare(name="every", columns={**LEVEL, "value": value}, **base),
        declare(name="newest", kind="latest", key="device", columns={**LEVEL, "value": value}, **base),
        declare(name="windows", kind="aggregate", window="1s", columns=windows, **base),
    )


def test_cutting_history_into_batches_makes_no_difference_to_declared_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = publishes(1500, topics=40, seed=3)
    for folder in ("whole", "cut"):
        write_history(tmp_path / folder / "history", rows, files=6)
    whole = kept(spark, tmp_path / "whole", *three())
    cut = kept(spark, tmp_path / "cut", *three(), max_offsets=170)
    assert {name: len(found) > 0 for name, found in whole.items()} == dict.fromkeys(whole, True) | {
        "schema_drift": False
    }
    for name in whole:
        assert cut[name] == whole[name], name


def test_a_replay_gives_what_the_mended_declaration_would_have_given(spark: SparkSession, tmp_path: Path) -> None:
    rows = publishes(1200, topics=30, seed=4)
    for folder in ("mended", "right"):
        write_history(tmp_path / folder / "history", rows, files=3)
    # payloads are numbers, objects with a `v`, and what is no JSON at all
    right = three(**{"from": "v", "base": {"decoder": "json"}})
    wrong = three(**{"from": "v", "required": True, "base": {"decoder": "json"}})
    before = kept(spark, tmp_path / "mended", *wrong)
    wanted = kept(spark, tmp_path / "right", *right)
    assert len(before["quarantine"]) > len(wanted["quarantine"])
    for _ in range(2):  # a second one finds nothing to do
        keeper = Keeper(
            spark,
            str(tmp_path / "mended" / "history"),
            str(tmp_path / "mended" / "tables"),
            tables=declared_tables(right),
        )
        try:
            replay(keeper, right)
        finally:
            keeper.close()
        found = contents(tmp_path / "mended", [*wanted])
        for name in wanted:
            if name != "schema_drift":
                assert found[name] == wanted[name], name


def test_a_table_that_is_declared_later_has_its_own_quarantine_from_the_beginning(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_history(tmp_path / "history", publishes(600, topics=20, seed=5), files=2)
    first, second, _ = three()
    alone = kept(spark, tmp_path, first)["quarantine"]
    both = kept(spark, tmp_path, first, second)["quarantine"]
    assert [row["offset"] for row in both if row["table"] == "newest"] == [row["offset"] for row in alone]
    assert [row for row in both if row["table"] == "every"] == alone
    assert alone


def test_a_table_with_other_types_is_refused_and_not_mixed(spark: SparkSession, tmp_path: Path) -> None:
    write_history(tmp_path / "history", publishes(50, topics=5, seed=6))
    kept(spark, tmp_path, declare(name="every", columns={"value": "double"}, **BASE))
    with pytest.raises(UsageError, match="was made by another rule than 'history: value long'; remove that folder"):
        kept(spark, tmp_path, declare(name="every", columns={"value": "long"}, **BASE))


def test_check_says_what_the_tables_will_be_and_all_that_is_wrong(tmp_path: Path, pipeline: Pipeline) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(declarations())
    ran = pipeline("check", str(file))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[:2] == [
        "temperatures: history of site/+/line/+/+/temperature, as number",
        "  offset long, timestamp timestamp, topic string, site string, line int, device string, celsius double",
    ]
    assert json.loads(pipeline("check", str(file), "--json").stdout)[1]["columns"]["speed"] == "double"
    file.write_text(declarations().replace('kind = "latest"', 'kind = "newest"').replace('"1m"', '"7m"'))
    ran = pipeline("check", str(file))
    assert ran.returncode != 0
    assert f'table[1].kind (file {file}): expected one of history, latest, aggregate, got "newest"' in ran.stderr
    assert "table[2].window" in ran.stderr


def test_the_guide_names_every_decoder_kind_type_and_column() -> None:
    named = set(re.findall(r"`(\w+)`", GUIDE))
    for names in (DECODERS, KINDS, TYPES, SCHEMA.names, QUARANTINE_SCHEMA.names, DRIFT_SCHEMA.names):
        assert set(names) - named - {"node_seq"} == set()
