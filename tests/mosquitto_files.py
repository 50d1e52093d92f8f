"""`mosquitto.db` as its versions 2 to 6 lay it out, written from the description of the format and without our reader;
and Debian's mosquitto with a folder, to have one written by itself.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker_process import MOSQUITTO, START_TIMEOUT, BrokerProcess
from ports import free_port

MAGIC = b"\x00\xb5\x00mosquitto db"
FOREVER = 0xFFFFFFFF


@dataclass
class DbWriter:
    """`bits` and `order` are those of the machine that the file comes from."""

    version: int = 6
    bits: int = 64
    order: str = "little"
    id_size: int = 8

    def __post_init__(self) -> None:
        self.chunks: list[bytes] = []
        self.config()

    def data(self) -> bytes:
        return MAGIC + struct.pack("!II", 0, self.version) + b"".join(self.chunks)

    def chunk(self, kind: int, body: bytes) -> None:
        head = struct.pack("!HI", kind, len(body)) if self.version < 5 else struct.pack("!II", kind, len(body))
        self.chunks.append(head + body)

    def native(self, value: int, size: int = 8) -> bytes:
        assert self.order in ("little", "big")
        return value.to_bytes(size, "little" if self.order == "little" else "big")

    def config(self) -> None:
        last = self.native(99, self.id_size)
        if self.version < 5:
            self.chunk(1, bytes([1, self.id_size]) + last)
        else:
            self.chunk(1, last + bytes([1, 8]) + bytes(2 if self.bits == 32 else 6))

    def message(
        self,
        number: int,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        expires_at_s: int = 0,
        client_id: str = "src",
        username: str = "",
        properties: bytes = b"",
    ) -> None:
        client, user, name = client_id.encode(), username.encode(), topic.encode()
        if self.version < 5:
            body = self.native(number, self.id_size) + text(client)
            if self.version == 4:
                body += text(user) + struct.pack("!H", 1883)
            body += struct.pack("!HH", 7, 0) + text(name) + bytes([qos, retain])
            self.chunk(2, body + struct.pack("!I", len(payload)) + payload)
            return
        head = self.native(number) + self.native(expires_at_s)
        head += struct.pack("!IHHHHHBB", len(payload), 7, len(client), len(user), len(name), 1883, qos, retain)
        self.chunk(2, head + client + user + name + payload + properties)

    def retained(self, number: int) -> None:
        self.chunk(4, self.native(number, self.id_size))

    def client(self, client_id: str, username: str = "", interval_s: int = FOREVER, expires_at_s: int = 0) -> None:
        client, user = client_id.encode(), username.encode()
        if self.version < 5:
            gone = b"" if self.version == 2 else self.native(1_600_000_000, self.bits // 8)
            self.chunk(6, text(client) + struct.pack("!H", 5) + gone)
            return
        head = self.native(expires_at_s) + struct.pack("!IHH", interval_s, 5, len(client))
        if self.version == 6:
            head += struct.pack("!HH", 1883, len(user)) + (b"" if self.bits == 32 else bytes(4))
            client += user
        self.chunk(6, head + client)

    def subscription(self, client_id: str, topic_filter: str, qos: int, options: int = 0, identifier: int = 0) -> None:
        client, name = client_id.encode(), topic_filter.encode()
        if self.version < 5:
            self.chunk(5, text(client) + text(name) + bytes([qos]))
        else:
            head = struct.pack("!IHHBBxx", identifier, len(client), len(name), qos, options)
            self.chunk(5, head + client + name)

    def client_message(
        self,
        client_id: str,
        number: int,
        qos: int,
        state: int = 11,
        *,
        packet_id: int = 0,
        direction: int = 1,
        retain: bool = False,
        identifier: int = 0,
    ) -> None:
        client = client_id.encode()
        if self.version < 5:
            tail = struct.pack("!HBBBBB", packet_id, qos, retain, direction, state, 0)
            self.chunk(3, text(client) + self.native(number, self.id_size) + tail)
            return
        head = self.native(number) + struct.pack("!HHBBBB", packet_id, len(client), qos, state, retain << 4, direction)
        properties = bytes([2, 0x0B, identifier]) if identifier else b""
        self.chunk(3, head + client + properties)


def text(data: bytes) -> bytes:
    return struct.pack("!H", len(data)) + data


class PersistentMosquitto:
    """Debian's mosquitto, which writes `db` when it is stopped."""

    def __init__(self, folder: Path, *lines: str) -> None:
        program = shutil.which(MOSQUITTO) or "/usr/sbin/mosquitto"
        if not Path(program).exists():
            pytest.skip("mosquitto is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        self.db = folder / "mosquitto.db"
        self.port = free_port()
        self.config = folder / "mosquitto.conf"
        self.config.write_text(
            f"user {getpass.getuser()}\nlistener {self.port} 127.0.0.1\npersistence true\n"
            f"persistence_location {folder}/\n" + "".join(f"{line}\n" for line in lines or ("allow_anonymous true",))
        )
        self.process = BrokerProcess([program, "-c", str(self.config)], os.environ, folder)
        self.process.ports = {"tcp": self.port}
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline or self.process.process.poll() is not None:
                    raise AssertionError(f"mosquitto did not start:\n{self.process.output}") from None
                time.sleep(0.05)

    def stop(self) -> Path:
        self.process.stop()
        return self.db
