"""The pipeline's tables, however history was cut into batches, hold what plain Python computes from the same rows."""

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.sql import SparkSession

from holdfast.errors import StoreError, UsageError
from holdfast.history.schema import RETENTION_APP_ID
from holdfast.spark import leaves
from holdfast.spark.fold import holding
from holdfast.spark.hygiene import hygiene
from holdfast.spark.keeper import Keeper, Lock
from holdfast.spark.succession import RETAINED
from holdfast.spark.tables import FOLLOWING, RETAINED_TABLE
from spark.publishes import START, Row, oracle, publishes, write_history
from spark.test_fold import as_set, expected, normal
from spark.test_source import after_a_crash

ROWS = publishes(3_000, topics=150, seed=21)
WIDTHS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}


def stretched(rows: list[Row]) -> list[Row]:
    """The same rows over some days, so that minutes, hours and days begin and end among them."""
    for row in rows:
        row["timestamp"] = START + (row["timestamp"] - START) * 6000
        if row["expires_at"] is not None:
            row["expires_at"] = row["timestamp"] + timedelta(minutes=row["offset"] % 300)
    return rows


stretched(ROWS)


def advance_all(keeper: Keeper, sizes: random.Random) -> None:
    """Every table by batches of its own random sizes, as after crashes."""
    for name in FOLLOWING:
        while keeper.advance(name, sizes.randrange(350, 1250)):
            pass


@pytest.fixture(scope="module")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Keeper:
    folder = tmp_path_factory.mktemp("tables")
    # leaves so small that batches touch some and not others, and that files are cut and crowded
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaves, "LEAF_ROWS", 25)
        patch.setattr(leaves, "TASK_ROWS", 250)
        patch.setattr(leaves, "KEYS_ASKED", 600)
        write_history(folder / "history", ROWS[:2000], files=3)
        keeper = Keeper(spark, str(folder / "history"), str(folder / "out"))
        advance_all(keeper, random.Random(1))
        write_history(folder / "history", ROWS[2000:], files=2)
        keeper.refresh()
        advance_all(keeper, random.Random(2))
    keeper.close()
    return keeper


def rows_of(keeper: Keeper, name: str) -> list[dict[str, Any]]:
    """Read by deltalake, not by Spark: any Delta reader must see the same."""
    rows: list[dict[str, Any]] = DeltaTable(keeper.tables[name].root).to_pyarrow_table().to_pylist()
    return rows


def test_every_table_has_come_to_the_end(built: Keeper) -> None:
    assert {built.tables[name].applied for name in FOLLOWING} == {ROWS[-1]["offset"] + 1}


def test_retained_is_the_fold(built: Keeper) -> None:
    end = ROWS[-1]["timestamp"]
    rows = rows_of(built, "retained")
    alive = [row for row in rows if row["expires_at"] is None or row["expires_at"] > end]
    assert {row["topic"]: normal(row) for row in alive} == expected(ROWS, offset=ROWS[-1]["offset"])
    assert len({row["topic"] for row in rows}) == len(rows)


@pytest.mark.parametrize("index", [1, 350, 1999, 2000, 2777, 2999])
def test_intervals_answer_for_any_moment(spark: SparkSession, built: Keeper, index: int) -> None:
    spans = built.tables["retained_intervals"].frame(spark)
    row = ROWS[index]
    assert as_set(holding(spans, row["offset"], at=row["timestamp"])) == expected(ROWS, offset=row["offset"])
    moment = row["timestamp"] + timedelta(minutes=7)
    assert as_set(holding(spans, moment)) == expected(ROWS, moment=moment)


def test_each_set_has_one_interval(built: Keeper) -> None:
    found = sorted(row["offset"] for row in rows_of(built, "retained_intervals"))
    assert found == [row["offset"] for row in ROWS if row["outcome"] == "set"]


def slot(moment: datetime, period: str) -> datetime:
    return (
        START + (moment - START) // WIDTHS[period] * WIDTHS[period]
        if period != "day"
        else moment.replace(hour=0, minute=0, second=0, microsecond=0)
    )


def plain_stats(rows: list[Row]) -> dict[str, Any]:
    times = [row["timestamp"] for row in rows]
    gaps = [(b - a) // timedelta(microseconds=1) for a, b in pairwise(times)]
    found: dict[str, Any] = {
        "messages": len(rows),
        "bytes": sum(len(row["payload"]) for row in rows),
        "smallest": min(len(row["payload"]) for row in rows),
        "largest": max(len(row["payload"]) for row in rows),
        "sets": sum(row["outcome"] == "set" for row in rows),
        "clears": sum(row["outcome"] == "cleared" for row in rows),
        "refused": sum(row["outcome"].startswith("refused") for row in rows),
        "first_seen": times[0],
        "last_seen": times[-1],
        "longest_gap_us": max(gaps, default=None),
        "mean_gap_us": None if not gaps else int(sum(gaps) / len(gaps)),
    }
    for period in WIDTHS:
        counts: dict[datetime, int] = defaultdict(int)
        for moment in times:
            counts[slot(moment, period)] += 1
        found |= {
            period: max(counts),
            f"per_{period}": counts[max(counts)],
            f"peak_per_{period}": max(counts.values()),
        }
    return found


def test_topic_stats_count_every_message_once(built: Keeper) -> None:
    by_topic: dict[str, list[Row]] = defaultdict(list)
    for row in ROWS:
        by_topic[row["topic"]].append(row)
    found = {row["topic"]: row for row in rows_of(built, "topic_stats")}
    assert found.keys() == by_topic.keys()
    for topic, rows in by_topic.items():
        wanted = plain_stats(rows)
        assert {name: found[topic][name] for name in wanted} == wanted, topic
        publishers = len({row["client_id"] for row in rows})
        assert abs(found[topic]["publishers"] - publishers) <= max(1, publishers // 3), topic


def test_device_stats_follow_the_template(built: Keeper) -> None:
    wanted: dict[tuple[datetime, str], int] = defaultdict(int)
    for row in ROWS:
        parts = row["topic"].split("/")
        if parts[0] == "site":
            wanted[slot(row["timestamp"], "hour"), f"{parts[1]}/{parts[3]}/{parts[4]}"] += 1
    rows = rows_of(built, "device_stats")
    assert {(row["hour"], row["device"]): row["messages"] for row in rows} == dict(wanted)
    assert len(rows) == len(wanted)
    one = rows[0]
    assert dict(one["fields"]) == dict(zip(("site", "line", "device"), one["device"].split("/"), strict=True))


def test_traffic_adds_up(built: Keeper) -> None:
    wanted: dict[tuple[datetime, str, str], int] = defaultdict(int)
    for row in ROWS:
        wanted[slot(row["timestamp"], "minute"), row["outcome"], row["protocol"]] += 1
    rows = rows_of(built, "traffic")
    assert {(row["minute"], row["outcome"], row["protocol"]): row["messages"] for row in rows} == dict(wanted)


def test_advancing_again_changes_nothing(built: Keeper) -> None:
    before = {name: built.tables[name].version for name in FOLLOWING}
    assert [built.advance(name, 1000) for name in FOLLOWING] == [0] * len(FOLLOWING)
    assert {name: built.tables[name].version for name in FOLLOWING} == before


def test_small_ended_files_are_merged(spark: SparkSession, built: Keeper) -> None:
    table = built.tables["retained_intervals"]
    before, files = rows_of(built, "retained_intervals"), len(table.files)
    assert built.compact(least=2) == 1
    assert len(table.files) < files
    key = lambda row: row["offset"]  # noqa: E731
    assert sorted(rows_of(built, "retained_intervals"), key=key) == sorted(before, key=key)
    assert table.applied == ROWS[-1]["offset"] + 1


def test_a_sweep_deletes_only_what_no_version_uses(built: Keeper) -> None:
    table = built.tables["retained"]
    root = Path(table.root)
    (root / "leftover.parquet").write_bytes(b"half")
    assert table.sweep(keep_seconds=60) == 0
    assert table.sweep(keep_seconds=-1) > 0
    assert {path.name for path in root.glob("*.parquet")} == {file.path for file in table.files}
    assert len(rows_of(built, "retained")) == table.rows


def test_two_runs_on_one_folder_are_refused(tmp_path: Path) -> None:
    lock = Lock(str(tmp_path))
    with pytest.raises(UsageError, match="another pipeline run"):
        Lock(str(tmp_path))
    lock.release()
    Lock(str(tmp_path)).release()


def test_a_table_of_another_version_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "out" / "retained", pa.table({"other": [1]}))
    history = write_history(tmp_path / "history", ROWS[:10])
    with pytest.raises(UsageError, match="was made by another version"):
        Keeper(spark, history, str(tmp_path / "out"))


def test_offsets_that_a_crash_leaves_out_are_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows = after_a_crash(ROWS[:200])
    keeper = Keeper(spark, write_history(tmp_path / "history", rows, files=2), str(tmp_path / "out"))
    assert keeper.behind("traffic") == 200
    assert [keeper.advance("traffic", 150) for _ in range(3)] == [150, 50, 0]
    assert keeper.behind("traffic") == 0
    keeper.close()
    assert sum(row["messages"] for row in rows_of(keeper, "traffic")) == 200


def test_a_table_of_another_device_template_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    history = write_history(tmp_path / "history", ROWS[:50])
    keeper = Keeper(spark, history, str(tmp_path / "out"))
    keeper.advance("device_stats", 100)
    keeper.close()
    with pytest.raises(UsageError, match="was made by another rule"):
        Keeper(spark, history, str(tmp_path / "out"), template="site/{place}/#")
    Keeper(spark, history, str(tmp_path / "out")).close()


def test_rows_that_retention_took_before_they_were_read_stop_the_run(spark: SparkSession, tmp_path: Path) -> None:
    history = write_history(tmp_path / "history", ROWS[:300], files=3)
    keeper = Keeper(spark, history, str(tmp_path / "out"))
    keeper.advance("traffic", 100)
    delta = DeltaTable(history)
    mark = CommitProperties(app_transactions=[Transaction(RETENTION_APP_ID, 200)])
    delta.create_write_transaction([], "append", delta.schema(), commit_properties=mark)
    keeper.refresh()
    with pytest.raises(StoreError, match="has come to offset 100, but history begins at 200"):
        keeper.advance("traffic", 100)
    keeper.accept_loss = True
    assert keeper.advance("traffic", 100) > 0
    keeper.close()


def held(topic: str, payload: bytes = b"x", age: timedelta = timedelta(), client: str = "c", **more: object) -> Row:
    row = dict.fromkeys(RETAINED)
    return {
        **row,
        "offset": 1,
        "timestamp": START - age,
        "topic": topic,
        "payload": payload,
        "qos": 0,
        "client_id": client,
        **more,
    }


def test_hygiene_finds_what_is_worth_a_look(spark: SparkSession) -> None:
    old = timedelta(days=40)
    rows = [
        held("gone/1", age=old, client="dead"),
        held("kept/1", age=old, client="alive"),
        held("kept/2", client="alive"),
        held("lamp/kitchen/set"),
        held("spBv1.0/plant/NCMD/edge"),
        held("homeassistant/sensor/a/config", b'{"~": "dev/a", "stat_t": "~/state"}'),
        held("homeassistant/sensor/b/config", b'{"state_topic": "kept/2"}'),
        held("soon/1", expires_at=START + timedelta(hours=1)),
        held("late/1", expires_at=START + timedelta(days=9)),
        held("over/1", expires_at=START - timedelta(seconds=1)),
    ]
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], RETAINED_TABLE.ddl)
    found = defaultdict(set)
    for row in hygiene(frame, START).collect():
        found[row.kind].add(row.topic)
    assert found["ghost"] == {"gone/1"}
    assert found["command"] == {"lamp/kitchen/set", "spBv1.0/plant/NCMD/edge"}
    assert found["discovery"] == {"homeassistant/sensor/a/config"}
    assert found["expiring"] == {"soon/1"}
    assert "homeassistant/#" in found["subtree"]
    assert "over/1" not in set().union(*found.values())


def test_hygiene_is_kept_as_a_table(spark: SparkSession, built: Keeper) -> None:
    built.summarise(datetime.now(UTC))
    kinds = {row["kind"] for row in rows_of(built, "hygiene")}
    assert {"ghost", "subtree"} <= kinds
    assert built.tables["hygiene"].applied == built.tables["retained"].applied
    assert oracle(ROWS)
