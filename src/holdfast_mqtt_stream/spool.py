"""What was received and may now be acknowledged: messages on disk, in order, under offsets of our own.

Each flush is one Arrow file, written beside its place, synced, and renamed into it: a file is whole or not there. Its
name says which offsets it has. The newest one is never deleted, because it says where to go on, and it carries the
ledger: which packet identifiers the broker may send again although their messages are already here.
"""

import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from holdfast.errors import StoreError, UsageError
from holdfast.history.schema import arrow_schema

SUFFIX = ".arrow"
LEDGER = b"holdfast.ledger"


class SpoolFile(NamedTuple):
    start: int
    end: int
    path: str


def digest(topic: str, payload: bytes) -> str:
    return hashlib.blake2b(topic.encode() + b"\0" + payload, digest_size=12).hexdigest()


class Spool:
    """One reader's folder. Offsets are `start <= offset < end`; `end` is where the next message goes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"the spool {folder} cannot be used: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise UsageError(f"another query receives into {folder}: give each its own spool and clientId") from None
        for torn in folder.glob("*.part"):
            torn.unlink()
        files = list_files(folder)
        self.start = files[0].start if files else 0
        self.end = files[-1].end if files else 0
        # packet identifier -> digest, for messages whose acknowledgement the broker may not have seen
        self.ledger: dict[int, str] = _read_ledger(files[-1].path) if files else {}

    def append(self, rows: list[dict[str, Any]], ledger: dict[int, str]) -> None:
        """Make rows durable; on return their messages may be acknowledged."""
        for offset, row in enumerate(rows, self.end):
            row["offset"] = offset
        end = self.end + len(rows)
        schema = arrow_schema().with_metadata({LEDGER: json.dumps(ledger)})
        final = self.folder / f"{self.end:020d}-{end:020d}{SUFFIX}"
        part = final.with_suffix(".part")
        try:
            with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
            _sync(part)
            os.rename(part, final)
            _sync(self.folder)
        except OSError as error:
            raise StoreError(f"the spool {self.folder} cannot be written: {error.strerror or error}") from None
        self.end, self.ledger = end, dict(ledger)

    def release(self, offset: int) -> None:
        """Forget what is below this offset; the newest file stays."""
        for file in list_files(self.folder)[:-1]:
            if file.end <= offset:
                Path(file.path).unlink(missing_ok=True)
                self.start = file.end

    def close(self) -> None:
        os.close(self._lock)


def list_files(folder: Path) -> list[SpoolFile]:
    found = []
    for path in folder.glob(f"*{SUFFIX}"):
        start, _, end = path.stem.partition("-")
        found.append(SpoolFile(int(start), int(end), str(path)))
    return sorted(found)


def read_rows(path: str, start: int, end: int, columns: list[str]) -> pa.RecordBatch | None:
    """The rows of a spool file in a range of offsets. Runs in an executor."""
    schema = pa.schema([arrow_schema().field(name) for name in columns])
    try:
        with pa.memory_map(path) as source:
            table = pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(
            f"spool file {path} cannot be read: {error}; on a cluster all nodes must share the spool's folder"
        ) from None
    first = table["offset"][0].as_py()
    table = table.slice(max(0, start - first), max(0, min(end, first + table.num_rows) - max(start, first)))
    batches = table.select(columns).replace_schema_metadata(None).cast(schema).combine_chunks().to_batches()
    return batches[0] if batches else None


def _read_ledger(path: str) -> dict[int, str]:
    with pa.memory_map(path) as source:
        metadata = pa.ipc.open_file(source).schema.metadata or {}
    return {int(key): value for key, value in json.loads(metadata.get(LEDGER, b"{}")).items()}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
