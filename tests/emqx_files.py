"""What EMQX writes when its data is exported, made without our reader: Erlang's terms, the log of a Mnesia backup, and
the archive around it. Written from the descriptions of the formats.
"""

from __future__ import annotations

import hashlib
import io
import struct
import tarfile
from typing import Any

TABLE = "emqx_retainer_message"


class A(str):
    """An atom."""


def encode_term(value: Any) -> bytes:
    return b"\x83" + encode(value)


def encode(value: Any) -> bytes:
    if isinstance(value, A):
        return struct.pack(">BB", 119, len(value.encode())) + value.encode()
    if isinstance(value, bool):
        return encode(A("true" if value else "false"))
    if isinstance(value, int):
        if 0 <= value < 256:
            return struct.pack(">BB", 97, value)
        if -(2**31) <= value < 2**31:
            return struct.pack(">Bi", 98, value)
        digits = abs(value).to_bytes((abs(value).bit_length() + 7) // 8, "little")
        return struct.pack(">BBB", 110, len(digits), value < 0) + digits
    if isinstance(value, bytes):
        return struct.pack(">BI", 109, len(value)) + value
    if isinstance(value, tuple):
        return struct.pack(">BB", 104, len(value)) + b"".join(map(encode, value))
    if isinstance(value, list):
        if not value:
            return b"\x6a"
        return struct.pack(">BI", 108, len(value)) + b"".join(map(encode, value)) + b"\x6a"
    assert isinstance(value, dict), value
    pairs = b"".join(encode(A(key) if isinstance(key, str) else key) + encode(one) for key, one in value.items())
    return struct.pack(">BI", 116, len(value)) + pairs


def retained_row(topic: bytes, payload: bytes, qos: int, headers: dict[str, Any], expires_at_ms: int) -> Any:
    """A row of the table, as it is since version 5."""
    message: tuple[Any, ...] = (
        A("message"),
        bytes(16),
        qos,
        b"sensor",
        {"retain": True},
        {"username": b"bob", "protocol": A("mqtt"), **headers},
        topic,
        payload,
        1_700_000_000_123,
        {},
    )
    return (A(TABLE), topic.split(b"/"), message, expires_at_ms)


def log_of(*terms: Any) -> bytes:
    """A closed log: the header of the backup and the table's schema first, as Mnesia writes them."""
    header = (A("log_header"), A("backup_log"), [49, 46, 50], [52, 46, 50], A("emqx@127.0.0.1"), (1, 2, 3))
    schema = (A("schema"), A(TABLE), [(A("attributes"), [A("topic"), A("msg"), A("expiry_time")])])
    items = []
    for term in (header, schema, *terms):
        data = encode_term(term)
        size = struct.pack(">I", len(data))
        digest = hashlib.md5(size).digest() if len(data) >= 65_528 else b""
        items.append(size + b"\x62\x57\x4c\x41" + digest + data)
    return b"\x01\x02\x03\x04" + b"\x63\x58\x4d\x0b" + b"".join(items)


def archive(table: bytes | None, **others: bytes) -> bytes:
    """The export around the table, with other files of it by name."""
    buffer = io.BytesIO()
    base = "emqx-export-2026-11-16-12-00-00.000"
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        files = {f"{base}/META.hocon": b'version = "5.8.0"\nedition = "ce"\n', f"{base}/cluster.hocon": b"{}"}
        files |= {f"{base}/mnesia/{name}": data for name, data in others.items()}
        if table is not None:
            files[f"{base}/mnesia/{TABLE}"] = table
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
