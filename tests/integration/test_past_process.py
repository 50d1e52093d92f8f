"""The process that reads the history for a broker: it answers, ends when nobody asks, and may be killed."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from holdfast.errors import StoreError
from holdfast.history.writer import HistoryWriter
from holdfast.service.past import Moment, Past, Undoing
from holdfast.service.past_process import PastProcess
from holdfast.state.check import child_environment
from log_records import NOW_MS, retained

WITHIN_S = 120.0


@pytest.fixture
def table(tmp_path: Path) -> Path:
    writer = HistoryWriter(tmp_path / "history", tmp_path / "quarantine")
    writer.append([retained(f"t/{number}", b"%d" % number, number) for number in range(1, 6)], 5)
    writer.close()
    return tmp_path / "history"


def ask(folder: Path, act: Callable[[PastProcess], Awaitable[None]], rest_after_s: float = 30.0) -> None:
    async def run() -> None:
        past = PastProcess(folder, rest_after_s)
        try:
            await act(past)
        finally:
            await past.stop()

    asyncio.run(run())


def pid_of(past: PastProcess) -> int:
    assert past.answerer is not None
    return past.answerer.process.pid


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0.02)


def test_the_answers_are_those_of_the_table_and_come_from_one_process(table: Path) -> None:
    here = Past(table)
    moment = Moment(NOW_MS + 1000)

    async def act(past: PastProcess) -> None:
        assert await past.ask(Past.span) == here.span()
        first = pid_of(past)
        pages = await asyncio.gather(*(past.ask(Past.page_at, moment, "", limit) for limit in range(1, 7)))
        assert pages == [here.page_at(moment, "", limit) for limit in range(1, 7)]
        assert await past.ask(Past.sketches_at, moment, "t/1", 3) == here.sketches_at(moment, "t/1", 3)
        assert await past.ask(Past.rows, [4, 2], moment) == here.rows([4, 2])
        assert await past.ask(Past.find_at, moment, "t/3") == here.find_at(moment, "t/3")
        assert await past.ask(Past.children_at, moment, "t", "", 10) == here.children_at(moment, "t", "", 10)
        assert await past.ask(Past.of_topic, "t/2", 0, 10) == here.of_topic("t/2", 0, 10)
        assert await past.ask(Past.undoing, "nobody") == Undoing([], [], [])
        assert pid_of(past) == first

    ask(table, act)


def test_before_there_is_a_table_nothing_has_happened(tmp_path: Path) -> None:
    async def act(past: PastProcess) -> None:
        assert (await past.ask(Past.of_topic, "t", 0, 10))["rows"] == []
        assert (await past.ask(Past.span))["rows"] == 0
        assert await past.ask(Past.page_at, Moment(NOW_MS), "", 10) == ([], None, 0)
        assert await past.ask(Past.sketches_at, Moment(NOW_MS), "", 10) == ([], False)
        assert await past.ask(Past.rows, [1, 2]) == ([], 2)
        assert await past.ask(Past.find_at, Moment(NOW_MS), "t") is None
        assert (await past.ask(Past.children_at, Moment(NOW_MS), None, "", 10))["children"] == []
        assert await past.ask(Past.undoing, "nobody") == Undoing([], [], [])

    ask(tmp_path / "history", act)


def test_it_ends_when_nobody_asks_and_comes_back_with_the_next_question(table: Path) -> None:
    async def act(past: PastProcess) -> None:
        assert (await past.ask(Past.span))["rows"] == 5
        first = pid_of(past)
        await until(lambda: past.answerer is None and not psutil.pid_exists(first))
        assert (await past.ask(Past.span))["rows"] == 5

    ask(table, act, rest_after_s=0.2)


def test_who_waits_for_one_that_is_killed_is_told_and_the_next_is_answered(table: Path) -> None:
    async def act(past: PastProcess) -> None:
        await past.ask(Past.span)
        os.kill(pid_of(past), signal.SIGSTOP)
        waiting = asyncio.create_task(past.ask(Past.span))
        await asyncio.sleep(0)
        os.kill(pid_of(past), signal.SIGKILL)
        with pytest.raises(StoreError, match="ended with code -9"):
            await waiting
        assert (await past.ask(Past.span))["rows"] == 5

    ask(table, act)


def test_one_that_takes_no_more_questions_is_replaced_before_its_end_is_known(table: Path) -> None:
    async def act(past: PastProcess) -> None:
        await past.ask(Past.span)
        assert past.answerer is not None
        assert past.answerer.process.stdin is not None
        past.answerer.process.stdin.close()  # as when it was killed
        assert (await past.ask(Past.span))["rows"] == 5

    ask(table, act)


def test_a_table_that_cannot_be_read_is_the_disks_fault(table: Path) -> None:
    for commit in (table / "_delta_log").glob("*.json"):
        commit.write_text("not json\n")

    async def act(past: PastProcess) -> None:
        for _ in range(2):
            with pytest.raises(StoreError, match="the history cannot be read now: history table in"):
                await past.ask(Past.span)

    ask(table, act)


def test_one_that_is_asked_too_much_ends_with_the_broker(table: Path) -> None:
    async def act(past: PastProcess) -> None:
        await past.ask(Past.span)
        os.kill(pid_of(past), signal.SIGSTOP)

    ask(table, act)


LOADED = """
import sys
from pathlib import Path
from holdfast.history.libraries import load_arrow_alone
from holdfast.service.past import Moment, Past
load_arrow_alone()
past = Past(Path(sys.argv[1]))
assert past.span()["rows"] == 5
assert len(past.page_at(Moment(int(sys.argv[2])), "", 10)[0]) == 5
assert "pyarrow.dataset" in sys.modules
print(sorted({"numpy", "pandas"} & set(sys.modules)))
sys.stdout.flush()
import os
os._exit(0)
"""


def test_arrow_reads_the_table_without_numpy_and_pandas(table: Path) -> None:
    command = [sys.executable, "-c", LOADED, str(table), str(NOW_MS + 1000)]
    done = subprocess.run(command, capture_output=True, text=True, env=child_environment(), check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
