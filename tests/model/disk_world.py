"""Worlds whose broker keeps its state: what its log gathers is applied to LMDB, and a restart starts from there.

The journal between the two is left out: it hands records on in order, which has tests of its own. With
`in_memory=False` the broker reads retained messages from the disk, as with `disc_only`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from core_driver import ListLog
from holdfast.broker.core import Broker
from holdfast.broker.effects import Effects
from holdfast.broker.retained import BUCKET_MS
from holdfast.broker.settings import Settings
from holdfast.state.store import StateStore
from holdfast.storage.disk_index import DiskIndex
from holdfast.storage.loading import load_retained, load_sessions, use_disk
from model.steps import Plan
from model.world import LoggedWorld

APPLY_EVERY = 40  # calls; LMDB lags behind the broker by up to this much


class DiskWorld(LoggedWorld):
    can_restart = True
    in_memory = True

    def __init__(self, plan: Plan, settings: Settings | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-model-"))
        self.store = StateStore(self.folder / "state")
        self.calls = 0
        super().__init__(plan, settings)

    def make_broker(self) -> Broker:
        broker = super().make_broker()
        if not self.in_memory:
            self.serve_from_disk(broker)
        return broker

    def serve_from_disk(self, broker: Broker) -> None:
        broker.retained.index = DiskIndex(self.store.retained)
        broker.retained.in_memory = False

    def carry_out(self, effects: Effects) -> None:
        super().carry_out(effects)
        self.calls += 1
        if self.calls % APPLY_EVERY == 0:
            self.apply()

    def apply(self) -> None:
        """The follower catches up."""
        records = self.log.drain()
        if records:
            applied = self.store.apply(records)
            index = self.broker.retained.index
            if isinstance(index, DiskIndex):
                index.view.on_applied(applied)

    def restart(self) -> None:
        self.apply()
        self.log = ListLog(self.log.position)
        self.broker = Broker(self.settings(), "auto-")
        self.broker.use_log(self.log)
        self.load()
        self.carry_out(load_sessions(self.broker, self.store, self.now_ms))
        self.broker.retained.tombstones.known_since = self.log.position

    def load(self) -> None:
        load_retained(self.broker, self.store, self.now_ms)

    def close(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class DiskOnlyWorld(DiskWorld):
    in_memory = False

    def load(self) -> None:
        use_disk(self.broker, self.store, self.now_ms)

    def holds(self, topic: str) -> bool:
        """On disk an expired message lies until it is purged; it is gone when it is no longer waited for."""
        message = self.broker.retained.index.get(topic.encode())
        if message is None or not message.expired(self.now_ms):
            return message is not None
        bucket = self.broker.retained.expiry.buckets.get(message.expires_at_ms // BUCKET_MS, {})
        return message.topic_field in bucket

    def leaks(self) -> list[str]:
        broker = self.broker
        return [
            f"session {name} with {len(s.snapshots)} snapshots" for name, s in broker.sessions.items() if s.snapshots
        ]
