"""SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's half: nothing that crosses the wire lets anyone log in again.

The file keeps no password, only what a password can be checked against. A client of an unknown name gets the same
answers, made up but always the same ones, and fails at the end like one with a wrong password.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final

METHOD: Final = "SCRAM-SHA-256"
SCHEME: Final = "SCRAM-SHA-256$"
ITERATIONS: Final = 4096
ITERATIONS_MOST: Final = 1_000_000
NONCE_BYTES: Final = 18
MESSAGE_MOST: Final = 4096


@dataclass(frozen=True)
class Verifier:
    """Written as PostgreSQL writes it: `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __str__(self) -> str:
        return f"{SCHEME}{self.iterations}:{_b64(self.salt)}${_b64(self.stored_key)}:{_b64(self.server_key)}"


def derive(password: bytes, salt: bytes, iterations: int) -> Verifier:
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return Verifier(iterations, salt, hashlib.sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256"))


def parse_verifier(text: str) -> Verifier | None:
    parts = text.split("$")
    if len(parts) != 3 or parts[0] != METHOD:
        return None
    count, _, salt = parts[1].partition(":")
    stored, _, server = parts[2].partition(":")
    if not (count.isascii() and count.isdigit() and len(count) < 8 and 0 < int(count) <= ITERATIONS_MOST):
        return None
    try:
        verifier = Verifier(int(count), _unb64(salt), _unb64(stored), _unb64(server))
    except ValueError:
        return None
    if len(verifier.salt) < 4 or len(verifier.stored_key) != 32 or len(verifier.server_key) != 32:
        return None
    return verifier


class ScramExchange:
    """One login. `first`, then `final`; a message that cannot be right raises ValueError, and so does a wrong proof."""

    def __init__(self, lookup: "Lookup", nonce: str = "") -> None:
        self.lookup = lookup
        self.own_nonce = nonce or secrets.token_urlsafe(NONCE_BYTES)
        self.username = ""
        self.header = ""
        self.nonce = ""
        self.verifier: Verifier | None = None
        self.said = ""

    def first(self, data: bytes) -> bytes:
        """The client's first message in, the server's out: nonce, salt, iterations."""
        text = _text(data)
        binding, authorization, *rest = [*text.split(",", 2), "", ""]
        if binding not in ("n", "y") or authorization != "":
            raise ValueError("expected a message without channel binding and without another identity")
        bare = rest[0]
        fields = bare.split(",")
        if len(fields) < 2 or not fields[0].startswith("n=") or not fields[1].startswith("r="):
            raise ValueError("expected a name and a nonce")
        self.header = f"{binding},,"
        self.username = _unescape(fields[0][2:])
        if not self.username or len(fields[1]) < 10:
            raise ValueError("expected a name, and a nonce of at least 8 characters")
        self.nonce = fields[1][2:] + self.own_nonce
        self.verifier = self.lookup.find(self.username)
        answer = f"r={self.nonce},s={_b64(self.verifier.salt)},i={self.verifier.iterations}"
        self.said = f"{bare},{answer},"
        return answer.encode()

    def final(self, data: bytes) -> bytes:
        """The client's proof in, the server's out."""
        text = _text(data)
        bare, separator, proof = text.rpartition(",p=")
        verifier = self.verifier
        if not separator or verifier is None:
            raise ValueError("expected a proof after the first message")
        if bare.split(",")[:2] != [f"c={_b64(self.header.encode())}", f"r={self.nonce}"]:
            raise ValueError("expected the channel and the nonce of the first message")
        message = (self.said + bare).encode()
        signature = hmac.digest(verifier.stored_key, message, "sha256")
        given = _unb64(proof)
        if len(given) != len(signature):
            raise ValueError("expected a proof of 32 bytes")
        client_key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
        right = hmac.compare_digest(hashlib.sha256(client_key).digest(), verifier.stored_key)
        if not right or not self.lookup.is_known(self.username):
            raise ValueError("the proof is wrong")
        return b"v=" + _b64(hmac.digest(verifier.server_key, message, "sha256")).encode()


class Lookup:
    """Verifiers by name. A name that is not known gets one too, which no password matches: it looks like any other."""

    def __init__(self, users: dict[str, Verifier], seed: bytes) -> None:
        self.users = users
        self.seed = seed
        self.counts = sorted(verifier.iterations for verifier in users.values()) or [ITERATIONS]

    def find(self, username: str) -> Verifier:
        known = self.users.get(username)
        if known is not None:
            return known
        made_up = hmac.digest(self.seed, username.encode(), "sha512")
        # As common as they are among real users, so that a rare count does not tell that its user exists.
        iterations = self.counts[int.from_bytes(made_up[:4]) % len(self.counts)]
        return Verifier(iterations, made_up[4:20], made_up[20:52], made_up[32:64])

    def is_known(self, username: str) -> bool:
        return username in self.users


def _text(data: bytes) -> str:
    if len(data) > MESSAGE_MOST:
        raise ValueError(f"expected at most {MESSAGE_MOST} bytes, got {len(data)}")
    return data.decode()  # a UnicodeDecodeError is a ValueError


def _unescape(name: str) -> str:
    """`=2C` is a comma and `=3D` an equals sign; no other use of `=` is allowed."""
    if name.replace("=2C", "").replace("=3D", "").count("="):
        raise ValueError("expected = in a name only as =2C or =3D")
    return name.replace("=2C", ",").replace("=3D", "=")


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unb64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"expected base64: {error}") from None
