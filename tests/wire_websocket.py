"""The client side of a WebSocket, by hand, so that tests can frame MQTT bytes in every legal and illegal way.

`WebSocket` looks enough like a socket for `WireClient(port, sock=WebSocket(port))`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import socket
import struct

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA

_ACCEPT_SUFFIX = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class WebSocket:
    def __init__(
        self,
        port: int,
        *,
        path: str = "/mqtt",
        subprotocols: tuple[str, ...] = ("mqtt",),
        sock: socket.socket | None = None,
        chunk: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Open the connection and upgrade it. `chunk` cuts what is sent into frames of so many bytes."""
        self.sock = sock or socket.create_connection(("127.0.0.1", port), 5)
        self.chunk = chunk
        self.status = 0
        self.headers: dict[str, str] = {}
        self.close_code: int | None = None
        self.opcodes: list[int] = []
        self._buffer = b""
        self._upgrade(port, path, subprotocols, headers or {})

    def _upgrade(self, port: int, path: str, subprotocols: tuple[str, ...], headers: dict[str, str]) -> None:
        key = base64.b64encode(os.urandom(16))
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key.decode()}",
            "Sec-WebSocket-Version: 13",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        if subprotocols:
            lines.append(f"Sec-WebSocket-Protocol: {', '.join(subprotocols)}")
        self.sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        while b"\r\n\r\n" not in self._buffer:
            data = self.sock.recv(65536)
            if not data:
                break
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        status_line, *rest = head.decode().split("\r\n")
        self.status = int(status_line.split(" ")[1]) if status_line else 0
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        if self.status == 101:
            expected = base64.b64encode(hashlib.sha1(key + _ACCEPT_SUFFIX).digest()).decode()
            got = self.headers.get("sec-websocket-accept")
            assert got == expected, f"expected Sec-WebSocket-Accept {expected}, got {got}"

    def send_frame(self, opcode: int, payload: bytes, *, final: bool = True) -> None:
        mask = os.urandom(4)
        size = len(payload)
        head = bytes([opcode | (0x80 if final else 0)])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 65536:
            head += b"\xfe" + struct.pack(">H", size)
        else:
            head += b"\xff" + struct.pack(">Q", size)
        masked = bytes(byte ^ mask[index & 3] for index, byte in enumerate(payload))
        self.sock.sendall(head + mask + masked)

    def sendall(self, data: bytes) -> None:
        step = self.chunk or max(1, len(data))
        for start in range(0, len(data), step):
            self.send_frame(BINARY, data[start : start + step])

    def recv(self, _size: int = 0) -> bytes:
        """The payload of the next data frame, or nothing when the WebSocket or its TCP connection ends."""
        while True:
            frame = self.recv_frame()
            if frame is None:
                return b""
            opcode, payload = frame
            self.opcodes.append(opcode)
            if opcode == CLOSE:
                self.close_code = struct.unpack(">H", payload[:2])[0] if payload else None
                return b""
            if opcode == PING:
                self.send_frame(PONG, payload)
            elif opcode != PONG and payload:
                return payload

    def recv_frame(self) -> tuple[int, bytes] | None:
        """The next frame, or None at the end. A timeout inside a frame loses nothing: bytes leave the buffer last."""
        if not self._fill(2):
            return None
        assert not self._buffer[1] & 0x80, "the server masked a frame"
        assert not self._buffer[0] & 0x70, f"the server set reserved bits in a frame: {self._buffer[0]:08b}"
        size, start = self._buffer[1] & 0x7F, 2
        if size >= 126:
            start = 4 if size == 126 else 10
            if not self._fill(start):
                return None
            size = int.from_bytes(self._buffer[2:start], "big")
        if not self._fill(start + size):
            return None
        opcode, payload = self._buffer[0] & 0x0F, self._buffer[start : start + size]
        self._buffer = self._buffer[start + size :]
        return opcode, payload

    def _fill(self, count: int) -> bool:
        while len(self._buffer) < count:
            try:
                data = self.sock.recv(65536)
            except ConnectionResetError:
                return False
            if not data:
                return False
            self._buffer += data
        return True

    def settimeout(self, seconds: float) -> None:
        self.sock.settimeout(seconds)

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        self.sock.setsockopt(level, option, value)

    def shutdown(self, _how: int) -> None:
        with contextlib.suppress(OSError):
            self.send_frame(CLOSE, struct.pack(">H", 1000))

    def close(self) -> None:
        self.sock.close()
