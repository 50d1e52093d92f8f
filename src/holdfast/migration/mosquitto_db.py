"""`mosquitto.db`, versions 2 to 6: a magic, a version, then chunks of a kind and a length.

    15 bytes  00 B5 00 "mosquitto db"
     4 bytes  checksum, which mosquitto neither writes nor reads
     4 bytes  version
    chunks    versions 2 to 4: kind u16, length u32, fields one by one
              versions 5 and 6: kind u32, length u32, a C structure as it lay in memory, then texts

Numbers of 16 and 32 bits are in network order, those of 64 bits in that of the machine that wrote the file. A
message's number only has to be equal to itself, so it is taken as it is; a time is read in the order in which it makes
sense. On a machine of 32 bits some structures are shorter by their padding: the length of the chunk says which.

A chunk that cannot be read costs itself. When not even the next header makes sense, the next whole chunk is looked for:
the lengths inside a chunk have to add up to its own, so what only looks like one is not taken for one.
"""

import mmap
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.errors import ProtocolError, UsageError
from holdfast.migration.inventory import FoundMessage, Inventory
from holdfast.migration.mosquitto_store import (
    FOREVER_S,
    ClientMessageRow,
    ClientRow,
    MosquittoStore,
    SubscriptionRow,
    assemble,
    forwarded,
    is_text,
)

MAGIC: Final = b"\x00\xb5\x00mosquitto db"
HEADER_SIZE: Final = 23
VERSIONS: Final = range(2, 7)

CONFIG: Final = 1
MESSAGE: Final = 2
CLIENT_MESSAGE: Final = 3
RETAINED: Final = 4
SUBSCRIPTION: Final = 5
CLIENT: Final = 6

OLD_HEADER: Final = struct.Struct("!HI")
NEW_HEADER: Final = struct.Struct("!II")
OLD_CANDIDATE: Final = re.compile(rb"\x00[\x01-\x06]", re.DOTALL)
NEW_CANDIDATE: Final = re.compile(rb"\x00\x00\x00[\x01-\x06]", re.DOTALL)

MESSAGE_HEAD: Final = struct.Struct("!8s8sIHHHHHBB")
CLIENT_MESSAGE_HEAD: Final = struct.Struct("!8sHHBBBB")
SUBSCRIPTION_HEAD: Final = struct.Struct("!IHHBB2x")
CLIENT_HEAD_5: Final = struct.Struct("!8sIHH")
CLIENT_HEAD_6: Final = struct.Struct("!8sIHHHH")
CLIENT_SIZES_6: Final = (20, 24)  # of the structure: 32 bits, 64 bits
ID_SIZE: Final = 8

# Seconds since 1970 that a file may name: until the year 36812. In the wrong byte order they are far more.
LATEST_S: Final = 1 << 40
BLOCK: Final = 1 << 20
NAMED_AT_MOST: Final = 20

Bytes = bytes | mmap.mmap


class Damaged(Exception):
    """A chunk is not what its kind promises."""


def read_file(path: Path, owner: str | None, now_ms: int) -> Inventory:
    """Read a file. Raises UsageError where there is nothing to read at all."""
    found = Inventory(f"mosquitto's {path.name}")
    beside = path.with_name(f"{path.name}.new")
    if beside.exists():
        found.notes.append(f"{beside} is there too: a save that was not finished; {path.name} is the older, whole one")
    try:
        with path.open("rb") as file:
            if not file.seek(0, 2):
                raise UsageError(f"{path} is empty: there is nothing to take")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                read(data, found, owner, now_ms, str(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    return found


def read(data: Bytes, found: Inventory, owner: str | None, now_ms: int, name: str) -> None:
    if data[: len(MAGIC)] != MAGIC:
        if is_all_zero(data):
            raise UsageError(
                f"{name} is {len(data)} bytes of zeros: the disk lost it when the power went; there is nothing to "
                "take. A live broker, or a backup of the file, still has the messages"
            )
        raise UsageError(f"{name} does not begin as mosquitto.db does")
    if len(data) < HEADER_SIZE:
        raise UsageError(f"{name} has {len(data)} bytes, expected at least {HEADER_SIZE}")
    version: int = struct.unpack_from("!I", data, len(MAGIC) + 4)[0]
    if version not in VERSIONS:
        raise UsageError(f"{name} has version {version}, expected {VERSIONS[0]} to {VERSIONS[-1]}")
    store = MosquittoStore()
    with memoryview(data) as view:
        chunks = Chunks(data, view, version)
        for kind, body in chunks:
            chunks.format.take(store, kind, body)
    found.damage += chunks.told()
    if chunks.format.stripped:
        found.notes.append(
            f"{chunks.format.stripped} messages come without their properties, which the standard does not allow "
            f"({chunks.format.first_stripped})"
        )
    assemble(store, found, owner, now_ms)


def is_all_zero(data: Bytes) -> bool:
    return all(block.count(0) == len(block) for block in (data[at : at + BLOCK] for at in range(0, len(data), BLOCK)))


class Chunks:
    """Iterates over (kind, body) of what is whole; what is not is in `damage` afterwards. `view` is of `data`: to look
    at a place copies nothing, however many places there are to look at.
    """

    def __init__(self, data: Bytes, view: memoryview, version: int) -> None:
        self.data = data
        self.view = view
        self.end = len(data)
        self.format: Format = OldFormat(version) if version < 5 else NewFormat(version)
        self.damage: list[str] = []
        self.damaged = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        position = HEADER_SIZE
        size = self.format.header.size
        while position < self.end:
            header = self.header(position)
            if header is None:
                position = self.search(position)
                continue
            kind, length = header
            body_at, next_at = position + size, position + size + length
            problem = self.problem(kind, body_at, length)
            if not problem:
                yield kind, bytes(self.data[body_at:next_at])
            elif kind != CONFIG and self.is_boundary(next_at):
                self.note(f"chunk of kind {kind} at byte {position} is left out: {problem}")
            else:
                position = self.search(position)
                continue
            position = next_at

    def header(self, position: int) -> tuple[int, int] | None:
        """Kind and length of the chunk there, if it can be one and fits into the file."""
        header = self.format.header
        if position + header.size > self.end:
            return None
        kind, length = header.unpack_from(self.data, position)
        return (kind, length) if CONFIG <= kind <= CLIENT and position + header.size + length <= self.end else None

    def is_boundary(self, position: int) -> bool:
        return position == self.end or self.header(position) is not None

    def problem(self, kind: int, body_at: int, length: int) -> str:
        """What is wrong with a chunk, found without reading more of it than its texts."""
        if kind == CONFIG:
            return "" if length in self.format.config_sizes else f"it has {length} bytes"
        try:
            self.format.check(kind, self.view[body_at : body_at + length], length)
        except (Damaged, struct.error, IndexError) as error:
            return str(error)
        return ""

    def search(self, position: int) -> int:
        """The next place where a whole chunk stands, or the end."""
        for match in self.format.candidate.finditer(self.data, position + 1):
            header = self.header(match.start())
            if header is None or header[0] == CONFIG:
                continue
            body_at = match.start() + self.format.header.size
            if not self.problem(header[0], body_at, header[1]) and self.is_boundary(body_at + header[1]):
                self.note(f"bytes {position} to {match.start() - 1} cannot be read")
                return match.start()
        self.note(
            f"bytes {position} to {self.end - 1}, the end of the file, cannot be read: it was cut off or overwritten"
        )
        return self.end

    def note(self, line: str) -> None:
        self.damaged += 1
        if len(self.damage) < NAMED_AT_MOST:
            self.damage.append(line)

    def told(self) -> list[str]:
        more = self.damaged - len(self.damage)
        return [*self.damage, f"and {more} more places"] if more else self.damage


class Format:
    """How one version writes its chunks. `check` raises Damaged where parts and length do not fit together."""

    header: struct.Struct
    candidate: re.Pattern[bytes]
    config_sizes: tuple[int, ...]

    def __init__(self, version: int) -> None:
        self.version = version
        self.stripped = 0
        self.first_stripped = ""

    def check(self, kind: int, head: memoryview, length: int) -> None:
        raise NotImplementedError

    def take(self, store: MosquittoStore, kind: int, body: bytes) -> None:
        raise NotImplementedError

    def properties(self, block: bytes) -> tuple[bytes, tuple[int, ...]]:
        try:
            return forwarded(block)
        except ProtocolError as error:
            self.stripped += 1
            self.first_stripped = self.first_stripped or str(error)
            return b"", ()


class NewFormat(Format):
    """Versions 5 and 6."""

    header = NEW_HEADER
    candidate = NEW_CANDIDATE
    config_sizes = (12, 16)
    stale_name = b""

    def check(self, kind: int, head: memoryview, length: int) -> None:
        expect = self.sizes(kind, head)
        if length not in expect and not (kind in (MESSAGE, CLIENT_MESSAGE) and length > expect[0]):
            raise Damaged(f"its parts have {expect[0]} bytes and it has {length}")

    def sizes(self, kind: int, head: memoryview) -> tuple[int, ...]:
        """What the parts of a chunk add up to; properties may follow those of a message."""
        if kind == MESSAGE:
            fields = MESSAGE_HEAD.unpack_from(head)
            if fields[6] == 0:
                raise Damaged("it has no topic")
            return (MESSAGE_HEAD.size + sum(fields[i] for i in (2, 4, 5, 6)),)
        if kind == CLIENT_MESSAGE:
            return (CLIENT_MESSAGE_HEAD.size + CLIENT_MESSAGE_HEAD.unpack_from(head)[2],)
        if kind == RETAINED:
            return (ID_SIZE,)
        if kind == SUBSCRIPTION:
            fields = SUBSCRIPTION_HEAD.unpack_from(head)
            return (SUBSCRIPTION_HEAD.size + fields[1] + fields[2],)
        if self.version == 5:
            return (CLIENT_HEAD_5.size + CLIENT_HEAD_5.unpack_from(head)[3],)
        fields = CLIENT_HEAD_6.unpack_from(head)
        return tuple(size + fields[3] + fields[5] for size in CLIENT_SIZES_6)

    def take(self, store: MosquittoStore, kind: int, body: bytes) -> None:
        if kind == MESSAGE:
            self.take_message(store, body)
        elif kind == CLIENT_MESSAGE:
            key, packet_id, id_size, qos, state, retain_dup, direction = CLIENT_MESSAGE_HEAD.unpack_from(body)
            at = CLIENT_MESSAGE_HEAD.size
            _, identifiers = self.properties(body[at + id_size :])
            retain = retain_dup & 0xF0 != 0
            store.client_messages.append(
                ClientMessageRow(body[at : at + id_size], key, packet_id, qos, retain, direction, state, identifiers)
            )
        elif kind == RETAINED:
            store.retained.append(body)
        elif kind == SUBSCRIPTION:
            identifier, id_size, filter_size, qos, options = SUBSCRIPTION_HEAD.unpack_from(body)
            at = SUBSCRIPTION_HEAD.size
            middle = at + id_size
            store.subscriptions.append(
                SubscriptionRow(body[at:middle], body[middle : middle + filter_size], qos | options, identifier)
            )
        elif kind == CLIENT:
            self.take_client(store, body)

    def take_message(self, store: MosquittoStore, body: bytes) -> None:
        key, expiry, payload_size, _, id_size, name_size, topic_size, _, qos, retain = MESSAGE_HEAD.unpack_from(body)
        at = MESSAGE_HEAD.size
        client_id, at = body[at : at + id_size], at + id_size
        username, at = body[at : at + name_size], at + name_size
        topic, at = body[at : at + topic_size], at + topic_size
        payload, at = body[at : at + payload_size], at + payload_size
        properties, _ = self.properties(body[at:])
        message = message_of(topic, payload, qos, properties, seconds(expiry), client_id, username)
        store.messages[key] = replace(message, retain=retain != 0)

    def take_client(self, store: MosquittoStore, body: bytes) -> None:
        username: bytes | None = None
        if self.version == 5:
            expiry, interval_s, _, id_size = CLIENT_HEAD_5.unpack_from(body)
            client_id = body[CLIENT_HEAD_5.size :]
        else:
            expiry, interval_s, _, id_size, _, name_size = CLIENT_HEAD_6.unpack_from(body)
            at = len(body) - id_size - name_size
            client_id, username = body[at : at + id_size], body[at + id_size :]
            username = self.believed(username)
        store.clients.append(ClientRow(client_id, username, interval_s, seconds(expiry)))

    def believed(self, username: bytes) -> bytes | None:
        """Whose session it is; None where that is not certain.

        mosquitto 2.0 up to 2.0.11 at least does not clear the name before it writes a client that has none. It writes
        the last one's, in turns with the wrong length, so that what lies behind it in memory follows, and the right
        one. The first shows by its zeros; from then on the name may be anybody's.
        """
        name, zero, _ = username.partition(b"\0")
        if zero:
            self.stale_name = name
            return b""
        return None if username and username == self.stale_name else username


class OldFormat(Format):
    """Versions 2 to 4. The first chunk says how many bytes a message's number has; a time has 4 or 8."""

    header = OLD_HEADER
    candidate = OLD_CANDIDATE
    config_sizes = (6, 10)
    id_size = ID_SIZE

    def check(self, kind: int, head: memoryview, length: int) -> None:
        if kind == MESSAGE:
            at, payload_size = self.message_head(head)[-2:]
            self.fits(at + payload_size, length)
        elif kind == RETAINED:
            self.fits(self.id_size, length)
        elif kind == SUBSCRIPTION:
            _, at = text(head, 0)
            _, at = text(head, at)
            self.fits(at + 1, length)
        elif kind == CLIENT:
            _, at = text(head, 0)
            times = (0,) if self.version == 2 else (4, 8)
            if length - at - 2 not in times:
                raise Damaged(f"its parts have {at + 2} bytes and a time, and it has {length}")
        elif kind == CLIENT_MESSAGE:
            _, at = text(head, 0)
            self.fits(at + self.id_size + 7, length)

    def fits(self, expected: int, length: int) -> None:
        if expected != length:
            raise Damaged(f"its parts have {expected} bytes and it has {length}")

    def message_head(self, head: bytes | memoryview) -> tuple[bytes, bytes, bytes, bytes, int, int, int, int]:
        """Number, client id, user name, topic, QoS, RETAIN, where the payload begins, and its size."""
        key = bytes(head[: self.id_size])
        client_id, at = text(head, self.id_size)
        username = b""
        if self.version == 4:
            username, at = text(head, at)
            at += 2  # port
        topic, at = text(head, at + 4)  # behind two packet ids
        if not topic:
            raise Damaged("it has no topic")
        qos, retain, payload_size = struct.unpack_from("!BBI", head, at)
        return key, client_id, username, topic, qos, retain, at + 6, payload_size

    def take(self, store: MosquittoStore, kind: int, body: bytes) -> None:
        if kind == MESSAGE:
            key, client_id, username, topic, qos, retain, at, _ = self.message_head(body)
            message = message_of(topic, body[at:], qos, b"", 0, client_id, username)
            store.messages[key] = replace(message, retain=retain != 0)
        elif kind == CONFIG and len(body) > 1 and body[1] in (4, 8):
            self.id_size = body[1]
        elif kind == RETAINED:
            store.retained.append(body)
        elif kind == SUBSCRIPTION:
            client_id, at = text(body, 0)
            topic_filter, at = text(body, at)
            store.subscriptions.append(SubscriptionRow(client_id, topic_filter, body[at]))
        elif kind == CLIENT:
            client_id, _ = text(body, 0)
            # Versions 3 and 4 say since when it is gone. These sessions have no end, so that does not matter.
            store.clients.append(ClientRow(client_id, None, FOREVER_S))
        elif kind == CLIENT_MESSAGE:
            client_id, at = text(body, 0)
            key, rest = body[at:-7], body[-7:]
            packet_id, qos, retain, direction, state, _ = struct.unpack("!HBBBBB", rest)
            store.client_messages.append(
                ClientMessageRow(client_id, key, packet_id, qos, retain != 0, direction, state)
            )


def text(data: bytes | memoryview, at: int) -> tuple[bytes, int]:
    """A text with its length in front, and where the next field begins."""
    size: int = struct.unpack_from("!H", data, at)[0]
    end = at + 2 + size
    if end > len(data):
        raise Damaged(f"a text has {size} bytes and {len(data) - at - 2} are left")
    return bytes(data[at + 2 : end]), end


def message_of(
    topic: bytes, payload: bytes, qos: int, properties: bytes, expires_at_s: int, client_id: bytes, username: bytes
) -> FoundMessage:
    return FoundMessage(
        topic, payload, min(qos, 2), properties, expires_at_s * 1000, name_of(client_id), name_of(username)
    )


def name_of(data: bytes) -> str:
    return data.decode() if is_text(data) else ""


def seconds(raw: bytes) -> int:
    """A time in whichever byte order makes sense; 0 when neither does."""
    for order in ORDERS:
        value = order(raw)
        if 0 <= value < LATEST_S:
            return value
    return 0


def little(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


def big(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


ORDERS: Final[tuple[Callable[[bytes], int], ...]] = (little, big)
