"""LMDB tables with the changes of one batch in front of them.

A batch of records is folded in memory and written at its end, in key order. A message that was queued and acknowledged
within one batch therefore never reaches a page, which is the usual life of a message for a connected client.
"""

from lmdb import Transaction, _Database

from holdfast.errors import StoreError
from holdfast.state.formats import CHECKSUM_SIZE, seal, unseal


class Table:
    """One table as this batch sees it. Values go in and come out without their checksum."""

    def __init__(self, txn: "Transaction[bytes]", db: _Database) -> None:
        self.txn = txn
        self.db = db
        self.changes: dict[bytes, bytes | None] = {}
        self.new: set[bytes] = set()  # keys that are in `changes` and were never written

    def get(self, key: bytes) -> bytes | None:
        if key in self.changes:
            return self.changes[key]
        stored = self.txn.get(key, db=self.db)
        if stored is None:
            return None
        try:
            return unseal(key, stored)
        except StoreError:
            return None  # found and reported by whoever checks the table; here it must not stop the fold

    def put(self, key: bytes, value: bytes) -> None:
        self.changes[key] = value

    def put_new(self, key: bytes, value: bytes) -> None:
        """Put under a key that cannot have been used before."""
        self.changes[key] = value
        self.new.add(key)

    def delete(self, key: bytes) -> None:
        if key in self.new:
            self.new.discard(key)
            del self.changes[key]
        else:
            self.changes[key] = None

    def delete_prefix(self, prefix: bytes) -> list[bytes]:
        """Delete every key that starts so; returns the values that were there."""
        self.flush()
        values: list[bytes] = []
        with self.txn.cursor(self.db) as cursor:
            found = cursor.set_range(prefix)
            while found and cursor.key().startswith(prefix):
                values.append(cursor.value()[CHECKSUM_SIZE:])
                cursor.delete()
                found = bool(cursor.key())
        return values

    def flush(self) -> None:
        for key in sorted(self.changes):
            value = self.changes[key]
            if value is None:
                self.txn.delete(key, db=self.db)
            else:
                self.txn.put(key, seal(key, value), db=self.db)
        self.changes.clear()
        self.new.clear()
