"""The history in an object store: the same table, the same promises, whatever the store and the way to it do."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest

from broker_process import BrokerProcess, serve_environment
from holdfast.errors import StoreError
from holdfast.history import repair, upkeep
from holdfast.history.compaction import compact
from holdfast.history.erase import carry_out
from holdfast.history.erased import Selector
from holdfast.history.layout import layout
from holdfast.history.place import Place
from holdfast.history.reader import HistoryReader, records
from holdfast.history.storage_options import VARIABLE, read_options, redacted, storage_options
from holdfast.history.table import data_files, load
from holdfast.history.writer import HistoryWriter
from http_api import LISTEN, Api, until
from log_records import retained
from object_store import KEY_ID, SECRET, S3Server, StoreNetwork, storage_file

Start = Callable[..., BrokerProcess]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def network(server: S3Server) -> Iterator[StoreNetwork]:
    network = StoreNetwork(server.port)
    yield network
    network.stop()


@pytest.fixture
def place(network: StoreNetwork, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    return Place(f"s3://lake/{request.node.name}", str(storage_file(tmp_path, network.port)))


def open_writer(place: Place, data: Path) -> HistoryWriter:
    return HistoryWriter(place, data / "quarantine")


def fill(writer: HistoryWriter, first: int, last: int) -> None:
    writer.append([retained(f"t/{o % 5}", b"%d" % o, o) for o in range(first, last + 1)], last)


def offsets(place: Place) -> list[int]:
    return sorted(load(place).to_pyarrow_dataset().to_table(columns=["offset"])["offset"].to_pylist())


def test_rows_are_written_joined_found_and_erased_there(place: Place, tmp_path: Path) -> None:
    writer = open_writer(place, tmp_path)
    for first in range(1, 101, 10):
        fill(writer, first, first + 9)
    writer.sync(0)
    assert compact(writer.table, place) == 9
    assert (layout(place)["files"], layout(place)["replaced_files"]) == (1, 10)
    assert HistoryReader(place).of_topic("t/3", most=2)["offset"].to_pylist() == [93, 98]
    assert repair.problems(place) == []
    [*_, done] = carry_out(writer.table, place, "gone", Selector("topic", "t/3"), 0)
    assert done.erasure is not None
    assert done.erasure.rows == 19
    writer.reload()
    assert layout(place)["replaced_files"] == 0, "no byte of them is left in the store"
    assert [one.name for _, one in records(load(place))] == ["gone"]
    fill(writer, 101, 110)
    assert upkeep.vacuum(writer.table) == 0
    with duckdb.connect() as connection:
        connection.register("history", load(place).to_pyarrow_dataset())
        assert connection.sql("select count(*) from history where topic = 't/4'").fetchall() == [(22,)]
    writer.close()


def test_the_answer_to_a_commit_may_be_lost_and_no_row_comes_twice(
    place: Place, network: StoreNetwork, tmp_path: Path
) -> None:
    writer = open_writer(place, tmp_path)
    fill(writer, 1, 10)
    network.ask(swallow=f"PUT /lake/{place.uri.rpartition('/')[2]}/_delta_log/")
    try:
        fill(writer, 11, 20)
    except StoreError:
        writer.close()
        writer = open_writer(place, tmp_path)
    assert network.ask()["swallowed"] == 1
    assert writer.last == 20, "the store had taken it"
    fill(writer, 11, 30)
    assert offsets(place) == list(range(1, 31))
    writer.close()


def test_a_store_that_is_away_is_said_and_nothing_is_lost_or_doubled(
    place: Place, network: StoreNetwork, tmp_path: Path
) -> None:
    writer = open_writer(place, tmp_path)
    fill(writer, 1, 10)
    network.ask(away=True)
    with pytest.raises(StoreError, match="history cannot be written"):
        fill(writer, 11, 20)
    writer.close()
    with pytest.raises(StoreError, match="cannot be opened"):
        open_writer(place, tmp_path)
    network.ask(away=False, delay_s=0.05)
    writer = open_writer(place, tmp_path)
    assert writer.last == 10
    fill(writer, 11, 20)
    assert offsets(place) == list(range(1, 21))
    writer.close()


def test_of_two_brokers_pointed_at_one_place_one_is_refused(place: Place, tmp_path: Path) -> None:
    first = open_writer(Place(place.uri, place.storage_file, owner=1), tmp_path / "a")
    second = open_writer(Place(place.uri, place.storage_file, owner=2), tmp_path / "b")
    fill(first, 1, 5)
    with pytest.raises(StoreError, match="was written to at the same time"):
        fill(second, 1, 5)
    second.close()
    with pytest.raises(StoreError, match="a broker with another data folder"):
        open_writer(Place(place.uri, place.storage_file, owner=2), tmp_path / "b")
    first.close()
    assert open_writer(Place(place.uri, place.storage_file, owner=1), tmp_path / "a").last == 5
    assert offsets(place) == [1, 2, 3, 4, 5]


def test_a_stranger_who_commits_in_between_costs_no_row(place: Place, tmp_path: Path) -> None:
    writer = open_writer(place, tmp_path)
    fill(writer, 1, 5)
    load(place).alter.set_table_properties({"delta.checkpointInterval": "90"})
    with pytest.raises(StoreError, match="at the same time"):
        fill(writer, 6, 10)
    writer.close()
    again = open_writer(place, tmp_path)
    assert again.last == 5
    fill(again, 6, 10)
    assert offsets(place) == list(range(1, 11))
    assert len(data_files(again.table)) == 2
    again.close()


def test_no_credential_is_ever_told(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, place.storage_file)
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2024-01-01&sig=abcdefgh")
    storage_options(place.uri)
    text = f"GET https://x.blob/y?sv=1&sig=zzz with key {KEY_ID}, {SECRET} and sv=2024-01-01&sig=abcdefgh were refused"
    assert redacted(text) == "GET https://x.blob/y?… with key …, … and … were refused"
    assert SECRET not in repr(place)
    (tmp_path / "bad.toml").write_text(f"secret = {SECRET}")
    with pytest.raises(StoreError, match="expected lines") as told:
        read_options(str(tmp_path / "bad.toml"))
    assert SECRET not in str(told.value)
    with pytest.raises(StoreError, match="cannot be read"):
        read_options(str(tmp_path / "none.toml"))
    Path(place.storage_file).write_text(Path(place.storage_file).read_text().replace("127.0.0.1", "127.0.0.2"))
    with pytest.raises(StoreError, match="cannot be opened") as away:
        open_writer(place, tmp_path)
    assert KEY_ID not in str(away.value)
    assert SECRET not in str(away.value)


def test_a_folder_is_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.toml"))
    assert storage_options(str(tmp_path)) is None
    assert storage_options(f"file://{tmp_path}") is None
    with pytest.raises(StoreError):
        storage_options("s3://lake/x")
    assert VARIABLE in os.environ


class Story:
    """A broker whose history is in the store, published to under topics of its own."""

    def __init__(self, start: Start, network: StoreNetwork, folder: Path, name: str) -> None:
        self.start_broker, self.network, self.data, self.name = start, network, folder / "data", name
        self.file = storage_file(folder, network.port)
        self.place = Place(f"s3://lake/{name}", str(self.file))
        self.published = 0
        self.outputs: list[str] = []

    def start(self) -> None:
        settings = {"history__path": self.place.uri, "history__storage_file": self.file}
        self.broker = self.start_broker(listen=LISTEN, data=self.data, **settings)
        self.api = Api(self.broker)

    def publish(self, count: int) -> None:
        topics = [f"{self.name}/{number}" for number in range(self.published, self.published + count)]
        self.api.set_many(topics)
        self.published += count

    def kill(self) -> None:
        """The broker and all that it has started, at once."""
        self.api.close()
        for process in psutil.Process(self.broker.pid).children(recursive=True):
            process.kill()
        self.broker.kill()
        self.outputs.append(self.broker.output)

    def overview(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.ok("GET", "/api/v1/overview")
        return found

    def caught_up(self) -> None:
        until(self.overview, lambda now: not now["problems"] and now["history_lag"] == 0)
        rows = load(self.place).to_pyarrow_table()
        assert sorted(rows["topic"].to_pylist()) == sorted(f"{self.name}/{number}" for number in range(self.published))
        assert len(set(rows["offset"].to_pylist())) == self.published

    def end(self) -> str:
        self.api.close()
        self.broker.stop()
        return "".join([*self.outputs, self.broker.output])


@pytest.fixture
def story(start_broker: Start, network: StoreNetwork, tmp_path: Path, request: pytest.FixtureRequest) -> Story:
    return Story(start_broker, network, tmp_path, request.node.name)


def test_a_broker_keeps_its_history_in_the_store_and_every_command_finds_it(story: Story) -> None:
    story.start()
    story.publish(50)
    assert len(story.api.history(f"{story.name}/7", 1)) == 1
    assert story.api.ok("GET", "/api/v1/history/span")["uri"] == story.place.uri
    story.caught_up()
    arguments = [" ".join(psutil.Process(story.broker.pid).cmdline())]
    arguments += [" ".join(one.cmdline()) for one in psutil.Process(story.broker.pid).children(recursive=True)]
    told = story.end()
    for text in (told, *arguments, (story.data / "history.place").read_text()):
        assert SECRET not in text
        assert KEY_ID not in text
    assert not (story.data / "history").exists()
    environment = serve_environment()
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "holdfast",
            "retained",
            "history",
            f"{story.name}/7",
            "--data",
            str(story.data),
            "--json",
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ran.stdout.splitlines()[0])["topic"] == f"{story.name}/7"


@pytest.mark.parametrize("answered", [False, True], ids=["before the store has it", "after the store has it"])
def test_a_broker_that_is_killed_in_the_middle_of_a_commit_loses_no_row_and_doubles_none(
    start_broker: Start, network: StoreNetwork, tmp_path: Path, answered: bool
) -> None:
    story = Story(start_broker, network, tmp_path, f"killed-{answered}")
    story.start()
    story.publish(20)
    story.caught_up()
    commit = f"PUT /lake/{story.name}/_delta_log/"
    network.ask(**{"swallow" if answered else "hold": commit})
    story.publish(20)
    until(network.ask, lambda now: now["swallowed" if answered else "held"] > 0)
    story.kill()
    network.ask(hold="", swallow="")
    story.start()
    story.publish(20)
    story.caught_up()
    story.end()


def test_while_the_store_is_away_the_journal_keeps_rows_and_the_broker_says_so(story: Story) -> None:
    story.start()
    story.publish(10)
    story.caught_up()
    story.network.ask(away=True)
    story.publish(500)
    behind = until(story.overview, lambda now: "history" in now["problems"])
    assert behind["history_lag"] >= 500
    assert "history" in behind["problems"]
    metrics = story.api.get("/metrics").text
    assert "holdfast_history_failing 1.0" in metrics
    story.network.ask(away=False, delay_s=0.02)
    story.caught_up()
    told = story.end()
    assert "history" in told
    assert SECRET not in told
