"""A client that does nothing but ping, in a process of its own: what others feel while a broker is busy."""

import gc
import multiprocessing
import time
from multiprocessing.connection import Connection
from types import TracebackType

from holdfast.bench.board import GO, QUIT, READY, Board
from holdfast.bench.codec import Histogram
from holdfast.bench.conductor import summarise
from holdfast.bench.link import Link, LinkError
from holdfast.bench.plan import Plan
from holdfast.bench.result import Latency
from holdfast.bench.worker import settle

PAUSE_S = 0.002


class PingProbe:
    """Pings from entering to leaving the block; `latency` holds the round trips afterwards."""

    def __init__(self, plan: Plan) -> None:
        context = multiprocessing.get_context("spawn")
        self._board = Board(context, 1)
        self._pipe, there = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_ping, args=(plan, self._board, there), name="bench-ping-probe", daemon=True
        )
        self.latency = Latency(0.0, 0.0, 0.0, 0.0)

    def __enter__(self) -> "PingProbe":
        self._process.start()
        while not self._board.get(0, READY):
            if self._pipe.poll(0.002):
                raise LinkError(str(self._pipe.recv()))
        self._board.phase = GO
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._board.phase = QUIT
        report = self._pipe.recv() if self._pipe.poll(15) else "the ping probe got no answer for 15 s"
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.terminate()
        if isinstance(report, Latency):
            self.latency = report
        elif error is None:
            raise LinkError(str(report))


def _ping(plan: Plan, board: Board, pipe: Connection) -> None:
    settle(plan)
    try:
        link = Link.open(
            plan.host,
            plan.port,
            f"{plan.prefix}-ping",
            plan.version,
            username=plan.username,
            password=plan.password,
            timeout_s=30.0,
        )
        link.ping()
        round_trips = Histogram()
        board.put(0, READY, 1)
        gc.disable()
        while board.phase != QUIT:
            round_trips.add(link.ping())
            time.sleep(PAUSE_S)
        pipe.send(summarise(round_trips))
        link.close()
    except LinkError as error:
        pipe.send(str(error))
