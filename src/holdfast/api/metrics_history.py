"""How the broker has been doing lately: a few numbers a second, kept for a quarter of an hour, fewer of them for a day,
and the loop's delay.
"""

import asyncio
import os
from collections import deque

from holdfast.api.resources import resident
from holdfast.api.status import ServerStatus
from holdfast.broker.message import OUTCOMES, REFUSED_SIZE

SAMPLE_S = 1.0
KEPT = 900
# Samples are kept in these steps, in seconds, so many of each: a quarter of an hour, two and a half hours, a day.
STEPS = {1: KEPT, 10: 900, 60: 1440}
# Upper bounds in seconds of the histogram of the event loop's delay.
LAG_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

FIELDS = (
    "at_ms",
    "messages_in",
    "messages_out",
    "bytes_in",
    "bytes_out",
    "connections",
    "retained",
    "retained_bytes",
    "history_lag",
    "dropped",
    "history_lag_ms",
    "memory",
)


class LoopLag:
    """A histogram of how late timers are."""

    def __init__(self) -> None:
        self.counts = [0] * (len(LAG_BOUNDS) + 1)
        self.total_s = 0.0
        self.latest_s = 0.0

    def add(self, seconds: float) -> None:
        self.latest_s = seconds
        self.total_s += seconds
        for place, bound in enumerate(LAG_BOUNDS):
            if seconds <= bound:
                self.counts[place] += 1
                return
        self.counts[-1] += 1


class MetricsHistory:
    def __init__(self, status: ServerStatus) -> None:
        self.status = status
        self.samples: dict[int, deque[list[int]]] = {step: deque(maxlen=most) for step, most in STEPS.items()}
        self.taken = 0
        self.loop_lag = LoopLag()
        self.lag_since: tuple[int, float] | None = None  # an offset the history has yet to reach, and when it was new
        self.lag_s = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.due_s = 0.0

    def start(self) -> None:
        loop = self.status.handle.loop
        self.due_s = loop.time() + SAMPLE_S
        self.timer = loop.call_at(self.due_s, self.on_time)

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def on_time(self) -> None:
        loop = self.status.handle.loop
        now_s = loop.time()
        self.loop_lag.add(max(0.0, now_s - self.due_s))
        self.watch_lag(now_s)
        sample = self.sample()
        for step, samples in self.samples.items():
            if self.taken % step == 0:
                samples.append(sample)
        self.taken += 1
        self.due_s = now_s + SAMPLE_S
        self.timer = loop.call_at(self.due_s, self.on_time)

    def watch_lag(self, now_s: float) -> None:
        reached = self.status.reached.get("history", 0)
        if self.lag_since is not None and reached < self.lag_since[0]:
            self.lag_s = now_s - self.lag_since[1]
            return
        self.lag_s = 0.0
        self.lag_since = (self.status.newest(), now_s) if self.status.history_lag() else None

    def sample(self) -> list[int]:
        broker = self.status.broker
        counters = broker.counters
        return [
            self.status.now_ms(),
            sum(counters.messages_received),
            sum(counters.messages_sent),
            counters.bytes_received,
            counters.bytes_sent,
            counters.connected_now,
            broker.retained.count,
            broker.retained.size,
            self.status.history_lag(),
            counters.dropped(),
            int(self.lag_s * 1000),
            resident(os.getpid()),
        ]

    def overview(self, points: int, step_s: int = 1) -> dict[str, object]:
        """Totals now, and the last `points` samples by field, `step_s` apart."""
        broker = self.status.broker
        counters = broker.counters
        retained = broker.retained
        samples = list(self.samples[step_s])[-points:] if points else []
        return {
            "version": self.status.version,
            "now_ms": self.status.now_ms(),
            "started_at_ms": self.status.started_at_ms,
            "storage_type": self.status.storage_type,
            "has_history": self.status.history is not None,
            "offset": broker.log.position,
            "connections": counters.connected_now,
            "sessions": len(broker.sessions),
            "subscriptions": broker.subscriptions.count,
            "messages_in": counters.messages_received,
            "messages_out": counters.messages_sent,
            "bytes_in": counters.bytes_received,
            "bytes_out": counters.bytes_sent,
            "retained": {
                "count": retained.live_count(self.status.now_ms()),
                "bytes": retained.size,
                "version": retained.version,
                "sets": retained.sets,
                "deletes": retained.deletes,
                "expired": retained.expired,
            },
            "refused": {OUTCOMES[i]: retained.refused[i] for i in range(REFUSED_SIZE, len(OUTCOMES))},
            "dropped": {
                "slow": counters.dropped_slow,
                "queue_full": counters.dropped_queue_full,
                "expired": counters.dropped_expired,
                "too_large": counters.dropped_too_large,
                "no_member": counters.dropped_no_member,
            },
            "publishes_refused": counters.publishes_refused,
            "connects_refused": counters.connects_refused,
            "protocol_errors": counters.protocol_errors,
            "history_lag": self.status.history_lag(),
            "history_lag_s": round(self.lag_s, 3),
            "loop_delay_s": round(self.loop_lag.latest_s, 6),
            "problems": {**self.status.problems, **self.status.paused},
            "series": {name: [sample[place] for sample in samples] for place, name in enumerate(FIELDS)},
        }
