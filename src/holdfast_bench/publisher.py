"""The process that publishes: all publishing connections of a run in one loop, each with a sender that paces it.

A sender keeps its books in bytes of equal frames, so a write cut short inside a frame needs no special case. Flat out,
the bytes come from a block built once and sent round and round. Paced, they are built when they fall due, with that
moment inside: waiting for the window or for the socket counts as latency, a generator that woke up late does not.
"""

import contextlib
import gc
import select
import time
from abc import ABC, abstractmethod
from multiprocessing.connection import Connection

from holdfast_bench.codec import PublishFrame
from holdfast_bench.connection import READ_BYTES, LoadConnection, LoadError
from holdfast_bench.plan import Plan
from holdfast_bench.worker import (
    ACKNOWLEDGED,
    BYTES,
    CPU_NS,
    DONE,
    GO,
    LAST_NS,
    MESSAGES,
    QUIT,
    STOP,
    SharedCounters,
    await_go,
    open_connections,
    prepare_process,
    report_ready,
)

BLOCK_BYTES = 1 << 18  # large enough to make a system call cheap, small enough to stay in the cache
NO_LIMIT = 1 << 62
IDLE_S = 0.02  # how often a waiting worker looks whether it should stop


class Sender(ABC):
    def __init__(self, connection: LoadConnection, frame: PublishFrame, inflight: int, limit: int) -> None:
        self.connection = connection
        self.frame = frame
        self.inflight = min(inflight, connection.received.receive_maximum)  # [5: MQTT-3.3.4-7]
        self.limit = limit or NO_LIMIT  # messages
        self.sent_bytes = 0
        self.owed = bytearray()  # PUBREL packets: they go out between frames, never inside one
        self.blocked = False  # the socket took less than offered: wait until it is writable

    @property
    def sent(self) -> int:
        return self.sent_bytes // self.frame.size

    @property
    def finished(self) -> bool:
        whole = self.sent_bytes == self.limit * self.frame.size
        return whole and (self.frame.qos == 0 or self.connection.received.acknowledged >= self.limit)

    def stop(self) -> None:
        """No further messages; a frame that has been begun is completed."""
        begun = -(-self.sent_bytes // self.frame.size)
        self.limit = min(self.limit, begun)

    @property
    def wants_write(self) -> bool:
        return self.blocked

    def pump(self, now_ns: int) -> None:
        """Sends what may be sent now."""
        self.blocked = False
        if self.owed and self.sent_bytes % self.frame.size == 0:
            del self.owed[: self._write(self.owed)]
        if not self.blocked:
            self.send_frames(now_ns)

    @abstractmethod
    def send_frames(self, now_ns: int) -> None: ...

    def allowance(self) -> int:
        """Bytes that the window and the limit let out now."""
        ceiling = self.limit
        if self.frame.qos:
            ceiling = min(ceiling, self.connection.received.acknowledged + self.inflight)
        return ceiling * self.frame.size - self.sent_bytes

    def offer(self, data: memoryview) -> int:
        taken = self._write(data)
        self.sent_bytes += taken
        return taken

    def _write(self, data: memoryview | bytearray) -> int:
        taken = 0
        with contextlib.suppress(BlockingIOError):
            taken = self.connection.socket.send(data)
        self.blocked = taken < len(data)
        return taken


class FlatOutSender(Sender):
    def __init__(
        self, connection: LoadConnection, frame: PublishFrame, inflight: int, limit: int, block: bytes = b""
    ) -> None:
        """`block` is whole frames of the frame's size, in place of the ones built here."""
        super().__init__(connection, frame, inflight, limit)
        # an id is used again after at least two windows, when its acknowledgement has long been counted
        frames = max(2 * inflight if frame.qos else 1, min(BLOCK_BYTES // frame.size, 65535))
        self._block = memoryview(block or frame.block(frames))

    @property
    def wants_write(self) -> bool:
        return self.blocked or (self.frame.qos == 0 and self.allowance() > 0)

    def send_frames(self, now_ns: int) -> None:
        allowed = self.allowance()
        while allowed > 0:
            start = self.sent_bytes % len(self._block)
            piece = self._block[start : start + allowed]
            if self.offer(piece) < len(piece) or self.frame.qos == 0:
                return
            allowed -= len(piece)


class PacedSender(Sender):
    def __init__(
        self,
        connection: LoadConnection,
        frame: PublishFrame,
        inflight: int,
        limit: int,
        interval_ns: float,
        first_ns: int,
    ) -> None:
        super().__init__(connection, frame, inflight, limit)
        self._interval_ns = interval_ns
        self._first_ns = first_ns
        self._made = 0
        self._pending = bytearray()

    @property
    def next_due_ns(self) -> int:
        if self._made >= self.limit:
            return NO_LIMIT
        return self._first_ns + int(self._made * self._interval_ns)

    def stop(self) -> None:
        """What fell due is still sent: leaving it out would hide the waiting it did."""
        self.limit = min(self.limit, self._made)

    def send_frames(self, now_ns: int) -> None:
        if now_ns >= self._first_ns:
            due = min(int((now_ns - self._first_ns) / self._interval_ns) + 1, self.limit)
            if due > self._made:
                count = due - self._made
                self._pending += self.frame.stamped_block(count, self._made % 65535 + 1, now_ns)
                self._made = due
        allowed = min(self.allowance(), len(self._pending))
        if allowed > 0:
            with memoryview(self._pending) as pending:
                taken = self.offer(pending[:allowed])
            del self._pending[:taken]


def publish(plan: Plan, counters: SharedCounters, worker: int, pipe: Connection) -> None:
    """The body of a worker process; reports on `pipe` when it is over."""
    prepare_process(plan)
    try:
        _publish(plan, counters, worker)
        pipe.send(None)
    except (LoadError, OSError) as error:
        pipe.send(str(error))
    finally:
        counters.put(worker, DONE, 1)


def _publish(plan: Plan, counters: SharedCounters, worker: int) -> None:
    connections = open_connections(plan, plan.publishers, "pub", ports=plan.publish_ports)
    senders: list[Sender] = (
        [] if plan.rate else [_flat_out(plan, index, connection) for index, connection in enumerate(connections)]
    )
    report_ready(counters, worker)
    await_go(counters, worker)
    if plan.rate:
        senders = [_paced(plan, index, connection, counters.started_ns) for index, connection in enumerate(connections)]
    gc.disable()
    _Loop(counters, worker, senders).run()
    for connection in connections:
        connection.close()


def _flat_out(plan: Plan, index: int, connection: LoadConnection) -> Sender:
    pattern = plan.topic_of(index).encode()
    block = b"".join(
        PublishFrame(_numbered(pattern, number), plan.payload, plan.qos, plan.retain, plan.version).block(1, number + 1)
        for number in range(plan.distinct)
    )
    frame = PublishFrame(_numbered(pattern, 0), plan.payload, plan.qos, plan.retain, plan.version)
    return FlatOutSender(connection, frame, plan.inflight, _share(plan, index), block)


def _numbered(pattern: bytes, number: int) -> bytes:
    return pattern.replace(b"%m", b"%06d" % number)  # of one length, so that all frames are


def _paced(plan: Plan, index: int, connection: LoadConnection, started_ns: int) -> Sender:
    frame = PublishFrame(plan.topic_of(index).encode(), plan.payload, plan.qos, plan.retain, plan.version)
    interval_ns = 1e9 * plan.publishers / plan.rate
    first_ns = started_ns + int(index * interval_ns / plan.publishers)
    return PacedSender(connection, frame, plan.inflight, _share(plan, index), interval_ns, first_ns)


def _share(plan: Plan, index: int) -> int:
    """This publisher's part of the messages to send; 0 = no limit."""
    return plan.count // plan.publishers + (1 if index < plan.count % plan.publishers else 0)


class _Loop:
    def __init__(self, counters: SharedCounters, worker: int, senders: list[Sender]) -> None:
        self.counters = counters
        self.worker = worker
        self.senders = senders
        self.paced = [sender for sender in senders if isinstance(sender, PacedSender)]
        self.epoll = select.epoll()
        self.watched: dict[int, int] = {}
        self.by_fd = {sender.connection.socket.fileno(): sender for sender in senders}
        for fd, sender in self.by_fd.items():
            sender.connection.socket.setblocking(False)
            self.epoll.register(fd, select.EPOLLIN)
            self.watched[fd] = select.EPOLLIN

    def run(self) -> None:
        stopping = False
        self.pump(self.senders)
        while True:
            phase = self.counters.phase
            if phase >= STOP and not stopping:
                stopping = True
                for sender in self.senders:
                    sender.stop()
                self.pump(self.senders)
            self.publish_totals()
            if phase == QUIT or all(sender.finished for sender in self.senders):
                return
            touched = self.poll()
            self.pump(touched if not self.paced or stopping else self.senders)

    def poll(self) -> list[Sender]:
        touched: list[Sender] = []
        for fd, event in self.epoll.poll(self.patience()):
            sender = self.by_fd[fd]
            if event & ~select.EPOLLOUT:
                self.receive(sender)
            touched.append(sender)
        return touched

    def patience(self) -> float:
        if not self.paced or self.counters.phase != GO:
            return IDLE_S
        wait_s = (min(sender.next_due_ns for sender in self.paced) - time.monotonic_ns()) / 1e9
        if wait_s > 0.002:  # epoll rounds up to whole milliseconds: come back early and sleep the rest
            return min(wait_s - 0.001, IDLE_S)
        if wait_s > 0:
            time.sleep(wait_s)
        return 0

    def receive(self, sender: Sender) -> None:
        data = sender.connection.socket.recv(READ_BYTES)
        if not data:
            raise LoadError(f"the broker closed publisher {sender.connection.client_id}")
        sender.owed += sender.connection.received.feed(data, 0)

    def pump(self, senders: list[Sender]) -> None:
        now_ns = time.monotonic_ns()
        for sender in senders:
            sender.pump(now_ns)
            wanted = select.EPOLLIN | select.EPOLLOUT if sender.wants_write else select.EPOLLIN
            fd = sender.connection.socket.fileno()
            if self.watched[fd] != wanted:
                self.watched[fd] = wanted
                self.epoll.modify(fd, wanted)

    def publish_totals(self) -> None:
        self.counters.put(self.worker, MESSAGES, sum(sender.sent for sender in self.senders))
        self.counters.put(self.worker, BYTES, sum(sender.sent_bytes for sender in self.senders))
        self.counters.put(
            self.worker, ACKNOWLEDGED, sum(sender.connection.received.acknowledged for sender in self.senders)
        )
        self.counters.put(self.worker, LAST_NS, time.monotonic_ns())
        self.counters.put(self.worker, CPU_NS, time.process_time_ns())
