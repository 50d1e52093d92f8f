"""The LMDB environment: opening, growing, and the two numbers that everything else hangs on: format, applied offset.

One process has one environment open. Others may have theirs on the same folder: LMDB lets one write and all read.
"""

import ctypes
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import lmdb
from lmdb import Transaction, _Database

from holdfast.errors import StoreError
from holdfast.state.tables import FORMAT, seal, unseal

FIRST_MAP_SIZE = 1 << 30
TABLES = (
    "meta",
    "retained",
    "expiry",
    "sessions",
    "subscriptions",
    "queue",
    "received",
    "wills",
    "messages",
    "refs",
    "snapshots",
    "attached",
    "cluster",
)
FORMAT_KEY = b"format"
APPLIED_KEY = b"applied"

T = TypeVar("T")
MAPS = Path("/proc/self/maps")
STATM = Path("/proc/self/statm")
MAPPED_MOST = 128 << 20  # pages of the state that a process keeps between two looks
MADV_DONTNEED = 4


class Environment:
    """Invariant: the applied offset changes only in the transaction that applies the records up to it."""

    def __init__(
        self, folder: Path, map_size: int = FIRST_MAP_SIZE, readonly: bool = False, locked: bool = True
    ) -> None:
        """Opens the environment, or creates it unless it is only to be read.

        A reader enters itself into LMDB's lock file. With `locked` false it does not and changes no byte: that is for
        files that nobody writes. Raises StoreError when the files are not ours or cannot be opened.
        """
        self.folder = folder
        if not readonly:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = folder / "data.mdb"
        size = max(map_size, data.stat().st_size if data.exists() else 0)
        try:
            self.env = lmdb.open(
                str(folder),
                map_size=size,
                max_dbs=len(TABLES),
                mode=0o600,
                readonly=readonly,
                readahead=False,
                lock=locked,
            )
            self.db: dict[str, _Database] = {}
            for name in TABLES:
                with suppress(lmdb.NotFoundError):  # only to be read, and written before this table was thought of
                    self.db[name] = self.env.open_db(name.encode(), create=not readonly)
            self.check_format(readonly)
        except lmdb.Error as error:
            raise StoreError(f"state in {folder} cannot be opened: {error}") from error

    def check_format(self, readonly: bool) -> None:
        found = self.read(lambda txn: self.number(txn, FORMAT_KEY))
        if found == 0 and not readonly:
            self.write(lambda txn: self.set_number(txn, FORMAT_KEY, FORMAT))
        elif found > FORMAT:
            raise StoreError(f"state in {self.folder} has format {found}, this version reads up to {FORMAT}")

    def number(self, txn: "Transaction[bytes]", key: bytes) -> int:
        if "meta" not in self.db:
            return 0
        stored = txn.get(key, db=self.db["meta"])
        return 0 if stored is None else int.from_bytes(unseal(key, stored), "little")

    def set_number(self, txn: "Transaction[bytes]", key: bytes, value: int) -> None:
        txn.put(key, seal(key, value.to_bytes(8, "little")), db=self.db["meta"])

    @property
    def applied(self) -> int:
        """The offset up to which records are part of this state."""
        return self.read(lambda txn: self.number(txn, APPLIED_KEY))

    def entries(self, table: str) -> int:
        """Returns how many entries a table has, damaged ones included; none when there is no such table."""
        if table not in self.db:
            return 0
        count: int = self.read(lambda txn: txn.stat(self.db[table])["entries"])
        return count

    def read(self, action: "Callable[[Transaction[bytes]], T]") -> T:
        """Runs `action` in a transaction that sees one version of everything, and returns its result."""
        for _ in range(3):
            try:
                with self.env.begin() as txn:
                    return action(txn)
            except lmdb.MapResizedError:  # another process made the map larger
                self.env.set_mapsize(0)
        raise StoreError(f"state in {self.folder} grows faster than it can be read")

    def write(self, action: "Callable[[Transaction[bytes]], T]") -> T:
        """Runs `action` in a transaction that happens as a whole or not at all, and returns its result.

        The map is enlarged when it is full, and `action` runs again from the start.
        """
        while True:
            try:
                with self.env.begin(write=True) as txn:
                    return action(txn)
            except lmdb.MapFullError:
                self.env.set_mapsize(self.env.info()["map_size"] * 2)
            except lmdb.MapResizedError:
                self.env.set_mapsize(0)
            except lmdb.Error as error:
                raise StoreError(f"state in {self.folder} cannot be written: {error}") from error

    def trim(self, above: int = 0) -> int:
        """Gives back the memory of pages that were read, and returns how many bytes; nothing while the process has no
        more than `above` bytes of files in memory.

        Call now and then, from a thread.
        """
        return drop_mapped_pages(self.folder / "data.mdb") if mapped_bytes() > above else 0

    def close(self) -> None:
        self.env.close()


def mapped_bytes() -> int:
    """Returns how much of this process's memory is pages of files; nothing is known of that but on Linux."""
    try:
        return int(STATM.read_text().split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0


def drop_mapped_pages(path: Path) -> int:
    """Drops this process's claim to the pages of a mapped file, and returns how many bytes of address space that was.

    Pages of the LMDB file that were read count as the process's until somebody says otherwise. They stay in the
    system's page cache, and a later read gets them back. Takes a while: not on the loop. Linux only: elsewhere nothing
    happens, which costs nothing but a larger number in `top`.
    """
    try:
        lines = MAPS.read_text().splitlines()
    except OSError:
        return 0
    wanted = os.path.realpath(path)
    size = 0
    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] == wanted and "s" in fields[1]:
            start, end = (int(part, 16) for part in fields[0].split("-"))
            if ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_DONTNEED) == 0:
                size += end - start
    return size
