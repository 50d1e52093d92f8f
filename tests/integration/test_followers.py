"""The processes that follow the journal: they catch up, survive being killed, and end with the broker."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

from holdfast.history.table import last_offset, load
from holdfast.journal.writer import Options
from holdfast.state.store import StateStore
from holdfast.storage.folder import DataFolder
from holdfast.storage.follower_main import UPKEEP_LATE_S, HistoryWatcher, Needed
from holdfast.storage.followers import FollowerProcess, Report, history_process, state_process
from holdfast.storage.history_options import HistoryOptions, Resting
from holdfast.storage.recovery import Recovered, recover
from log_records import retained

WITHIN_S = 120.0
OFTEN = HistoryOptions(flush_interval_s=0.2)
SOON_AT_REST = HistoryOptions(flush_interval_s=0.2, rest_after_s=0.3)


class Run:
    """A journal with its followers, and what they said."""

    def __init__(self, root: Path, options: HistoryOptions = OFTEN) -> None:
        self.folder = DataFolder(root)
        self.reached: dict[str, int] = {}
        self.passed: dict[str, int] = {}
        self.texts: list[str] = []
        self.recovered: Recovered = recover(
            self.folder,
            history=True,
            schedule=asyncio.get_running_loop().call_soon_threadsafe,
            options=Options(segment_bytes=20_000, background_sync_s=0.0),
        )
        self.recovered.journal.start()
        self.offset = self.recovered.journal.next_offset
        self.followers = [state_process(root, self.hear), history_process(root, self.hear, options)]

    def hear(self, name: str, report: Report) -> None:
        if report.at is not None:
            self.reached[name] = report.at
        if report.passed is not None:
            self.passed[name] = report.passed
            self.recovered.journal.passed(name, report.passed)
        for kind, text in (("problem", report.problem), ("loss", report.loss), ("note", report.note)):
            if text:
                self.texts.append(f"{name} {kind}: {text}")

    def start(self) -> None:
        for follower in self.followers:
            follower.start()

    def publish(self, count: int, history: bool = True) -> None:
        records = [
            retained(f"t/{o % 50}", b"%d" % o, o, history=history) for o in range(self.offset, self.offset + count)
        ]
        self.recovered.journal.append(records)
        self.offset += count

    @property
    def history(self) -> FollowerProcess:
        return self.followers[1]

    async def resting(self) -> None:
        """Until the follower of the history has let go of its libraries."""
        await self.until(lambda: self.passed.get("history") == self.offset - 1 and not has_arrow(self.history))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not condition():
                await asyncio.sleep(0.02)

    async def durable(self) -> None:
        await self.until(lambda: self.recovered.journal.durable == self.offset - 1)

    async def caught_up(self) -> None:
        await self.until(lambda: all(self.reached.get(n) == self.offset - 1 for n in ("state", "history")))

    async def stop(self) -> None:
        self.recovered.journal.close(self.offset)
        await asyncio.gather(*(follower.stop(30) for follower in self.followers))
        self.recovered.store.close()
        self.recovered.lock.release()


def rows(folder: DataFolder) -> list[int]:
    return sorted(load(folder.history).to_pyarrow_table(columns=["offset"])["offset"].to_pylist())


def pid_of(follower: FollowerProcess) -> int:
    assert follower.process is not None
    return follower.process.pid


def has_arrow(follower: FollowerProcess) -> bool:
    return "libarrow" in Path(f"/proc/{pid_of(follower)}/maps").read_text()


def test_followers_keep_up_and_take_in_the_rest_at_the_end(tmp_path: Path) -> None:
    async def story() -> None:
        run = Run(tmp_path)
        run.start()
        run.publish(300)
        await run.caught_up()
        run.publish(200)
        await run.stop()
        assert run.texts == []

    asyncio.run(story())
    assert rows(DataFolder(tmp_path)) == list(range(1, 501))
    store = StateStore(tmp_path / "state")
    assert store.applied == 500
    assert store.retained.statistics().count == 50
    store.close()


def test_killed_followers_are_started_again_and_no_row_is_doubled_or_lost(tmp_path: Path) -> None:
    async def story() -> None:
        run = Run(tmp_path)
        run.start()
        for _ in range(3):
            run.publish(500)
            await run.until(lambda: run.reached.get("history", 0) > 0 and run.reached.get("state", 0) > 0)
            for follower in run.followers:
                os.kill(pid_of(follower), signal.SIGKILL)
            run.reached.clear()
            run.publish(100)
        await run.caught_up()
        assert any("ended with code -9" in text for text in run.texts)
        await run.stop()

    asyncio.run(story())
    assert rows(DataFolder(tmp_path)) == list(range(1, 1801))


def test_the_journal_is_kept_until_both_have_passed_it_and_then_goes(tmp_path: Path) -> None:
    async def story() -> None:
        run = Run(tmp_path)

        def segments() -> int:
            return len(list(run.folder.journal.glob("*.hfj")))

        for _ in range(10):
            run.publish(200)
            await run.durable()
        many = segments()
        assert many > 5
        state, history = run.followers
        state.start()
        await run.until(lambda: run.passed.get("state") == 2000)
        run.publish(1)
        await run.durable()
        assert segments() >= many, "history has not seen them"
        history.start()
        await run.until(lambda: run.passed.get("history", 0) >= 2000)
        await run.until(lambda: segments() <= 2)
        await run.stop()

    asyncio.run(story())
    assert rows(DataFolder(tmp_path)) == list(range(1, 2002))


def test_a_damaged_table_stops_history_alone_and_is_caught_up_once_it_is_gone(tmp_path: Path) -> None:
    history = tmp_path / "history"

    async def story() -> None:
        run = Run(tmp_path)
        log = history / "_delta_log"
        log.mkdir(parents=True)
        for version in range(3):
            (log / f"{version:020}.json").write_text("not json\n")
        run.start()
        run.publish(100)
        await run.until(lambda: run.reached.get("state") == 100 and bool(run.texts))
        assert "history" not in run.reached
        assert "history problem: history table" in run.texts[0]
        history.rename(tmp_path / "damaged")
        await run.caught_up()
        await run.stop()

    asyncio.run(story())
    assert rows(DataFolder(tmp_path)) == list(range(1, 101))
    assert last_offset(load(history)) == 100


def test_followers_end_when_the_broker_is_killed(tmp_path: Path) -> None:
    async def story() -> list[int]:
        run = Run(tmp_path)
        run.start()
        run.publish(10)
        await run.caught_up()
        pids = [pid_of(follower) for follower in run.followers]
        for follower in run.followers:  # the life line breaks, as it does when a process dies
            assert follower.process is not None
            assert follower.process.stdin is not None
            follower.stopping = True
            follower.process.stdin.close()
        for follower in run.followers:
            assert follower.process is not None
            assert await asyncio.wait_for(follower.process.wait(), WITHIN_S) == 0
        await run.stop()
        return pids

    assert not any(psutil.pid_exists(pid) for pid in asyncio.run(story()))


def test_a_follower_that_cannot_be_heard_any_more_does_not_break(tmp_path: Path) -> None:
    async def story() -> None:
        run = Run(tmp_path)
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", f"exec {run_command()} {tmp_path} | head -n 0"), stdin=asyncio.subprocess.PIPE
        )
        run.publish(50)
        await run.until(lambda: run.recovered.store.applied == 50)
        assert process.stdin is not None
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), WITHIN_S) == 0
        await run.stop()

    asyncio.run(story())


def run_command() -> str:
    return f"{sys.executable} -m holdfast.storage.follower_main state"


def test_reports_are_one_json_object_a_line(tmp_path: Path) -> None:
    async def story() -> list[str]:
        run = Run(tmp_path)
        run.publish(5)
        await run.durable()
        process = await asyncio.create_subprocess_exec(
            *run_command().split(), str(tmp_path), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(b""), WITHIN_S)
        await run.stop()
        return out.decode().splitlines()

    reports = [json.loads(line) for line in asyncio.run(story())]
    assert reports[0] == {"at": 0, "passed": 0}
    assert reports[-1] == {"at": 5, "passed": 5, "count": 5}


def test_a_history_that_rests_writes_the_next_rows_as_the_same_process(tmp_path: Path) -> None:
    async def story() -> None:
        run = Run(tmp_path, SOON_AT_REST)
        run.start()
        for _ in range(3):
            run.publish(10)
            await run.caught_up()
            first = pid_of(run.history)
            await run.resting()
            assert pid_of(run.history) == first
        run.publish(5)
        await run.stop()
        assert run.texts == []

    asyncio.run(story())
    assert rows(DataFolder(tmp_path)) == list(range(1, 36))


def test_a_history_without_rows_never_loads_its_libraries(tmp_path: Path) -> None:
    async def story() -> None:
        run = Run(tmp_path)
        run.start()
        run.publish(10, history=False)
        await run.caught_up()
        await run.resting()
        await run.stop()

    asyncio.run(story())
    assert not DataFolder(tmp_path).has_history()


def test_what_a_resting_history_passes_over_leaves_the_journal_and_is_no_loss(tmp_path: Path) -> None:
    async def story() -> None:
        run = Run(tmp_path, SOON_AT_REST)
        run.start()
        run.publish(10)
        await run.caught_up()
        await run.resting()
        for _ in range(10):
            run.publish(200, history=False)
            await run.caught_up()
        await run.until(lambda: run.folder.first_in_journal() > 1000)
        run.publish(5)
        await run.caught_up()
        await run.resting()
        await run.stop()
        assert run.texts == []

    asyncio.run(story())
    assert rows(DataFolder(tmp_path)) == [*range(1, 11), *range(2011, 2016)]


def test_a_resting_history_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        run = Run(tmp_path, SOON_AT_REST)
        run.start()
        run.publish(10)
        await run.caught_up()
        await run.resting()
        os.kill(pid_of(run.history), signal.SIGKILL)
        run.publish(10)
        await run.caught_up()
        await run.resting()
        run.publish(10)
        os.kill(pid_of(run.history), signal.SIGKILL)
        await run.caught_up()
        await run.stop()
        assert [text for text in run.texts if "ended with code -9" not in text] == []

    asyncio.run(story())
    assert rows(DataFolder(tmp_path)) == list(range(1, 31))


def test_rows_that_come_with_the_end_of_the_broker_wake_a_resting_history(tmp_path: Path) -> None:
    async def story() -> None:
        run = Run(tmp_path, SOON_AT_REST)
        run.start()
        run.publish(10)
        await run.caught_up()
        await run.resting()
        run.publish(10)
        await run.stop()

    asyncio.run(story())
    assert rows(DataFolder(tmp_path)) == list(range(1, 21))


@pytest.mark.parametrize(("late_s", "needed"), [(UPKEEP_LATE_S - 60, False), (UPKEEP_LATE_S + 1, True)])
def test_a_resting_history_wakes_for_upkeep_that_is_long_due(tmp_path: Path, late_s: float, needed: bool) -> None:
    due = {"compact": time.monotonic() + 10, "vacuum": time.monotonic() - late_s}
    watcher = HistoryWatcher(DataFolder(tmp_path), HistoryOptions(resting=Resting(5, 7, due)))
    with pytest.raises(Needed) if needed else nullcontext():
        watcher.idle()
    assert (watcher.open(), watcher.passed()) == (7, 7)
