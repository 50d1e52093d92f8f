"""The followers as the broker sees them: started, heard, started again when they die, ended with the broker.

Each is a process that runs `follower_main`.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.history.libraries import GIVES_MEMORY_BACK
from holdfast.state.check import child_environment
from holdfast.storage.history_options import FOLLOWER, HistoryOptions

RESTART_S = 2.0


@dataclass(frozen=True)
class Report:
    """What a follower says, one line of JSON each: how far it has read (`at`), up to where it needs the journal no more
    (`passed`), how many records or rows that were, or a text for the operator. `paused` is why it writes nothing for
    now, and empty when it goes on. `seal` asks for another segment of the journal: this one has what was erased.
    """

    at: int | None = None
    passed: int | None = None
    count: int | None = None
    rows: int | None = None
    problem: str = ""
    loss: str = ""
    note: str = ""
    paused: str | None = None
    seal: bool = False

    @staticmethod
    def of(line: bytes) -> "Report":
        return Report(**json.loads(line))


OnReport = Callable[[str, Report], None]


class FollowerProcess:
    """`on_report` gets the follower's name and what it says. The broker's environment counts before `environment`."""

    def __init__(
        self, name: str, arguments: list[str], on_report: OnReport, environment: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.on_report = on_report
        self.environment = environment or {}
        self.process: asyncio.subprocess.Process | None = None
        self.task: asyncio.Task[None] | None = None
        self.begun = asyncio.Event()  # there was a process to be stopped
        self.stopping = False

    def start(self) -> None:
        self.task = asyncio.create_task(self.run(), name=f"holdfast-{self.name}")

    async def run(self) -> None:
        while True:
            code = await self.run_once()
            if self.stopping:
                return
            self.on_report(self.name, Report(problem=f"{self.name} process ended with code {code}, starting it again"))
            await asyncio.sleep(RESTART_S)

    async def run_once(self) -> int:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            FOLLOWER,
            self.name,
            *self.arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**self.environment, **child_environment()},
        )
        self.begun.set()
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.on_report(self.name, Report.of(line))
        return await self.process.wait()

    async def stop(self, within_s: float | None) -> None:
        """Lets it apply what is durable, and ends it. Call after the journal was closed.

        One that takes too long is cut off: it goes on from the journal at the next start, as after a crash.
        """
        self.stopping = True
        if self.task is None:
            return
        try:
            await asyncio.wait_for(self.end(), within_s)
        except TimeoutError:
            self.on_report(self.name, Report(note=f"{self.name} is behind the journal and goes on at the next start"))
            if self.process is not None and self.process.returncode is None:
                self.process.kill()
                await self.process.wait()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def end(self) -> None:
        await self.begun.wait()  # one that is just being started has the journal to apply as well
        assert self.process is not None
        if self.process.stdin is not None:
            self.process.stdin.close()
        await self.process.wait()


def state_process(root: Path, on_report: OnReport) -> FollowerProcess:
    return FollowerProcess("state", [str(root)], on_report)


def history_process(root: Path, on_report: OnReport, options: HistoryOptions) -> FollowerProcess:
    return FollowerProcess("history", [str(root), options.to_json()], on_report, GIVES_MEMORY_BACK)
