"""A data folder as a source of retained messages: read while a broker may run on it, written only when none does.

Reading takes the state on disk and what the journal holds beyond it. Writing takes the folder's lock and goes through a
broker without listeners, so that every change is in journal, state and history like any other.
"""

from collections.abc import AsyncIterator, Callable, Container
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from holdfast.broker.message import CLEARED, SET
from holdfast.broker.ports import TopicIndex
from holdfast.broker.record_shape import sound_only
from holdfast.broker.records import PUBLISH, Publishers, decode_publish, publish_outcome, record_kind
from holdfast.errors import UsageError
from holdfast.history.place import Place
from holdfast.journal.reader import Reader
from holdfast.journal.watermark import Watermark
from holdfast.service.live import LiveSource
from holdfast.service.past import Past, answered, wall_clock_ms
from holdfast.service.source import BrokerHandle, RetainedSource, RetainedWriter
from holdfast.service.states import Noted, read_noted
from holdfast.state.store import StateStore
from holdfast.storage.disk_index import DiskIndex
from holdfast.storage.folder import DataFolder

NEWEST = 1 << 62

P = ParamSpec("P")
T = TypeVar("T")
OpenOffline = Callable[[Path], AbstractAsyncContextManager[BrokerHandle]]


class FolderSource(RetainedSource):
    """What was read is kept until something is written or the source is closed. `open_offline` opens a broker on the
    folder and closes it when everything is on disk.
    """

    def __init__(self, root: Path, open_offline: OpenOffline, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.folder = DataFolder(root)
        if not self.folder.state.is_dir():
            raise UsageError(f"{root} is not a data folder, expected one that a broker has used")
        self.open_offline = open_offline
        self.clock = now_ms
        self.store: StateStore | None = None
        self.disk: DiskIndex | None = None
        self.past = Past(self.folder.table, now_ms, requests=self.folder.erasures)
        self.noted = Noted()

    @property
    def history(self) -> Place | None:
        return self.folder.table if self.folder.has_history() else None

    def now_ms(self) -> int:
        return self.clock()

    @property
    def index(self) -> TopicIndex:
        if self.disk is None:
            self.disk = DiskIndex(self.state().retained)
            self.read_journal(self.disk)
        return self.disk

    @property
    def version(self) -> int:
        return NEWEST

    @property
    def last_change(self) -> int:
        index = self.index
        assert isinstance(index, DiskIndex)
        on_disk = self.state().retained.statistics().version
        return max([on_disk, *(offset for offset, _ in index.view.pending.values())])

    def state(self) -> StateStore:
        if self.store is None:
            self.store = StateStore(self.folder.state, readonly=True)
        return self.store

    def read_journal(self, index: DiskIndex) -> None:
        """Bring the index up to the end of the journal."""
        applied = self.state().applied
        try:
            watermark = Watermark(self.folder.journal)
        except (OSError, ValueError):
            return  # a state without a journal is all there is
        limit = watermark.get()
        watermark.close()
        reader = Reader(self.folder.journal, applied)
        publishers = Publishers()
        while records := reader.read(limit):
            for record in sound_only(records):
                if record_kind(record) == PUBLISH and publish_outcome(record) in (SET, CLEARED):
                    message = decode_publish(record, publishers)
                    if publish_outcome(record) == SET:
                        index.put(message, message.topic.split(b"/"))
                    else:
                        index.remove(message.topic, message.offset)
        reader.close()

    def client_ids(self) -> Container[str]:
        return {session.record.client_id for session in self.state().sessions.all()}

    async def listen(self) -> None:
        """What a broker has noted here."""
        self.noted = read_noted(self.folder.heard)

    @property
    def listening_since_ms(self) -> int | None:
        return self.noted.since_ms or None

    def heard_at_ms(self, topic: str) -> int:
        return self.noted.heard.get(topic, 0)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[RetainedWriter]:
        self.close()  # a process has the state open once
        async with self.open_offline(self.folder.root) as handle:
            yield LiveSource(handle)

    async def in_history(self, offset: int) -> None:
        """A broker that was opened for writing has brought the history up to date before it was closed."""

    async def ask(self, question: Callable[Concatenate[Past, P], T], *given: P.args, **named: P.kwargs) -> T:
        self.reads_history = True
        return answered(self.past, question, *given, **named)

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
        self.store = self.disk = None
