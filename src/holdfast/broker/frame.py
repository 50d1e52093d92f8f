"""Entries of one node on their way to the log that all nodes share: one message of the log each.

A frame names the node that wrote it, the instance of it (a node that starts again is another instance) and a counter.
A log may lose a message, keep it twice, or keep a later one although an earlier one was lost. So nodes count a frame
only if it is the next one of its node's present instance, and pass over every other: then each entry has its effect
once and in the order in which its node wrote it, whatever happened on the way, and a node that is not sure may send
again.

A frame also tells how far its node had read when it was written, and the chain hash of all it had read: so nodes notice
when they have not read the same.
"""

import struct
import zlib
from hashlib import blake2b
from typing import Final, final

from holdfast.broker.entries import FORMAT
from holdfast.errors import StoreError

MAGIC: Final = 0x4648  # "HF"
# magic, format, length of the node's name, instance, counter, what it has read: sequence, position; its clock
HEAD: Final = struct.Struct("<HBBQQQQQ")
HEAD_SIZE: Final = 44
HASH_SIZE: Final = 16
CHECKSUM: Final = struct.Struct("<I")
CHECKSUM_SIZE: Final = 4
LENGTH: Final = struct.Struct("<I")
LENGTH_SIZE: Final = 4

NO_HASH: Final = bytes(HASH_SIZE)


@final
class FrameHead:
    def __init__(
        self, node: str, instance: int, counter: int, seen: int, position: int, clock_ms: int, chain: bytes
    ) -> None:
        self.node: Final = node
        self.instance: Final = instance
        self.counter: Final = counter
        self.seen: Final = seen  # the sequence of the last message that its node had read
        self.position: Final = position  # the offset that this had brought it to
        self.clock_ms: Final = clock_ms
        self.chain: Final = chain  # the hash of all up to `seen`


def encode_frame(head: FrameHead, entries: list[bytes], written_in: int = FORMAT) -> bytes:
    """Return a frame in a format that all nodes read."""
    name = head.node.encode()
    fixed: bytes = HEAD.pack(
        MAGIC, written_in, len(name), head.instance, head.counter, head.seen, head.position, head.clock_ms
    )
    parts = [fixed, head.chain, name]
    for entry in entries:
        size: bytes = LENGTH.pack(len(entry))
        parts.append(size)
        parts.append(entry)
    data = b"".join(parts)
    checksum: bytes = CHECKSUM.pack(zlib.crc32(data))
    return checksum + data


def decode_head(frame: bytes) -> FrameHead:
    """Return who wrote a frame. Raises StoreError when it is damaged, or in a format that only newer versions read."""
    if len(frame) < CHECKSUM_SIZE + HEAD_SIZE + HASH_SIZE:
        raise StoreError(f"a message of the log has {len(frame)} bytes, too few for a frame")
    checksum: int = CHECKSUM.unpack_from(frame)[0]
    if zlib.crc32(frame[CHECKSUM_SIZE:]) != checksum:
        raise StoreError("a message of the log fails its checksum")
    fields = HEAD.unpack_from(frame, CHECKSUM_SIZE)
    magic: int = fields[0]
    written_in: int = fields[1]
    if magic != MAGIC:
        raise StoreError(f"a message of the log begins with 0x{magic:04X}, expected a frame of Holdfast")
    if written_in > FORMAT:
        raise StoreError(
            f"an entry of the log has format {written_in}, this version reads up to {FORMAT}: upgrade this node"
        )
    start = CHECKSUM_SIZE + HEAD_SIZE
    size: int = fields[2]
    name = frame[start + HASH_SIZE : start + HASH_SIZE + size]
    return FrameHead(
        name.decode(), fields[3], fields[4], fields[5], fields[6], fields[7], frame[start : start + HASH_SIZE]
    )


def entries_of(frame: bytes) -> list[bytes]:
    name_size = frame[CHECKSUM_SIZE + 3]
    position = CHECKSUM_SIZE + HEAD_SIZE + HASH_SIZE + name_size
    entries: list[bytes] = []
    while position < len(frame):
        size: int = LENGTH.unpack_from(frame, position)[0]
        position += LENGTH_SIZE
        entries.append(frame[position : position + size])
        position += size
    return entries


def chained(chain: bytes, frame: bytes) -> bytes:
    """Return the hash of everything up to this message, from the hash of everything before it."""
    return blake2b(frame, digest_size=HASH_SIZE, key=chain).digest()
