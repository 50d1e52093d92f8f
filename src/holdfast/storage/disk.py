"""The broker's disk while it runs: journal, followers and the folder they share, started and stopped together."""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.broker.core import Broker
from holdfast.broker.effects import Effects
from holdfast.errors import StoreError
from holdfast.journal.log import JournalLog
from holdfast.journal.writer import Event
from holdfast.state.environment import MAPPED_MOST
from holdfast.state.store import StateStore
from holdfast.storage.folder import DataFolder
from holdfast.storage.followers import FollowerProcess, Report, history_process, state_process
from holdfast.storage.history_options import HistoryOptions
from holdfast.storage.loading import load_cluster, load_retained, load_sessions, use_disk
from holdfast.storage.progress import StartProgress
from holdfast.storage.recovery import Recovered, recover

log = logging.getLogger("holdfast.storage")

WORRYING = ("stalled", "abandoned", "dropped", "lost")


class DiskStorage:
    """What the followers last said is in `reached` (offsets), `problems` and `paused` (text, by follower)."""

    def __init__(self, root: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.folder = DataFolder(root)
        self.loop = loop
        self.recovered: Recovered | None = None
        self.log: JournalLog | None = None
        self.progress = StartProgress()
        self.followers: list[FollowerProcess] = []
        self.reached: dict[str, int] = {}
        self.problems: dict[str, str] = {}
        self.paused: dict[str, str] = {}
        self.skipped = (0, 0)  # offsets above the first, up to the second, were never given out
        self.on_applied: Callable[[int], None] = lambda offset: None
        self.shares = False  # the offsets are those of a log that others write to too
        self.trims = False  # memory of what was read from disk is given back

    def open(
        self, durability: str, history_filters: list[str] | None, records_live: bool, own_history: bool = True
    ) -> JournalLog:
        """Recover the folder; returns the log that goes on from there. Blocks: call before serving.

        `history_filters` are the topics whose publishes go to the history, None where no history is kept;
        `records_live` says whether those without RETAIN do too, `own_history` that no other folder's go there.
        """
        history = history_filters is not None
        try:
            with self.in_one_sentence():
                recovered = recover(
                    self.folder,
                    history=history,
                    own_history=own_history,
                    schedule=self.loop.call_soon_threadsafe,
                    on_event=self.on_event,
                    progress=self.progress,
                )
        except BaseException:
            self.progress.close()
            raise
        if self.folder.is_open_to_all():
            log.warning("every user can write to the data folder", extra={"folder": str(self.folder.root)})
        self.recovered = recovered
        self.skipped = (recovered.journal.last, recovered.journal.next_offset - 1)
        for loss in recovered.losses:
            log.warning("recovery", extra={"found": loss})
        self.log = JournalLog(
            recovered.journal,
            waits=durability != "none",
            waits_to_deliver=durability == "deliver",
            history_filters=[topic_filter.encode() for topic_filter in history_filters or []],
            records_live=records_live,
        )
        return self.log

    def load_shared(self, broker: Broker, in_memory: bool) -> None:
        """Fill a broker that shares its log with what this node knew of it. The time is that of the log."""
        recovered = self.recovered
        assert recovered is not None
        shared = broker.shared
        assert shared is not None
        position = recovered.store.sessions.cluster().position
        now_ms = position.time_ms if position is not None else 0
        gc.disable()
        try:
            with self.in_one_sentence():
                self.load_topics(broker, now_ms, in_memory)
                load_cluster(broker, recovered.store, self.progress)
        finally:
            gc.enable()
            self.progress.close()
        damaged = recovered.store.retained.damaged + recovered.store.sessions.damaged
        if damaged:
            raise StoreError(
                f"{damaged} values of the state fail their checksum, so this node would not hold what the others hold: "
                f"move {self.folder.state} and {self.folder.journal} away and start it again, it takes its state from "
                f"the log or another node"
            )
        recovered.store.environment.trim()
        broker.retained.tombstones.known_since = broker.log.position
        details = {"retained": broker.retained.count, "sessions": len(broker.sessions), "replayed": recovered.replayed}
        log.info("recovered", extra={**details, "offset": broker.log.position, "sequence": shared.sequence})

    def load_topics(self, broker: Broker, now_ms: int, in_memory: bool) -> None:
        recovered = self.recovered
        assert recovered is not None
        if in_memory:
            load_retained(broker, recovered.store, now_ms, self.progress)
            return
        index = use_disk(broker, recovered.store, now_ms, self.progress)
        self.on_applied = index.view.on_applied
        assert self.log is not None
        # One that does not get on at all holds nobody up: it is reported, and started again.
        self.log.is_state_behind = lambda: index.view.is_full() and "state" not in self.problems
        self.trims = True

    def save_state(self) -> Path:
        """Copy the state as it is on disk to a folder of its own; returns the file. Blocks."""
        recovered = self.recovered
        assert recovered is not None
        return copy_state(recovered.store, self.folder.root)

    @contextmanager
    def in_one_sentence(self) -> Iterator[None]:
        """Whatever stands in the files, also what was written to do harm, ends in one sentence for the operator."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            log.debug("the data folder cannot be used", exc_info=True)
            raise StoreError(
                f"data folder {self.folder.root} cannot be used ({type(error).__name__}: {error}): "
                "`holdfast doctor` says what is wrong with it"
            ) from error

    def load(self, broker: Broker, now_ms: int, in_memory: bool) -> Effects:
        """Fill a broker that uses the log of this folder with the retained set and the sessions of before; returns what
        follows from that.
        """
        recovered = self.recovered
        assert recovered is not None
        gc.disable()  # what is loaded stays: looking for garbage in it again and again only takes time
        try:
            with self.in_one_sentence():
                self.load_topics(broker, now_ms, in_memory)
                effects = load_sessions(broker, recovered.store, now_ms, self.progress)
        finally:
            gc.enable()
            self.progress.close()
        damaged = recovered.store.retained.damaged + recovered.store.sessions.damaged
        if damaged:
            found = f"{damaged} values of the state fail their checksum and are left out; see holdfast doctor"
            log.warning("recovery", extra={"found": found})
        recovered.store.environment.trim()
        broker.retained.tombstones.known_since = broker.log.position
        details = {"retained": broker.retained.count, "sessions": len(broker.sessions), "replayed": recovered.replayed}
        log.info("recovered", extra={**details, "offset": broker.log.position})
        return effects

    def start(self, history: HistoryOptions | None, follow: bool = True) -> None:
        """Start the journal, and the followers unless they are to wait for `follow`; without options there is none for
        the history.
        """
        assert self.recovered is not None
        self.recovered.journal.start()
        root = self.folder.root
        self.followers = [state_process(root, self.on_report)]
        if history is not None:
            self.followers.append(history_process(root, self.on_report, history))
        if follow:
            self.follow()

    def follow(self) -> None:
        for follower in self.followers:
            follower.start()

    def tick(self) -> None:
        assert self.recovered is not None
        assert self.log is not None
        if not self.shares:
            self.recovered.journal.reserve(self.log.position + 1)
        if self.trims:
            self.loop.run_in_executor(None, self.recovered.store.environment.trim, MAPPED_MOST)

    async def stop(self, within_s: float | None) -> None:
        recovered = self.recovered
        if recovered is None or self.log is None:
            return
        await self.loop.run_in_executor(None, recovered.journal.close, self.log.position + 1)
        await asyncio.gather(*(follower.stop(within_s) for follower in self.followers))
        recovered.store.close()
        recovered.lock.release()

    def on_event(self, event: Event) -> None:
        assert self.recovered is not None
        if self.log is not None:
            self.log.healthy = self.recovered.journal.healthy
        level = logging.ERROR if event.kind in WORRYING else logging.INFO
        log.log(level, "journal %s", event.kind, extra={"detail": event.message})

    def on_report(self, name: str, report: Report) -> None:
        assert self.recovered is not None
        if report.passed is not None:
            self.recovered.journal.passed(name, report.passed)
        if report.at is not None:
            self.reached[name] = report.at
            if self.problems.pop(name, None):
                log.info("caught up", extra={"part": name})
            if name == "state":
                self.on_applied(report.at)
        if report.problem:
            self.problems[name] = report.problem
            log.error("problem", extra={"part": name, "detail": report.problem})
        if report.paused:
            self.paused[name] = report.paused
            log.warning("paused", extra={"part": name, "detail": report.paused})
        elif report.paused is not None and name in self.paused:
            del self.paused[name]
            log.info("there is room again", extra={"part": name})
        if report.seal:
            self.recovered.journal.seal()
        if report.loss:
            log.error("loss", extra={"part": name, "detail": report.loss})
        if report.note:
            log.info("note", extra={"part": name, "detail": report.note})


def copy_state(store: StateStore, root: Path) -> Path:
    """Copy a state as it is on disk to a folder of its own below `root`; returns the file."""
    folder = root / "copy"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "data.mdb"
    path.unlink(missing_ok=True)
    store.environment.env.copy(str(folder), compact=True)
    return path
