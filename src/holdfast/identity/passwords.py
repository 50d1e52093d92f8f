"""Password files, one `user:HASH` a line: mosquitto's hashes as they are, and two of our own.

| HASH | what it is |
|---|---|
| `$argon2id$...` | argon2id, what `holdfast passwd` writes |
| `$7$iterations$salt$hash` | PBKDF2 with SHA-512, what mosquitto_passwd writes |
| `$6$salt$hash` | salted SHA-512, mosquitto before 2.0 |
| `SCRAM-SHA-256$iterations:salt$stored:server` | for clients that log in by SCRAM, and by password too |
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.errors import ConfigError
from holdfast.identity.scram import SCHEME, Verifier, derive, parse_verifier

if TYPE_CHECKING:
    from argon2 import PasswordHasher

ARGON2ID: Final = "$argon2id$"
# mosquitto's own default is 101. A file with more is read all the same, up to a cost that nobody would choose.
PBKDF2_MOST: Final = 10_000_000
SALT_BYTES: Final = 16


class PasswordFile:
    """Users and their hashes, read once. `check` is slow by design: call it off the event loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users = read_users(path)
        self.decoys = decoys_of(self.users)

    def check(self, username: str | None, password: bytes | None) -> bool:
        """Returns whether this is the user's password.

        A refusal takes the same time for every name, known or not: it costs one hash of each strength that occurs in
        the file, the user's own among them if there is such a user.
        """
        stored = self.users.get(username or "")
        given = password or b""
        own = ""
        if stored is not None:
            own = cost_of(stored)
            if verify(stored, given) and password is not None:
                return True
        for cost, decoy in self.decoys.items():
            if cost != own:
                verify(decoy, given)
        return False

    def scram(self, username: str) -> Verifier | None:
        stored = self.users.get(username)
        return parse_verifier(stored) if stored is not None and stored.startswith(SCHEME) else None


def read_users(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the password file {path}: {error}") from None
    users: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, stored = line.partition(":")
        if not colon or not name:
            raise ConfigError(f"{path}, line {number}: expected USER:HASH")
        if not is_known(stored):
            # The hash itself stays out of the message: it may well be a password in clear.
            raise ConfigError(
                f"{path}, line {number}: expected a $argon2id$, $7$, $6$ or SCRAM-SHA-256 hash for user {name!r}"
            )
        users[name] = stored
    return users


def is_known(stored: str) -> bool:
    """Returns whether `verify` can work with this hash.

    If not, that is an error when the file is read, not at login.
    """
    if stored.startswith(ARGON2ID):
        from argon2.exceptions import InvalidHashError

        try:
            hasher().check_needs_rehash(stored)
        except InvalidHashError:
            return False
        return True
    if stored.startswith(SCHEME):
        return parse_verifier(stored) is not None
    parts = stored.split("$")
    if len(parts) == 5 and parts[0] == "" and parts[1] == "7":
        good = parts[2].isascii() and parts[2].isdigit() and 0 < int(parts[2]) <= PBKDF2_MOST
    else:
        good = len(parts) == 4 and parts[0] == "" and parts[1] == "6"
    return good and len(decoded(parts[-1])) > 0 and len(decoded(parts[-2])) > 0


def decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def verify(stored: str, password: bytes) -> bool:
    if stored.startswith(ARGON2ID):
        from argon2.exceptions import Argon2Error

        try:
            return hasher().verify(stored, password)
        except Argon2Error:
            return False
    if stored.startswith(SCHEME):
        verifier = parse_verifier(stored)
        if verifier is None:
            return False
        again = derive(password, verifier.salt, verifier.iterations)
        return hmac.compare_digest(again.stored_key, verifier.stored_key)
    parts = stored.split("$")
    salt, expected = decoded(parts[-2]), decoded(parts[-1])
    if not expected:
        return False  # nothing is ever equal to a hash that is not there
    if parts[1] == "7":
        actual = hashlib.pbkdf2_hmac("sha512", password, salt, int(parts[2]), len(expected))
    else:
        actual = hashlib.sha512(password + salt).digest()
    return hmac.compare_digest(actual, expected)


def cost_of(stored: str) -> str:
    """Returns what the time of a check depends on: the kind of hash and its parameters, without salt and digest."""
    if stored.startswith(SCHEME):
        return stored.partition(":")[0]
    return stored.rsplit("$", 2)[0]  # `$7$101`, `$6`, `$argon2id$v=19$m=...`


def decoys_of(users: dict[str, str]) -> dict[str, str]:
    """Returns one hash for each cost in the file. Whether a password matches a decoy is never looked at."""
    found = {cost_of(stored): stored for stored in users.values()}
    return found or {ARGON2ID: hash_argon2id(secrets.token_bytes(16))}


@cache
def hasher() -> "PasswordHasher":
    """Loaded where there are passwords.

    RFC 9106 asks for 64 MiB where memory is short. Two checks run at once, so this is 38 MiB at most; a login takes
    about 20 ms, which is what bounds the logins a second.
    """
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


def hash_argon2id(password: bytes) -> str:
    return hasher().hash(password)


def hash_pbkdf2(password: bytes, salt: bytes, iterations: int = 101) -> str:
    """A `$7$` hash as mosquitto_passwd writes it."""
    digest = hashlib.pbkdf2_hmac("sha512", password, salt, iterations)
    return f"$7${iterations}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def hash_scram(password: bytes, iterations: int = 4096) -> str:
    """4096 rounds is what the RFC names and what clients are prepared for."""
    return str(derive(password, secrets.token_bytes(SALT_BYTES), iterations))


def change_user(path: Path, name: str, stored: str | None) -> None:
    """Set a user's hash, or with None remove the user. Every other line stays as it is, comments included."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    kept = [line for line in lines if line.startswith("#") or line.partition(":")[0] != name]
    if stored is not None:
        places = [at for at, line in enumerate(lines) if line.partition(":")[0] == name]
        # Where the user stood first; of several lines the last one counted, and none of them does now.
        kept.insert(places[0] if places else len(kept), f"{name}:{stored}")
    write_lines(path, kept)


def write_lines(path: Path, lines: list[str]) -> None:
    """Replace the file in one step, for its owner alone: a broker that reads it meanwhile sees all or nothing."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            keep_owner(file.fileno(), path)
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def keep_owner(descriptor: int, path: Path) -> None:
    """A file that the broker's user owns stays theirs when root changes it. Only owner and group ever read it."""
    try:
        before = path.stat()
    except FileNotFoundError:
        return
    os.fchmod(descriptor, before.st_mode & 0o660)
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(descriptor, before.st_uid, before.st_gid)
