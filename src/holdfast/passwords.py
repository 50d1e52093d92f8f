"""Password files in mosquitto's format: `user:$7$iterations$salt$hash` (PBKDF2-SHA512) or `user:$6$salt$hash`."""

import base64
import binascii
import hashlib
import hmac
from pathlib import Path

from holdfast.errors import ConfigError


class PasswordFile:
    """Users and their hashes, read once. `check` is slow by design: call it off the event loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users = read_users(path)

    def check(self, username: str | None, password: bytes | None) -> bool:
        stored = self.users.get(username or "")
        if stored is None or password is None:
            # Spend the time a real check takes, so that names cannot be told from their answers.
            verify(DECOY, password or b"")
            return False
        return verify(stored, password)


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
            raise ConfigError(f"{path}, line {number}: expected a $7$ or $6$ hash for user {name!r}")
        users[name] = stored
    return users


def is_known(stored: str) -> bool:
    parts = stored.split("$")
    return (len(parts) == 5 and parts[1] == "7" and parts[2].isdigit()) or (len(parts) == 4 and parts[1] == "6")


def verify(stored: str, password: bytes) -> bool:
    parts = stored.split("$")
    try:
        salt = base64.b64decode(parts[-2], validate=True)
        expected = base64.b64decode(parts[-1], validate=True)
    except binascii.Error:
        return False
    if parts[1] == "7":
        actual = hashlib.pbkdf2_hmac("sha512", password, salt, int(parts[2]), len(expected))
    else:
        actual = hashlib.sha512(password + salt).digest()
    return hmac.compare_digest(actual, expected)


def hash_password(password: bytes, salt: bytes, iterations: int = 101) -> str:
    """A `$7$` hash as mosquitto_passwd writes it."""
    digest = hashlib.pbkdf2_hmac("sha512", password, salt, iterations)
    return f"$7${iterations}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


DECOY = hash_password(b"", bytes(12))
