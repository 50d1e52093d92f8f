"""Sparkplug payloads byte by byte: an encoder that knows nothing of protobuf's package or of our descriptor."""

import struct

NOON = 1_794_830_400_000  # 2026-11-16T12:00:00Z, in ms


def varint(number: int) -> bytes:
    head, rest = number & 0x7F, number >> 7
    return bytes([head | 0x80]) + varint(rest) if rest else bytes([head])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def sparkplug(timestamp: int, sequence: int | None, *metrics: bytes) -> bytes:
    """org.eclipse.tahu.protobuf.Payload: timestamp 1, metrics 2, seq 3."""
    tail = b"" if sequence is None else number(3, sequence)
    return number(1, timestamp) + b"".join(block(2, metric) for metric in metrics) + tail


def metric(
    name: str | None = None, *, alias: int | None = None, at: int | None = None, datatype: int = 0, value: bytes = b""
) -> bytes:
    """Metric: name 1, alias 2, timestamp 3, datatype 4, then its value."""
    head = block(1, name.encode()) if name is not None else b""
    head += number(2, alias) if alias is not None else b""
    head += number(3, at) if at is not None else b""
    return head + (number(4, datatype) if datatype else b"") + value


def double(value: float) -> bytes:
    """double_value is field 13, eight bytes."""
    return varint(13 << 3 | 1) + struct.pack("<d", value)


def bd_seq(value: int) -> bytes:
    return metric("bdSeq", datatype=8, value=number(11, value))
