"""A client's half of SCRAM-SHA-256, written from RFC 5802 and RFC 7677."""

import base64
import hashlib
import hmac
import os

from wire import P

METHOD = (P.AUTH_METHOD, "SCRAM-SHA-256")


class Scram:
    """The client's half."""

    def __init__(self, name: str, password: str) -> None:
        self.password = password
        self.bare = f"n={name},r={base64.b64encode(os.urandom(12)).decode()}"
        self.salted = b""
        self.message = b""

    def first(self) -> bytes:
        return f"n,,{self.bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salt = base64.b64decode(fields["s"])
        self.salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), salt, int(fields["i"]))
        key = hmac.digest(self.salted, b"Client Key", "sha256")
        bare = f"c=biws,r={fields['r']}"
        self.message = f"{self.bare},{challenge.decode()},{bare}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), self.message, "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
        return bare.encode() + b",p=" + proof

    def server_proof(self) -> bytes:
        key = hmac.digest(self.salted, b"Server Key", "sha256")
        return b"v=" + base64.b64encode(hmac.digest(key, self.message, "sha256"))
