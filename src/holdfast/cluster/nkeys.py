"""Signing what a NATS server asks to have signed, with a key from a file.

A seed is text: base32 of two bytes of kind, 32 bytes of Ed25519 seed and a checksum. A credentials file has such a
seed and a token (JWT) that says whose it is.
"""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path
from typing import Final

from holdfast.errors import ConfigError

SEED: Final = 18 << 3  # the kind of the first byte; text that begins with S
USER: Final = 20 << 3  # U


class Signer:
    """Answers the question of a server; without a file there is nothing to answer with."""

    def __init__(self, credentials: Path | None, seed: Path | None) -> None:
        self._token = ""
        self._seed = b""
        if credentials is not None:
            text = _read(credentials)
            blocks = re.findall(r"-{3,}BEGIN [^-]+-{3,}\s+(\S+)\s+-{3,}END", text)
            if len(blocks) != 2:
                raise ConfigError(f"expected a NATS credentials file with a token and a seed, got {credentials}")
            self._token = blocks[0]
            self._seed = _seed(blocks[1], credentials)
        elif seed is not None:
            self._seed = _seed(_read(seed).strip(), seed)

    def answer(self, nonce: str) -> dict[str, str]:
        """What goes into CONNECT."""
        if not self._seed or not nonce:
            return {}
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.from_private_bytes(self._seed)
        signature = base64.urlsafe_b64encode(key.sign(nonce.encode())).decode().rstrip("=")
        if self._token:
            return {"jwt": self._token, "sig": signature}
        return {"nkey": _public(key.public_key().public_bytes_raw()), "sig": signature}


def _public(key: bytes) -> str:
    body = bytes([USER]) + key
    return base64.b32encode(body + binascii.crc_hqx(body, 0).to_bytes(2, "little")).decode().rstrip("=")


def _seed(text: str, path: Path) -> bytes:
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error:
        raw = b""
    body, checksum = raw[:-2], raw[-2:]
    kind = ((body[0] & 7) << 5 | body[1] >> 3) if len(body) == 34 else -1
    if kind != USER or body[0] & 0xF8 != SEED or binascii.crc_hqx(body, 0).to_bytes(2, "little") != checksum:
        raise ConfigError(f"expected the seed of a NATS user (it begins with SU) in {path}")
    return body[2:]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read {path}: {e}") from e
