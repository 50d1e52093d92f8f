"""What a node that shares a log with others has to remember of it: how far it has read, and who the others are.

Each message of the log leaves a POSITION behind everything that followed from it, in the same batch: a node that starts
again reads on from there, and has applied each message once.
"""

import struct
from typing import Final, final

from holdfast.broker.records import HEAD, HEAD_SIZE, NODE, POSITION, SETTINGS, VERSION

# version, kind, offset, sequence, log time, counter of the frame (0: it was passed over); then the hash and the node
POSITION_HEAD: Final = struct.Struct("<BBQQQQ16s")
POSITION_SIZE: Final = 50
# version, kind, offset, instance, the offset of its beginning, newest format it reads, whether it is up
NODE_HEAD: Final = struct.Struct("<BBQQQHB")
NODE_SIZE: Final = 29
NODE_NAME_MAX: Final = 255  # its length is one byte of a frame


@final
class PositionRecord:
    def __init__(self, sequence: int, time_ms: int, chain: bytes, node: str, counter: int) -> None:
        self.sequence: Final = sequence
        self.time_ms: Final = time_ms
        self.chain: Final = chain
        self.node: Final = node
        self.counter: Final = counter


def encode_position(offset: int, position: PositionRecord) -> bytes:
    head: bytes = POSITION_HEAD.pack(
        VERSION, POSITION, offset, position.sequence, position.time_ms, position.counter, position.chain
    )
    return head + position.node.encode()


def decode_position(record: bytes) -> PositionRecord:
    fields = POSITION_HEAD.unpack_from(record)
    return PositionRecord(fields[3], fields[4], fields[6], record[POSITION_SIZE:].decode(), fields[5])


@final
class NodeRecord:
    def __init__(self, name: str, instance: int, began: int, reads: int, up: bool, address: str, version: str) -> None:
        self.name: Final = name
        self.instance: Final = instance
        self.began: Final = began
        self.reads: Final = reads
        self.up: Final = up
        self.address: Final = address
        self.version: Final = version


def encode_node(offset: int, node: NodeRecord) -> bytes:
    """Return the record of a node as it is from now on; without a version it has been removed."""
    head: bytes = NODE_HEAD.pack(VERSION, NODE, offset, node.instance, node.began, node.reads, 1 if node.up else 0)
    return head + b"\0".join((node.name.encode(), node.address.encode(), node.version.encode()))


def decode_node(record: bytes) -> NodeRecord:
    fields = NODE_HEAD.unpack_from(record)
    texts = record[NODE_SIZE:].split(b"\0")
    up: int = fields[6]
    return NodeRecord(texts[0].decode(), fields[3], fields[4], fields[5], up != 0, texts[1].decode(), texts[2].decode())


def encode_settings(offset: int, settings: bytes) -> bytes:
    head: bytes = HEAD.pack(VERSION, SETTINGS, offset)
    return head + settings


def decode_settings(record: bytes) -> bytes:
    return record[HEAD_SIZE:]
