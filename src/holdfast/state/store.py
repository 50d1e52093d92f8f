"""What the journal adds up to: the retained set and the persistent sessions as of the applied offset."""

from collections.abc import Iterable
from pathlib import Path

from lmdb import Transaction

from holdfast.errors import StoreError
from holdfast.state.environment import APPLIED_KEY, FIRST_MAP_SIZE, Environment
from holdfast.state.fold import Fold, count_again
from holdfast.state.retained import Retained
from holdfast.state.sessions import Sessions
from holdfast.state.tables import is_long_key, key_topic, unseal


class StateStore:
    """Open on a folder; apply records in offset order, from one process at a time; read from any number."""

    def __init__(self, folder: Path, map_size: int = FIRST_MAP_SIZE, readonly: bool = False) -> None:
        self.environment = Environment(folder, map_size, readonly)
        self.retained = Retained(self.environment)
        self.sessions = Sessions(self.environment)

    @property
    def applied(self) -> int:
        return self.environment.applied

    def apply(self, records: list[bytes], upto: int = 0) -> int:
        """Folds the records into the state, all of them or none; returns the applied offset, then at least `upto`.

        Records at or below the offset that is applied already are left out, so the same ones may come twice.
        """
        return self.environment.write(lambda txn: self.fold(txn, records, upto))

    def fill(self, records: list[bytes]) -> None:
        """Folds records in without touching the applied offset: for rebuilding a state from something older."""
        self.environment.write(lambda txn: self.fold_only(txn, records))

    def fold_only(self, txn: "Transaction[bytes]", records: list[bytes]) -> None:
        fold = Fold(self.environment, txn)
        fold.apply_all(records, 0)
        fold.finish(self.environment.number(txn, APPLIED_KEY))

    def fold(self, txn: "Transaction[bytes]", records: list[bytes], upto: int) -> int:
        applied = self.environment.number(txn, APPLIED_KEY)
        fold = Fold(self.environment, txn)
        applied = max(fold.apply_all(records, applied), upto)
        fold.finish(applied)
        return applied

    def drop_damaged(self) -> tuple[list[bytes], list[str]]:
        """Deletes every value that fails its checksum; returns the topics of retained messages and names of other
        entries.
        """
        return self.environment.write(self.drop_damaged_in)

    def drop_damaged_in(self, txn: "Transaction[bytes]") -> tuple[list[bytes], list[str]]:
        topics: list[bytes] = []
        others: list[str] = []
        for name, db in self.environment.db.items():
            with txn.cursor(db) as cursor:
                found = cursor.first()
                while found:
                    key, stored = cursor.item()
                    try:
                        unseal(key, stored)
                        found = cursor.next()
                    except StoreError:
                        if name == "retained" and not is_long_key(key):
                            topics.append(key_topic(key))
                        else:
                            others.append(f"{key[:40]!r} of table {name}")
                        cursor.delete()
                        found = bool(cursor.key())
        if topics:
            count_again(txn, self.environment)
        return topics, others

    def close(self) -> None:
        self.environment.close()


def apply_all(store: StateStore, records: Iterable[bytes], size: int = 20_000) -> None:
    """Applies any number of records in batches."""
    batch: list[bytes] = []
    for record in records:
        batch.append(record)
        if len(batch) >= size:
            store.apply(batch)
            batch = []
    if batch:
        store.apply(batch)
