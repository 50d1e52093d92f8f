"""`holdfast history erase`: what was published leaves the history, the disk and what was made of it, and stays away."""

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from broker_process import BrokerProcess, serve_environment
from command_line import Done, holdfast_process
from holdfast.broker.message import SET, Publisher
from holdfast.cli import history as command
from holdfast.errors import UsageError
from holdfast.history.reader import records
from holdfast.history.schema import ERASED_PROTOCOL
from holdfast.history.table import load
from holdfast.history.writer import HistoryWriter
from holdfast.storage import erasures
from holdfast.storage.folder import DataFolder
from holdfast.storage.follower_main import HistoryWatcher, Needed
from holdfast.storage.history_options import HistoryOptions
from http_api import Api, until
from log_records import retained

pytest.importorskip("fastapi", reason="the API comes with holdfast-mqtt[ui], which is not installed")

LISTEN = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")
Start = Callable[..., BrokerProcess]


def secret(number: int) -> bytes:
    """Bytes that no compression makes shorter."""
    return random.Random(number).randbytes(40)


def found_in(root: Path, numbers: range) -> list[int]:
    """Which of the secrets are in some file below the folder."""
    content = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    return [number for number in numbers if secret(number) in content]


def begin(start_broker: Start, folder: DataFolder, flush: str = "200ms") -> BrokerProcess:
    return start_broker(listen=LISTEN, data=folder.root, history__flush_interval=flush)


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "data")


def erase(folder: DataFolder, *words: str) -> Done:
    return holdfast_process("history", "erase", *words, "--data", str(folder.root))


def publish(broker: BrokerProcess, client_id: str, topic: str, payload: bytes) -> None:
    client = broker.client(5)
    client.connect(client_id)
    client.publish(topic, payload, qos=1, retain=True)
    client.disconnect()


def rows_in_history(broker: BrokerProcess, topic: str, rows: int) -> list[dict[str, object]]:
    with Api(broker) as api:
        found: list[dict[str, object]] = api.history(topic, rows)
        return found


def test_what_a_client_published_is_gone_from_the_disk_while_the_broker_runs(
    start_broker: Start, folder: DataFolder
) -> None:
    broker = begin(start_broker, folder)
    for number in (1, 2, 3):
        publish(broker, "phone", "home/a", secret(number))
    publish(broker, "desk", "home/a", b"kept")
    publish(broker, "phone", "home/b", secret(4))
    rows_in_history(broker, "home/a", 4)
    rows_in_history(broker, "home/b", 1)
    assert found_in(folder.history, range(1, 5)) == [1, 2, 3, 4]
    shown = erase(folder, "--client", "phone", "--dry-run")
    assert (shown.returncode, "would erase 3 rows" in shown.stdout) == (0, True), shown.stderr
    assert ("home/a" in shown.stdout, "1 row kept" in shown.stdout) == (True, True)
    assert len(rows_in_history(broker, "home/a", 4)) == 4
    done = erase(folder, "--client", "phone", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 3
    # what is retained is not touched: its payload is in the state, and its row stays
    assert found_in(folder.history, range(1, 5)) == [4]
    assert json.loads(done.stdout)["in_journal"] is False
    assert found_in(folder.journal, range(1, 5)) == []
    with Api(broker) as api:
        assert api.topics() == ["home/a", "home/b"]
        assert [row["outcome"] for row in api.history("home/a", 1)] == ["set"]
        removed = api.ok("DELETE", "/api/v1/retained", params={"filter": "home/b", "dry_run": True})
        api.ok("DELETE", "/api/v1/retained", params={"filter": "home/b", "dry_run": False, "token": removed["token"]})
    rows_in_history(broker, "home/b", 2)
    assert json.loads(erase(folder, "--client", "phone", "--yes", "--json").stdout)["rows"] == 1
    assert found_in(folder.history, range(1, 5)) == []
    assert erase(folder, "--client", "phone", "--yes").returncode == 1
    listed = holdfast_process("history", "erasures", "--data", str(folder.root))
    assert listed.stdout.count("client phone") == 2


def test_the_api_tells_the_past_rightly_after_it(start_broker: Start, folder: DataFolder) -> None:
    """A value of somebody else's that an erased one had replaced does not come back, not from what the API kept."""
    broker = begin(start_broker, folder)
    for client_id, payload in (("desk", b"1"), ("phone", b"2"), ("desk", b"3")):
        publish(broker, client_id, "t", payload)
    with Api(broker) as api:
        rows = list(reversed(api.history("t", 3)))
        moments = [row["version"] for row in rows]

        def then(offset: int) -> list[str]:
            page = api.ok("GET", "/api/v1/retained/at", params={"offset": offset, "filter": "#"})
            return [message["text"] for message in page["messages"]]

        assert [then(offset) for offset in moments] == [["1"], ["2"], ["3"]]
        assert erase(folder, "--client", "phone", "--yes").returncode == 0
        assert [then(offset) for offset in moments] == [["1"], [], ["3"]]
        mark = api.history("t", 3)[1]
        assert (mark["outcome"], mark["size"], mark["publisher"]["protocol"]) == ("cleared", 0, ERASED_PROTOCOL)
        assert "phone" not in str(mark)
        [record] = api.history("$holdfast/erased", 1)
        assert ["erased-client", "phone"] in record["user_properties"]
    shown = holdfast_process("retained", "at", f"@{moments[1]}", "--data", str(folder.root))
    assert shown.returncode == 1
    assert "(erased)" in holdfast_process("retained", "history", "t", "--data", str(folder.root)).stdout


def test_what_was_acknowledged_and_is_not_in_the_history_yet_is_erased_too(
    start_broker: Start, folder: DataFolder
) -> None:
    """The broker was killed before its history had heard of the rows: only the journal has them."""
    broker = begin(start_broker, folder, flush="1h")
    publish(broker, "phone", "t", secret(1))
    publish(broker, "desk", "t", b"kept")
    for child in psutil.Process(broker.pid).children(recursive=True):
        child.kill()
    broker.kill()
    HistoryWriter(folder.history, folder.quarantine).close()  # there is a table, and nothing in it
    assert found_in(folder.journal, range(1, 2)) == [1]
    done = erase(folder, "--client", "phone", "--yes", "--json")
    assert json.loads(done.stdout)["rows"] == 1, done.stderr
    assert found_in(folder.history, range(1, 2)) == []
    assert found_in(folder.journal, range(1, 2)) == []
    again = begin(start_broker, folder)
    assert [row["size"] for row in rows_in_history(again, "t", 1)] == [4]


def erase_beside(folder: DataFolder) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "holdfast", "history", "erase", "--user", "alice", "--yes"]
    return subprocess.Popen([*command, "--data", str(folder.root)], env=serve_environment())


FILES = 60
PHONE, DESK = Publisher("phone", "alice", "5.0"), Publisher("desk", "bob", "5.0")


def filled(folder: DataFolder) -> None:
    """A history of many files, in each of them a row that is to go and one that is to stay."""
    writer = HistoryWriter(folder.history, folder.quarantine)
    for number in range(FILES):
        first, second = number * 2 + 1, number * 2 + 2
        mine = retained(f"mine/{number % 7}", secret(number), first, SET, publisher=PHONE)
        other = retained(f"other/{number}", b"kept", second, SET, publisher=DESK)
        writer.append([mine, other], second)
    writer.append([retained(f"mine/{number}", b"new", 1000 + number, SET, publisher=DESK) for number in range(7)], 1006)
    writer.close()  # a broker that finds no journal goes on behind it


def history_process(broker: BrokerProcess) -> psutil.Process:
    children = psutil.Process(broker.pid).children()
    [found] = [
        child for child in children if "history" in child.cmdline() and "follower_main" in " ".join(child.cmdline())
    ]
    return found


@pytest.mark.parametrize("victim", ["command", "writer", "broker"])
def test_an_erasure_that_is_killed_half_way_is_finished_by_itself_and_by_another_try(
    start_broker: Start, folder: DataFolder, victim: str
) -> None:
    filled(folder)
    broker = begin(start_broker, folder)
    command = erase_beside(folder)

    def begun() -> erasures.Request | None:
        asked = erasures.requests(folder)
        return asked[0] if asked and asked[0].files >= 2 else None

    request = until(begun, lambda found: found is not None)
    if victim == "command":
        command.kill()
    elif victim == "writer":
        history_process(broker).kill()
    else:
        for child in psutil.Process(broker.pid).children(recursive=True):
            child.kill()
        broker.kill()
    if victim != "command":
        command.kill()
    command.wait()
    assert not request.is_done
    if victim == "broker":
        left = found_in(folder.history, range(FILES))
        assert len(left) > 0
        broker = begin(start_broker, folder)
    publish(broker, "phone", "meanwhile", b"and the history goes on")
    rows_in_history(broker, "meanwhile", 1)
    until(lambda: erasures.read(folder, request.name), lambda found: found is not None and found.is_done)
    assert found_in(folder.history, range(FILES)) == []
    assert erase(folder, "--user", "alice", "--yes").returncode == 1
    table = load(folder.history)
    assert [erasure.rows for _, erasure in records(table)] == [FILES]
    topics = table.to_pyarrow_table(columns=["topic"])["topic"].to_pylist()
    assert {f"other/{number}" for number in range(FILES)} | {f"mine/{number}" for number in range(7)} <= set(topics)
    broker.stop()
    assert "Traceback" not in broker.output


def test_publishing_goes_on_while_rows_are_erased(start_broker: Start, folder: DataFolder) -> None:
    filled(folder)
    broker = begin(start_broker, folder)
    command = erase_beside(folder)
    client = broker.client(5)
    client.connect("desk")
    count = 0
    while command.poll() is None:
        client.publish("busy", b"%d" % count, qos=1, retain=True)
        count += 1
        time.sleep(0.01)
    assert command.returncode == 0
    with Api(broker) as api:
        until(lambda: api.history("busy", 1)[0]["text"], lambda text: text == str(count - 1))
    rows = load(folder.history).to_pyarrow_table(columns=["topic", "payload"]).to_pylist()
    assert sorted(int(row["payload"]) for row in rows if row["topic"] == "busy") == list(range(count))
    assert found_in(folder.history, range(FILES)) == []


@pytest.mark.parametrize(
    "words",
    [[], ["--user", "a", "--client", "b"], ["--user", ""], ["--user", "a", "--yes", "--dry-run"]],
    ids=["nothing", "two", "empty", "both"],
)
def test_a_command_line_that_does_not_say_what_is_refused(tmp_path: Path, words: list[str]) -> None:
    assert erase(DataFolder(tmp_path), *words).returncode == 2


def test_where_there_is_no_history_it_says_so(tmp_path: Path) -> None:
    done = erase(DataFolder(tmp_path), "--user", "a")
    assert done.returncode == 1
    assert "there is no history" in done.stderr


def test_what_was_erased_is_asked_for_again_where_the_journal_can_bring_it_back(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    (tmp_path / "journal").mkdir()
    request = erasures.ask(folder, "user", "alice", 1)
    erasures.save(folder, erasures.Request(request.name, "user", "alice", 1, 50, erasures.DONE))
    erasures.ask_again(folder, last=50)
    assert erasures.first_due(folder) is None
    erasures.ask_again(folder, last=49)  # the table was made anew, or lost its end
    assert erasures.first_due(folder) is not None


def test_a_writer_at_rest_wakes_for_it(folder: DataFolder) -> None:
    folder.journal.mkdir(parents=True)
    watcher = HistoryWatcher(folder, HistoryOptions())
    watcher.idle()
    erasures.ask(folder, "user", "alice", 1)
    with pytest.raises(Needed):
        watcher.idle()


def test_where_nobody_writes_a_history_it_does_not_wait_for_ever(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.journal.mkdir(parents=True)
    request = erasures.ask(folder, "user", "alice", 1)
    monkeypatch.setattr(command, "BEGUN_AFTER_S", 0.0)
    with pytest.raises(UsageError, match="the erasure has not started"):
        asyncio.run(command.done_of(folder, request.name))
    assert erasures.first_due(folder) == request  # it stands, for when there is one
