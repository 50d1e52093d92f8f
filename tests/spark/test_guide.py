"""The Spark guide says what is true: its examples run, its tables name every option and every column."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from broker_process import BrokerProcess, start_holdfast
from holdfast.spark.delta import Table
from holdfast.spark.jobs.run import Runner
from holdfast.spark.keeper import Keeper
from holdfast.spark.mqtt.connection import BROKER_OPTIONS
from holdfast.spark.mqtt.retained import RETAINED_OPTIONS
from holdfast.spark.mqtt.sink import COLUMNS as SINK_COLUMNS
from holdfast.spark.mqtt.sink import SINK_OPTIONS
from holdfast.spark.ranges import History
from holdfast.spark.source import OPTIONS
from holdfast.spark.tables import TABLES
from holdfast_mqtt_stream.stream import STREAM_OPTIONS
from spark.brokers import publisher, wait_for
from spark.publishes import oracle, publishes
from spark.streams import patient_streams

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "guides" / "spark.md").read_text()
HOT = 5
READINGS = 200


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    return re.split(r"^## ", GUIDE.split(f"## {title}\n")[1], flags=re.MULTILINE)[0]


def named(text: str) -> set[str]:
    return set(re.findall(r"`([\w.]+)`", text))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    config = tmp_path / "holdfast.toml"
    [settings] = re.findall(r"^```toml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    config.write_text(settings)
    listen = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")
    running = start_holdfast(tmp_path / "data", listen=listen, args=("--config", str(config)))
    yield running
    running.stop()


@pytest.mark.timeout(900)
def test_every_example_runs_and_gives_what_was_published(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    with publisher(broker.port) as publish:
        for number in range(READINGS):
            value = 90.5 if number < HOT else 20.5
            publish(f"site/2/line/1/machine-{number}/temperature", str(value), 1, True)
        publish("site/2/line/1/machine-0/info", b'{"model": "M1"}', 1, False)
    data = tmp_path / "data"
    wait_for(lambda: rows_of(data / "history") == READINGS + 1, "history to have every row")
    keeper = Keeper(spark, str(data / "history"), str(data / "pipeline"))
    Runner(keeper).once()
    keeper.close()

    places = {
        "tcp://127.0.0.1:1883": f"tcp://127.0.0.1:{broker.port}",
        '"data/': f'"{data}/',
        '"copy/': f'"{tmp_path}/copy/',
        '"spool/': f'"{tmp_path}/spool/',
    }
    found: dict[str, Any] = {}
    with patient_streams():
        for text in examples(GUIDE):
            for shown, real in places.items():
                text = text.replace(shown, real)
            exec(compile(text, "docs/guides/spark.md", "exec"), found)

    wait_for(lambda: rows_of(data / "history") == READINGS + 1 + HOT, "the alarms to be in history as well")
    assert spark.read.parquet(str(tmp_path / "copy/rows")).count() == READINGS + 1
    assert Table(str(data / "pipeline" / "peaks"), found["peaks"]).rows == READINGS
    assert found["of_a_site"].count() == READINGS
    assert (found["past"].how, found["past"].rows.count()) == ("intervals", found["after_an_offset"].count())
    alarms = spark.read.format("mqtt").option("port", broker.port).option("filter", "alarms/#").load()
    assert alarms.count() == HOT


def rows_of(history: Path) -> int:
    return History(str(history)).rows if (history / "_delta_log").is_dir() else 0


def test_the_fold_as_it_is_explained_is_the_fold() -> None:
    found: dict[str, Any] = {}
    (text,) = examples((DOCS / "concepts" / "fold.md").read_text())
    exec(compile(text, "docs/concepts/fold.md", "exec"), found)
    rows = publishes(3000, topics=60, seed=5)
    at = rows[-1]["timestamp"] + timedelta(seconds=1)
    assert found["fold"](rows, at) == oracle(rows, moment=at)
    assert found["fold"](rows, at)


@pytest.mark.parametrize(
    ("title", "options"),
    [
        ("History as a source", OPTIONS),
        ("MQTT as a source", (*RETAINED_OPTIONS, *STREAM_OPTIONS)),
        ("MQTT as a sink", [name for name in SINK_OPTIONS if name not in BROKER_OPTIONS]),
        ("MQTT as a sink", SINK_COLUMNS),
        ("The pipeline", tuple(TABLES)),
    ],
)
def test_every_option_and_table_is_named(title: str, options: tuple[str, ...]) -> None:
    assert set(options) - named(section(title)) == set()


@pytest.mark.parametrize("table", ["topic_stats", "device_stats", "traffic", "hygiene"])
def test_every_column_of_a_table_is_named(table: str) -> None:
    (row,) = (line for line in section("The pipeline").splitlines() if line.startswith(f"| `{table}` |"))
    columns = set(TABLES[table].schema.names) - {"topic"}
    assert columns - named(row) == set()
