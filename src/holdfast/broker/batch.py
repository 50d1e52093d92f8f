"""The records of one call on their way to the log: one buffer, each record with its length in front.

A log keeps such a buffer as it is, or takes it apart with `split`.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le

from holdfast.errors import UsageError

LENGTH_SIZE: Final = 4
LARGE: Final = 1 << 20  # a buffer that has grown beyond this is not used again


@final
class Batch:
    """Invariants: offsets grow from one record to the next; `first` and `last` are those of the outermost records."""

    def __init__(self) -> None:
        self.writer = BytesWriter()
        self.count = 0
        self.first = 0
        self.last = 0

    def begin(self, offset: int, size: int) -> BytesWriter:
        """Begin a record of `size` bytes; returns what they are to be written to, all of them, next."""
        if offset <= self.last:  # nobody would ever read it
            raise UsageError(f"a record has offset {offset}, expected more than {self.last}")
        if self.count == 0:
            self.first = offset
        self.last = offset
        self.count += 1
        writer = self.writer
        write_i32_le(writer, size)
        return writer

    def add(self, record: bytes) -> None:
        self.begin(read_i64_le(record, 2), len(record)).write(record)

    def take(self) -> bytes:
        """Return the records and be empty again."""
        data = self.writer.getvalue()
        self.clear()
        return data

    def clear(self) -> None:
        if len(self.writer) > LARGE:
            self.writer = BytesWriter()
        else:
            self.writer.truncate(0)
        self.count = 0
        self.first = 0
        self.last = 0


def split(data: bytes, position: int = 0) -> list[bytes]:
    """Return the records of a batch, of those from `position` on."""
    records: list[bytes] = []
    end = len(data)
    while position < end:
        start = position + LENGTH_SIZE
        position = start + read_i32_le(data, position)
        records.append(data[start:position])
    return records
