"""Asking an HTTP service whether a login is good. Whatever goes wrong on the way is a refusal.

    POST  {"client_id": ..., "username": ..., "password": ..., "address": ...}
    200   {"result": "allow"}                     and, if it wants: "username": who it is, "expires_in": seconds
    200   {"result": "deny"}

Answers are remembered for a while, under a keyed digest of what was asked, so that no password stays in memory.
"""

import hashlib
import http.client
import json
import math
import secrets
import ssl
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from holdfast.errors import ConfigError

ANSWER_MOST: Final = 64 * 1024
REMEMBERED_MOST: Final = 10_000


@dataclass(frozen=True)
class Answer:
    """`trouble` says why nobody could be asked; then `allow` is False and nothing is remembered."""

    allow: bool
    username: str = ""
    expires_in_s: float = 0
    trouble: str = ""


class Callback:
    """`ask` blocks: call it in a thread."""

    def __init__(self, url: str, timeout_s: float, cache_s: float, secret_file: Path | None) -> None:
        self.url: SplitResult = urlsplit(url)
        self.timeout_s = timeout_s
        self.cache_s = cache_s
        self.headers = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
        if secret_file is not None:
            self.headers["Authorization"] = f"Bearer {read_secret(secret_file)}"
        self.context = ssl.create_default_context() if self.url.scheme == "https" else None
        self.key = secrets.token_bytes(32)
        self.remembered: dict[bytes, tuple[float, Answer]] = {}
        self.lock = threading.Lock()

    def ask(self, client_id: str, username: str | None, password: bytes | None, address: str) -> Answer:
        document = {
            "client_id": client_id,
            "username": username,
            "password": None if password is None else password.decode(errors="backslashreplace"),
            "address": address,
        }
        body = json.dumps(document).encode()
        # Without the port: it is a new one with every connection.
        asked = [client_id, username, document["password"], address.rpartition(":")[0]]
        digest = hashlib.blake2b(json.dumps(asked).encode(), key=self.key, digest_size=32).digest()
        known = self.recall(digest)
        if known is not None:
            return known
        try:
            answer = parse(self.post(body))
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Answer(False, trouble=f"{type(error).__name__}: {error}"[:200])
        self.remember(digest, answer)
        return answer

    def post(self, body: bytes) -> bytes:
        assert self.url.hostname is not None
        deadline = time.monotonic() + self.timeout_s
        link: http.client.HTTPConnection
        if self.context is not None:
            link = http.client.HTTPSConnection(
                self.url.hostname, self.url.port, timeout=self.timeout_s, context=self.context
            )
        else:
            link = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=self.timeout_s)
        try:
            target = (self.url.path or "/") + (f"?{self.url.query}" if self.url.query else "")
            link.request("POST", target, body, self.headers)
            response = link.getresponse()
            if response.status != 200:  # a redirect is not followed: it would carry the password elsewhere
                raise ValueError(f"expected status 200, got {response.status}")
            pieces: list[bytes] = []
            size = 0
            while piece := response.read1(16 * 1024):
                size += len(piece)
                if size > ANSWER_MOST or time.monotonic() > deadline:
                    raise ValueError(f"expected an answer of at most {ANSWER_MOST} bytes in {self.timeout_s:g} s")
                pieces.append(piece)
            return b"".join(pieces)
        finally:
            link.close()

    def recall(self, digest: bytes) -> Answer | None:
        with self.lock:
            entry = self.remembered.get(digest)
            if entry is None or entry[0] <= time.monotonic():
                self.remembered.pop(digest, None)
                return None
            return entry[1]

    def remember(self, digest: bytes, answer: Answer) -> None:
        if self.cache_s <= 0:
            return
        keep_s = self.cache_s
        if answer.expires_in_s > 0:
            # The time that is left shrinks while the answer waits, so it is asked for again.
            return
        with self.lock:
            if len(self.remembered) >= REMEMBERED_MOST:
                self.remembered.clear()
            self.remembered[digest] = (time.monotonic() + keep_s, answer)


def parse(data: bytes) -> Answer:
    document = json.loads(data)
    if not isinstance(document, dict) or document.get("result") not in ("allow", "deny"):
        raise ValueError('expected {"result": "allow"} or {"result": "deny"}')
    username = document.get("username", "")
    expires = document.get("expires_in", 0)
    if not isinstance(username, str) or "\0" in username:
        raise ValueError("expected a text as username")
    if isinstance(expires, bool) or not isinstance(expires, int | float) or not math.isfinite(expires) or expires < 0:
        raise ValueError("expected seconds as expires_in")
    return Answer(document["result"] == "allow", username, float(expires))


def read_secret(path: Path) -> str:
    try:
        secret = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the secret {path}: {error}") from None
    if not secret or not secret.isprintable() or " " in secret:
        raise ConfigError(f"{path}: expected one line of printable characters without spaces")
    return secret
