"""Snapshots that have not ended, on disk: what they began from, what they have sent, and what they have to make up for.

All of it is in one table. A snapshot is a row under its session and its name; rows with longer keys belong to it. What
was sent is kept as the offsets of the messages, one row for each batch.
"""

import struct
from dataclasses import dataclass, field

from lmdb import Transaction, _Database

from holdfast.state.formats import NUMBER, PAIR
from holdfast.state.tables import Table

COPIED = b"c"
MISSED = b"m"
VERSION = struct.Struct("<Q")


@dataclass
class StoredSnapshot:
    snapshot_id: int
    version: int
    topic_filter: bytes
    copied: set[int] = field(default_factory=set)
    missed: list[bytes] = field(default_factory=list)

    def take(self, kind: bytes, value: bytes) -> None:
        """Take in a row that belongs to the snapshot."""
        if kind == COPIED:
            self.copied.update(struct.unpack(f"<{len(value) // 8}Q", value))
        elif kind == MISSED:
            self.missed.append(value)

    @classmethod
    def decode(cls, snapshot_id: int, value: bytes) -> "StoredSnapshot":
        return cls(snapshot_id, VERSION.unpack_from(value)[0], value[VERSION.size :])


class SnapshotTable:
    """The table as one batch sees it. A snapshot that begins and ends within a batch never reaches a page."""

    def __init__(self, txn: "Transaction[bytes]", db: _Database) -> None:
        self.table = Table(txn, db)
        self.copied: dict[bytes, list[int]] = {}
        self.last: dict[bytes, int] = {}  # offsets of the records that said so, which make keys that differ
        self.begun: dict[bytes, list[bytes]] = {}  # in this batch, with the keys of their other rows

    def begin(self, session_id: int, snapshot_id: int, version: int, topic_filter: bytes) -> None:
        key = PAIR.pack(session_id, snapshot_id)
        self.table.put_new(key, VERSION.pack(version) + topic_filter)
        self.begun[key] = []

    def on_copied(self, session_id: int, snapshot_id: int, offsets: list[int], at: int) -> None:
        key = PAIR.pack(session_id, snapshot_id)
        known = self.copied.get(key)
        if known is None:
            if self.table.get(key) is None:
                return
            self.copied[key] = known = []
        known += offsets
        self.last[key] = at

    def on_missed(self, session_id: int, snapshot_id: int, topic: bytes, at: int) -> None:
        key = PAIR.pack(session_id, snapshot_id)
        row = key + MISSED + NUMBER.pack(at)
        if key in self.begun:
            self.begun[key].append(row)
        elif self.table.get(key) is None:
            return
        self.table.put_new(row, topic)

    def end(self, session_id: int, snapshot_id: int) -> None:
        key = PAIR.pack(session_id, snapshot_id)
        self.copied.pop(key, None)
        rows = self.begun.pop(key, None)
        if rows is None:
            self.table.delete_prefix(key)
            return
        for row in (key, *rows):
            self.table.delete(row)

    def end_all(self, session_id: int) -> None:
        prefix = NUMBER.pack(session_id)
        for key in [key for key in self.copied if key.startswith(prefix)]:
            del self.copied[key]
        self.begun = {key: rows for key, rows in self.begun.items() if not key.startswith(prefix)}
        self.table.delete_prefix(prefix)

    def flush(self) -> None:
        for key, offsets in self.copied.items():
            self.table.put_new(key + COPIED + NUMBER.pack(self.last[key]), struct.pack(f"<{len(offsets)}Q", *offsets))
        self.copied.clear()
        self.begun.clear()
        self.table.flush()
