"""The process that reads the history for a broker, as the broker sees it: started by a question, ended when none has
come for a while.
"""

import asyncio
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.errors import StoreError
from holdfast.history.libraries import GIVES_MEMORY_BACK
from holdfast.history.place import At, Place, place_of
from holdfast.service.past import Past
from holdfast.service.past_main import MODULE, SIZE_BYTES, frame
from holdfast.state.check import child_environment

REST_AFTER_S = 30.0
STOP_S = 1.0

P = ParamSpec("P")
T = TypeVar("T")


class Answerer:
    """One such process. When it ends, for whatever reason, those who still wait are told."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.asked = 0
        self.task = asyncio.create_task(self.listen(), name="holdfast-past")

    @classmethod
    async def start(cls, place: Place, requests: Path | None) -> "Answerer":
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-m", MODULE, place.uri, place.storage_file, str(requests or "")]
        environment = {**GIVES_MEMORY_BACK, **child_environment()}
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environment))

    async def ask(self, question: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        self.asked += 1
        number = self.asked
        answer = self.waiting[number] = asyncio.get_running_loop().create_future()
        assert self.process.stdin is not None
        self.process.stdin.write(frame((number, question, given, named)))
        try:
            return await answer
        finally:
            self.waiting.pop(number, None)

    async def listen(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        with suppress(asyncio.IncompleteReadError):
            while True:
                size = int.from_bytes(await stream.readexactly(SIZE_BYTES), "big")
                number, answered, answer = pickle.loads(await stream.readexactly(size))
                future = self.waiting.get(number)
                if future is None or future.done():
                    continue  # whoever asked has gone
                if answered:
                    future.set_result(answer)
                else:
                    future.set_exception(StoreError(answer))
        code = await self.process.wait()
        for future in self.waiting.values():
            if not future.done():
                text = f"the history cannot be read now: the process that reads it ended with code {code}"
                future.set_exception(StoreError(text))

    @property
    def ended(self) -> bool:
        """Whether nothing can be asked of it any more. Its pipe may tell before its exit does."""
        assert self.process.stdin is not None
        return self.task.done() or self.process.stdin.is_closing()

    async def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            await asyncio.wait_for(asyncio.shield(self.task), STOP_S)
        except TimeoutError:
            self.process.kill()
            await self.task


class PastProcess:
    """`ask` answers questions about a table from a process that is there while questions come."""

    def __init__(self, at: At, rest_after_s: float = REST_AFTER_S, requests: Path | None = None) -> None:
        self.place = place_of(at)
        self.requests = requests
        self.rest_after_s = rest_after_s
        self.answerer: Answerer | None = None
        self.starting = asyncio.Lock()
        self.timer: asyncio.TimerHandle | None = None
        self.resting: set[asyncio.Task[None]] = set()

    async def ask(self, question: Callable[Concatenate[Past, P], T], *given: P.args, **named: P.kwargs) -> T:
        """The answer of a method of `Past`. Raises StoreError when there is none."""
        async with self.starting:
            if self.answerer is not None and self.answerer.ended:
                await self.answerer.stop()
                self.answerer = None
            if self.answerer is None:
                self.answerer = await Answerer.start(self.place, self.requests)
            answerer = self.answerer
        self.rest_later()
        try:
            answer: T = await answerer.ask(question, given, named)
            return answer
        finally:
            self.rest_later()

    def rest_later(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = asyncio.get_running_loop().call_later(self.rest_after_s, self.rest)

    def rest(self) -> None:
        """Ends the process if nobody waits for it; else there will be another time."""
        answerer = self.answerer
        if answerer is None or answerer.waiting:
            return
        self.answerer = None
        task = asyncio.create_task(answerer.stop(), name="holdfast-past-rest")
        self.resting.add(task)
        task.add_done_callback(self.resting.discard)

    async def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.answerer is not None:
            await self.answerer.stop()
            self.answerer = None
        await asyncio.gather(*self.resting)
