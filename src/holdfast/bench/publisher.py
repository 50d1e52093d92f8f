"""The process that publishes: all publishing connections of a run in one loop."""

import gc
import select
import time
from multiprocessing.connection import Connection

from holdfast.bench.board import ACKNOWLEDGED, BYTES, DONE, GO, MESSAGES, QUIT, READY, STOP, Board
from holdfast.bench.codec import PublishFrame
from holdfast.bench.link import READ_BYTES, Link, LinkError
from holdfast.bench.outflow import FlatOut, Outflow, Paced
from holdfast.bench.plan import Plan
from holdfast.bench.worker import await_go, open_links, settle

IDLE_S = 0.02  # how often a waiting worker looks whether it should stop


def publish(plan: Plan, board: Board, worker: int, pipe: Connection) -> None:
    """The body of a worker process; reports on `pipe` when it is over."""
    settle(plan)
    try:
        _publish(plan, board, worker)
        pipe.send(None)
    except (LinkError, OSError) as error:
        pipe.send(str(error))
    finally:
        board.put(worker, DONE, 1)


def _publish(plan: Plan, board: Board, worker: int) -> None:
    links = open_links(plan, plan.publishers, "pub")
    outflows: list[Outflow] = [] if plan.rate else [_flat_out(plan, index, link) for index, link in enumerate(links)]
    board.put(worker, READY, 1)
    await_go(board)
    if plan.rate:
        outflows = [_paced(plan, index, link, board.started_ns) for index, link in enumerate(links)]
    gc.disable()
    _Loop(board, worker, outflows).run()
    for link in links:
        link.close()


def _flat_out(plan: Plan, index: int, link: Link) -> Outflow:
    pattern = plan.topic_of(index).encode()
    block = b"".join(
        PublishFrame(_numbered(pattern, number), plan.payload, 0, plan.retain, plan.version).block(1)
        for number in range(plan.distinct)
    )
    frame = PublishFrame(_numbered(pattern, 0), plan.payload, plan.qos, plan.retain, plan.version)
    return FlatOut(link, frame, plan.inflight, _share(plan, index), block)


def _numbered(pattern: bytes, number: int) -> bytes:
    return pattern.replace(b"%m", b"%06d" % number)  # of one length, so that all frames are


def _paced(plan: Plan, index: int, link: Link, started_ns: int) -> Outflow:
    frame = PublishFrame(plan.topic_of(index).encode(), plan.payload, plan.qos, plan.retain, plan.version)
    interval_ns = 1e9 * plan.publishers / plan.rate
    first_ns = started_ns + int(index * interval_ns / plan.publishers)
    return Paced(link, frame, plan.inflight, _share(plan, index), interval_ns, first_ns)


def _share(plan: Plan, index: int) -> int:
    """This publisher's part of the messages to send; 0 = no limit."""
    return plan.count // plan.publishers + (1 if index < plan.count % plan.publishers else 0)


class _Loop:
    def __init__(self, board: Board, worker: int, outflows: list[Outflow]) -> None:
        self.board = board
        self.worker = worker
        self.outflows = outflows
        self.paced = [outflow for outflow in outflows if isinstance(outflow, Paced)]
        self.epoll = select.epoll()
        self.watched: dict[int, int] = {}
        self.by_fd = {outflow.link.socket.fileno(): outflow for outflow in outflows}
        for fd, outflow in self.by_fd.items():
            outflow.link.socket.setblocking(False)
            self.epoll.register(fd, select.EPOLLIN)
            self.watched[fd] = select.EPOLLIN

    def run(self) -> None:
        stopping = False
        self.pump(self.outflows)
        while True:
            phase = self.board.phase
            if phase >= STOP and not stopping:
                stopping = True
                for outflow in self.outflows:
                    outflow.stop()
                self.pump(self.outflows)
            self.publish_totals()
            if phase == QUIT or all(outflow.finished for outflow in self.outflows):
                return
            touched = self.take_events()
            self.pump(touched if not self.paced or stopping else self.outflows)

    def take_events(self) -> list[Outflow]:
        touched: list[Outflow] = []
        for fd, event in self.epoll.poll(self.patience()):
            outflow = self.by_fd[fd]
            if event & ~select.EPOLLOUT:
                self.receive(outflow)
            touched.append(outflow)
        return touched

    def patience(self) -> float:
        if not self.paced or self.board.phase != GO:
            return IDLE_S
        wait_s = (min(outflow.next_due_ns for outflow in self.paced) - time.monotonic_ns()) / 1e9
        if wait_s > 0.002:  # epoll rounds up to whole milliseconds: come back early and sleep the rest
            return min(wait_s - 0.001, IDLE_S)
        if wait_s > 0:
            time.sleep(wait_s)
        return 0

    def receive(self, outflow: Outflow) -> None:
        data = outflow.link.socket.recv(READ_BYTES)
        if not data:
            raise LinkError(f"the broker closed publisher {outflow.link.client_id}")
        outflow.owed += outflow.link.intake.feed(data, 0)

    def pump(self, outflows: list[Outflow]) -> None:
        now_ns = time.monotonic_ns()
        for outflow in outflows:
            outflow.pump(now_ns)
            wanted = select.EPOLLIN | select.EPOLLOUT if outflow.wants_write else select.EPOLLIN
            fd = outflow.link.socket.fileno()
            if self.watched[fd] != wanted:
                self.watched[fd] = wanted
                self.epoll.modify(fd, wanted)

    def publish_totals(self) -> None:
        self.board.put(self.worker, MESSAGES, sum(outflow.sent for outflow in self.outflows))
        self.board.put(self.worker, BYTES, sum(outflow.sent_bytes for outflow in self.outflows))
        self.board.put(self.worker, ACKNOWLEDGED, sum(outflow.link.intake.acknowledged for outflow in self.outflows))
