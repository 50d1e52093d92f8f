"""Topics that stopped being retained, for subscribers that ask what changed since an offset.

Kept in sealed blocks of bytes, not as objects: a hundred thousand small long-lived objects would be spread over all of
the memory that a mass delete has just freed, and keep it from being given back.
"""

from collections import deque
from typing import Final, final

from holdfast.broker.topics import matches

BLOCK: Final = 512
OFFSET_SIZE: Final = 8


@final
class Block:
    """Topic fields one after another, each with its length in front, and their offsets, eight bytes each."""

    def __init__(self, topics: bytes, offsets: bytes, count: int, last: int) -> None:
        self.topics: Final = topics
        self.offsets: Final = offsets
        self.count: Final = count
        self.last: Final = last


@final
class Tombstones:
    """Invariants: in offset order; complete after `known_since`."""

    def __init__(self) -> None:
        self.blocks: deque[Block] = deque()
        self.topics: list[bytes] = []
        self.offsets: list[int] = []
        self.count = 0
        self.known_since = 0

    def add(self, topic_field: bytes, offset: int, most: int) -> None:
        """Remember a deletion; the oldest are forgotten once there are more than `most`."""
        if most == 0:
            self.known_since = offset
            return
        self.topics.append(topic_field)
        self.offsets.append(offset)
        self.count += 1
        if len(self.topics) >= BLOCK:
            self.seal()
        while self.count > most:
            self.forget()

    def forget(self) -> None:
        """Let go of the oldest: a whole block, if there is one."""
        if self.blocks:
            block = self.blocks.popleft()
            self.count -= block.count
            self.known_since = block.last
        else:
            self.count -= 1
            self.known_since = self.offsets.pop(0)
            del self.topics[0]

    def seal(self) -> None:
        offsets = b"".join([offset.to_bytes(OFFSET_SIZE, "big") for offset in self.offsets])
        self.blocks.append(Block(b"".join(self.topics), offsets, len(self.topics), self.offsets[-1]))
        self.topics = []
        self.offsets = []

    def since(self, offset: int, filter_levels: list[bytes]) -> dict[bytes, int]:
        """Topic field to offset of the last deletion of each matching topic after `offset`."""
        found: dict[bytes, int] = {}
        for block in self.blocks:
            if block.last > offset:
                collect(found, block, offset, filter_levels)
        for i in range(len(self.topics)):
            note(found, self.topics[i], self.offsets[i], offset, filter_levels)
        return found


def collect(found: dict[bytes, int], block: Block, after: int, filter_levels: list[bytes]) -> None:
    position = 0
    for i in range(block.count):
        end = position + 2 + (block.topics[position] << 8 | block.topics[position + 1])
        at = int.from_bytes(block.offsets[i * OFFSET_SIZE : (i + 1) * OFFSET_SIZE], "big")
        note(found, block.topics[position:end], at, after, filter_levels)
        position = end


def note(found: dict[bytes, int], field: bytes, at: int, after: int, filter_levels: list[bytes]) -> None:
    if at > after and matches(filter_levels, field[2:].split(b"/")):
        found[field] = at
