"""Erlang's external term format and the log that Mnesia writes its backups to, as far as an EMQX export needs them.

Atoms become `Atom`, lists and tuples lists and tuples, binaries bytes, maps dictionaries where their keys allow it.
What no backup of messages holds (functions, ports, references, process ids) is read over. Nothing is taken on trust: a
length that is longer than the data, or nesting without end, is a problem with a name.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from typing import IO, Any, Final

DEPTH_MOST: Final = 100
TERM_MOST: Final = 256 << 20  # bytes of one term; an MQTT packet has no more

# disk_log with the format `internal`: the log's own header, then items of a size, a mark, and the term. Large ones have
# a digest of their size in front, unless they were written by a very old Erlang, which has another mark.
LOG_MAGIC: Final = b"\x01\x02\x03\x04"
ITEM_MARK: Final = b"\x62\x57\x4c\x41"
OLD_ITEM_MARK: Final = b"\x0c\x21\x2c\x37"
WITH_DIGEST_FROM: Final = 65_528
DIGEST_SIZE: Final = 16

VERSION: Final = 131
COMPRESSED: Final = 80


class TermProblem(Exception):
    """The bytes are not a term, or not a log of terms."""


class Atom(str):
    __slots__ = ()


class Opaque:
    """A term of a kind that is not looked into."""


def decode_term(data: bytes) -> Any:
    """Raises TermProblem."""
    if len(data) < 2 or data[0] != VERSION:
        raise TermProblem("a term does not begin with its version")
    try:
        if data[1] == COMPRESSED:
            data = decompressed(data)
            return TermReader(data, 0).term(0)
        return TermReader(data, 1).term(0)
    except (struct.error, IndexError, OverflowError, UnicodeDecodeError, ValueError, zlib.error) as error:
        raise TermProblem(f"a term is cut off or damaged ({error})") from None


def decompressed(data: bytes) -> bytes:
    size: int = struct.unpack_from(">I", data, 2)[0]
    if size > TERM_MOST:
        raise TermProblem(f"a term would have {size} bytes, expected no more than {TERM_MOST}")
    whole = zlib.decompressobj().decompress(data[6:], size + 1)
    if len(whole) != size:
        raise TermProblem(f"a compressed term has {len(whole)} bytes, expected {size}")
    return whole


class TermReader:
    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position

    def take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.data):
            raise TermProblem(f"a term needs {size} bytes and {len(self.data) - self.position} are left")
        part = self.data[self.position : end]
        self.position = end
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def term(self, depth: int) -> Any:
        if depth > DEPTH_MOST:
            raise TermProblem(f"terms are nested more than {DEPTH_MOST} deep")
        tag = self.number(1)
        if tag in READ_BYTES:
            size, make = READ_BYTES[tag]
            return make(self.take(self.number(size)))
        if tag == 97:  # SMALL_INTEGER
            return self.number(1)
        if tag == 98:  # INTEGER
            return int.from_bytes(self.take(4), "big", signed=True)
        if tag in (110, 111):  # SMALL_BIG, LARGE_BIG
            size = self.number(1 if tag == 110 else 4)
            negative = self.number(1)
            value = int.from_bytes(self.take(size), "little")
            return -value if negative else value
        if tag == 70:  # NEW_FLOAT
            value = struct.unpack(">d", self.take(8))[0]
            return 0.0 if math.isnan(value) else value
        if tag == 106:  # NIL
            return []
        return self.compound(tag, depth)

    def compound(self, tag: int, depth: int) -> Any:
        if tag in (104, 105):  # SMALL_TUPLE, LARGE_TUPLE
            return tuple(self.terms(self.number(1 if tag == 104 else 4), depth))
        if tag == 108:  # LIST
            items = self.terms(self.number(4), depth)
            tail = self.term(depth + 1)
            return items if tail == [] else [*items, tail]
        if tag == 116:  # MAP
            pairs = self.terms(2 * self.number(4), depth)
            return {key_of(key): value for key, value in zip(pairs[::2], pairs[1::2], strict=True)}
        if tag == 77:  # BIT_BINARY
            size = self.number(4)
            self.number(1)
            return self.take(size)
        if tag in (88, 103):  # NEW_PID, PID
            self.term(depth + 1)
            self.take(12 if tag == 88 else 9)
            return Opaque()
        if tag in (90, 114):  # NEWER_REFERENCE, NEW_REFERENCE
            words = self.number(2)
            self.term(depth + 1)
            self.take((4 if tag == 90 else 1) + 4 * words)
            return Opaque()
        if tag in (89, 120, 102):  # ports
            self.term(depth + 1)
            self.take({89: 8, 120: 12, 102: 5}[tag])
            return Opaque()
        if tag == 112:  # NEW_FUN: its size counts itself
            self.take(max(self.number(4) - 4, 0))
            return Opaque()
        raise TermProblem(f"a term has the unknown tag {tag}")

    def terms(self, count: int, depth: int) -> list[Any]:
        if count > len(self.data) - self.position:  # each takes a byte at least
            raise TermProblem(f"a term has {count} parts and {len(self.data) - self.position} bytes are left")
        return [self.term(depth + 1) for _ in range(count)]


def key_of(key: Any) -> Any:
    """A key of a map that Python can look up."""
    return key if isinstance(key, str | bytes | int | float) else repr(key)


def atom_of(data: bytes) -> Atom:
    return Atom(data.decode("utf-8", "replace"))


def latin_atom_of(data: bytes) -> Atom:
    return Atom(data.decode("latin-1"))


def list_of(data: bytes) -> list[int]:
    """STRING_EXT: a list of small integers."""
    return list(data)


def itself(data: bytes) -> bytes:
    return data


# Tag, bytes of its length, and what the bytes behind that become.
READ_BYTES: Final = {
    100: (2, latin_atom_of),
    115: (1, latin_atom_of),
    118: (2, atom_of),
    119: (1, atom_of),
    107: (2, list_of),
    109: (4, itself),
}


def read_log(file: IO[bytes]) -> Iterator[Any]:
    """The terms of a log, one by one. Raises TermProblem where it cannot go on; what came before is whole."""
    if file.read(4) != LOG_MAGIC or len(file.read(4)) < 4:
        raise TermProblem("this is no log of Erlang's")
    while True:
        head = file.read(8)
        if not head:
            return
        if len(head) < 8:
            raise TermProblem("the log is cut off")
        size = int.from_bytes(head[:4], "big")
        mark = head[4:]
        if mark not in (ITEM_MARK, OLD_ITEM_MARK):
            raise TermProblem("an item of the log has no mark: it is damaged from there on")
        if size > TERM_MOST:
            raise TermProblem(f"an item of the log would have {size} bytes, expected no more than {TERM_MOST}")
        if mark == ITEM_MARK and size >= WITH_DIGEST_FROM:
            file.read(DIGEST_SIZE)
        data = file.read(size)
        if len(data) < size:
            raise TermProblem("the log is cut off")
        yield decode_term(data)
