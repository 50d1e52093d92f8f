"""The same files as an Iceberg table: other readers see the rows that Delta's do, whatever happens to the files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from broker_process import BrokerProcess
from holdfast.history.compaction import compact
from holdfast.history.erase import carry_out
from holdfast.history.erased import Selector
from holdfast.history.iceberg import HINT, IcebergView
from holdfast.history.place import Place
from holdfast.history.schema import ICEBERG_FOLDER as FOLDER
from holdfast.history.table import load
from holdfast.history.upkeep import Limits, retain, vacuum
from holdfast.history.writer import HistoryWriter
from http_api import LISTEN, Api, until
from log_records import NOW_MS, retained
from object_store import S3Server, storage_file

Start = Callable[..., BrokerProcess]


class World:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "history"
        self.writer = HistoryWriter(self.folder, root / "quarantine")
        self.view = IcebergView(self.folder, root)

    def fill(self, commits: int) -> None:
        for _ in range(commits):
            first = self.writer.last + 1
            offsets = range(first, first + 4)
            self.writer.append([retained(f"t/{o % 3}", b"%d" % o, o) for o in offsets], offsets[-1])

    def read(self) -> pa.Table:
        """As one who knows nothing of the catalog."""
        newest = (self.folder / HINT).read_text()
        return (
            StaticTable.from_metadata(str(self.folder / FOLDER / "metadata" / f"{newest}.metadata.json"))
            .scan()
            .to_arrow()
        )

    def check(self) -> None:
        assert rows_of(self.read()) == rows_of(load(self.folder).to_pyarrow_table())


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Rows in offset order. PyIceberg shows a list that is null as one that is empty."""
    names = ["offset", "timestamp", "topic", "payload", "qos", "retain", "client_id", "outcome", "user_properties"]
    found: list[dict[str, Any]] = table.sort_by("offset").select(names).to_pylist()
    return [{**row, "user_properties": row["user_properties"] or []} for row in found]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.view.close()
    world.writer.close()


def test_the_view_follows_appends_compaction_retention_and_vacuum(world: World) -> None:
    world.fill(5)
    assert world.view.follow(world.writer.table)
    world.check()
    assert not world.view.follow(world.writer.table), "nothing has changed"
    compact(world.writer.table, world.folder)
    world.fill(2)
    world.view.follow(world.writer.table)
    vacuum(world.writer.table, 0)
    world.check()
    assert retain(world.writer.table, Limits(age_s=1), NOW_MS + 10_000_000) > 0
    world.view.follow(world.writer.table)
    vacuum(world.writer.table, 0)
    world.check()


def test_duckdb_and_the_catalog_say_the_same(world: World) -> None:
    world.fill(5)
    world.view.follow(world.writer.table)
    with duckdb.connect() as connection:
        connection.register("history", world.view.catalog.load_table("holdfast.history").scan().to_arrow())
        found = connection.sql('select topic, max("offset") from history group by topic order by topic').fetchall()
    assert found == [("t/0", 18), ("t/1", 19), ("t/2", 20)]


@pytest.mark.parametrize("cut_off", [False, True], ids=["at once", "by the next process"])
def test_an_erasure_leaves_no_metadata_of_before(world: World, cut_off: bool) -> None:
    world.fill(6)
    world.view.follow(world.writer.table)
    for _ in carry_out(world.writer.table, world.folder, "gone", Selector("topic", "t/1"), 0):
        pass
    assert [path for path in (world.folder / FOLDER).rglob("*") if path.is_file()] == []
    world.writer.reload()
    if cut_off:
        world.view.close()
        world.view = IcebergView(world.folder, world.root)
        world.view.follow(world.writer.table)
    else:
        world.view.begin_anew(world.writer.table)
    world.check()
    assert len(world.view.table.snapshots()) == 1


def test_metadata_of_old_versions_goes_and_the_newest_stays(world: World) -> None:
    for _ in range(12):
        world.fill(1)
        world.view.follow(world.writer.table)
    assert world.view.clean(keep_s=3600) == 0, "somebody may be reading them"
    assert world.view.clean(keep_s=-60) > 10
    assert {path.name for path in (world.folder / FOLDER / "metadata").iterdir()} == world.view.needed()
    world.check()
    world.fill(1)
    world.view.follow(world.writer.table)
    world.check()


def test_a_view_whose_metadata_is_gone_is_made_anew(world: World) -> None:
    world.fill(3)
    world.view.follow(world.writer.table)
    world.view.close()
    for path in (world.folder / FOLDER).rglob("*.json"):
        path.unlink()
    world.view = IcebergView(world.folder, world.root)
    world.view.follow(world.writer.table)
    world.check()


def test_the_view_lies_in_an_object_store_where_the_table_does(tmp_path: Path) -> None:
    server = S3Server()
    try:
        place = Place("s3://lake/history", str(storage_file(tmp_path, server.port)))
        writer = HistoryWriter(place, tmp_path / "quarantine")
        writer.append([retained("t", b"x", 1)], 1)
        view = IcebergView(place, tmp_path)
        view.follow(writer.table)
        assert view.table.scan().to_arrow()["topic"].to_pylist() == ["t"]
        writer.append([retained("u", b"x", 2)], 2)
        compact(writer.table, place)
        view.follow(writer.table)
        assert sorted(view.table.scan().to_arrow()["topic"].to_pylist()) == ["t", "u"]
        assert view.table.metadata_location.startswith("s3://lake/history/_iceberg/metadata/")
        view.close()
        writer.close()
    finally:
        server.stop()


def test_a_broker_keeps_the_view_beside_its_table(start_broker: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = start_broker(listen=LISTEN, data=data, history__iceberg=True)
    with Api(broker) as api:
        api.set_many([f"t/{number}" for number in range(30)])

        def seen() -> int:
            hint = data / "history" / HINT
            if not hint.exists():
                return 0
            path = hint.with_name(f"{hint.read_text()}.metadata.json")
            return int(StaticTable.from_metadata(str(path)).scan().to_arrow().num_rows)

        assert until(seen, lambda found: found == 30) == 30
    broker.stop()
