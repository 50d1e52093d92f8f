"""What a run of topics holds after a batch, held against plain Python, batch after batch. No Spark is started."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from holdfast.history.schema import COLUMNS
from holdfast.spark.derived import Batch
from holdfast.spark.options import micros
from holdfast.spark.succession import (
    CLEARED,
    INTERVALS_SCHEMA,
    LIVE,
    RETAINED,
    RETAINED_SCHEMA,
    SET,
    firsts,
    intervals_after,
    lasts,
    rank,
    retained_after,
)
from holdfast.spark.topic_stats import TOPIC_STATS_SCHEMA, topic_stats_after

START = datetime(2026, 3, 1, 23, 58, tzinfo=UTC)
TOPICS = ["a", "a/b", "a/b/c", "b", "z", "é", "日本", "a b", "A", "𝄞"]
Change = dict[str, Any]
NO_BATCH = Batch(0, 0, 0)  # for steps that do not look at it


def publishes(count: int, seed: int, first: int = 1) -> list[Change]:
    """Some seconds apart, so that minutes and a day begin among them; every third expires soon."""
    draw = random.Random(seed)
    rows: list[Change] = []
    for offset in range(first, first + count):
        at = START + timedelta(seconds=3 * offset)
        kind = draw.choice([SET, SET, SET, CLEARED, LIVE])
        row: Change = dict.fromkeys(name for name, _ in COLUMNS)
        row |= {
            "offset": offset,
            "timestamp": at,
            "topic": draw.choice(TOPICS),
            "payload": b"" if kind == CLEARED else b"%d" % offset,
            "qos": offset % 3,
            "client_id": f"c{draw.randrange(4)}",
            "expires_at": at + timedelta(seconds=draw.randrange(1, 90)) if kind == SET and offset % 3 == 0 else None,
            "user_properties": [{"key": "n", "value": str(offset)}] if offset % 5 == 0 else None,
            "kind": kind,
        }
        rows.append(row)
    return rows


def changes(rows: list[Change]) -> pa.Table:
    names = [*RETAINED, "kind"]
    schema = pa.schema([*RETAINED_SCHEMA, ("kind", pa.int8())])
    found = [{name: row[name] for name in names} for row in rows if row["kind"] in (SET, CLEARED)]
    random.Random(len(found)).shuffle(found)  # a shuffle keeps no order
    return pa.Table.from_pylist(found, schema=schema)


def held(row: Change) -> Change:
    return {name: row[name] for name in RETAINED}


def cut(rows: list[Change], seed: int) -> list[list[Change]]:
    draw = random.Random(seed)
    batches = []
    while rows:
        size = draw.randrange(1, 60)
        batches.append(rows[:size])
        rows = rows[size:]
    return [batch for batch in batches if any(row["kind"] in (SET, CLEARED) for row in batch)]


@pytest.mark.parametrize("seed", range(6))
def test_the_retained_set_is_each_topics_last_change_that_has_not_expired(seed: int) -> None:
    table = RETAINED_SCHEMA.empty_table()
    known: dict[str, Change] = {}
    for batch in cut(publishes(400, seed), seed):
        at = batch[-1]["timestamp"]
        table = retained_after(table, changes(batch), Batch(0, 0, len(batch), micros(at)))
        for row in batch:
            if row["kind"] == CLEARED:
                known.pop(row["topic"], None)
            elif row["kind"] == SET:
                known[row["topic"]] = held(row)
        known = {topic: row for topic, row in known.items() if row["expires_at"] is None or row["expires_at"] > at}
        assert table.to_pylist() == [known[topic] for topic in sorted(known)]


@pytest.mark.parametrize("seed", range(6))
def test_every_set_has_one_interval_that_ends_at_the_next_change_or_at_its_expiry(seed: int) -> None:
    rows = publishes(400, seed)
    still, ended = INTERVALS_SCHEMA.empty_table(), []
    for batch in cut(rows, seed):
        after = intervals_after(still, changes(batch), NO_BATCH)
        over = after["to_offset"].is_valid()
        ended += after.filter(over).to_pylist()
        still = after.filter(pc.invert(over))
        assert still["topic"].to_pylist() == sorted(still["topic"].to_pylist())
    wanted = []
    moves = [row for row in rows if row["kind"] in (SET, CLEARED)]
    for index, row in enumerate(moves):
        if row["kind"] != SET:
            continue
        following = next((later for later in moves[index + 1 :] if later["topic"] == row["topic"]), None)
        ends = [moment for moment in (following and following["timestamp"], row["expires_at"]) if moment]
        wanted.append(
            held(row)
            | {
                "valid_from": row["timestamp"],
                "valid_to": min(ends, default=None),
                "to_offset": following and following["offset"],
            }
        )
    found = sorted([*still.to_pylist(), *ended], key=lambda row: row["offset"])
    assert found == wanted
    assert all(row["to_offset"] is None for row in still.to_pylist())
    assert all(row["to_offset"] is not None for row in ended)


@pytest.mark.parametrize("seed", range(6))
def test_topic_statistics_do_not_depend_on_how_rows_are_cut_into_batches(seed: int) -> None:
    rows = publishes(500, seed)
    whole = topic_stats_after(TOPIC_STATS_SCHEMA.empty_table(), counted(rows), NO_BATCH)
    table = TOPIC_STATS_SCHEMA.empty_table()
    draw = random.Random(seed)
    while rows:
        size = draw.randrange(1, 50)
        table = topic_stats_after(table, counted(rows[:size]), NO_BATCH)
        rows = rows[size:]
    assert table.to_pylist() == whole.to_pylist()
    assert sum(table["messages"].to_pylist()) == 500


def counted(rows: list[Change]) -> pa.Table:
    columns = {
        "topic": pa.array([row["topic"] for row in rows]),
        "offset": pa.array([row["offset"] for row in rows]),
        "timestamp": pa.array([row["timestamp"] for row in rows], pa.timestamp("us", tz="UTC")),
        "size": pa.array([len(row["payload"]) for row in rows], pa.int32()),
        "kind": pa.array([row["kind"] for row in rows], pa.int8()),
        "bit": pa.array([1 << int(row["client_id"][1:]) for row in rows]),
    }
    return pa.table(columns).take(list(reversed(range(len(rows)))))


def test_topics_are_ranked_by_their_bytes() -> None:
    nothing = RETAINED_SCHEMA.empty_table()
    rows = changes(publishes(300, 1))
    ranks = rank(nothing, rows)
    pairs = dict(zip(rows["topic"].to_pylist(), ranks.batch.tolist(), strict=True))
    assert [topic for topic, _ in sorted(pairs.items(), key=lambda pair: pair[1])] == sorted(
        pairs, key=lambda topic: topic.encode()
    )
    assert ranks.topics == len(pairs)


def test_firsts_and_lasts_mark_the_ends_of_runs() -> None:
    import numpy as np

    codes = np.array([3, 3, 4, 7, 7, 7])
    assert firsts(codes).tolist() == [True, False, True, True, False, False]
    assert lasts(codes).tolist() == [False, True, True, False, False, True]
