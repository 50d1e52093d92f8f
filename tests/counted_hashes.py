"""What the time of a login is made of: the password hashes that are worked out for it, counted instead of timed.

`python counted_hashes.py FILE serve ...` is `holdfast serve ...`, which adds a line to FILE for each hash, before the
answer that it is worked out for.
"""

import hashlib
import os
import sys
from collections.abc import Callable

from argon2 import PasswordHasher


def cost_of(stored: str) -> str:
    """The line for a hash as it stands in a password file."""
    if stored.startswith("SCRAM-SHA-256$"):
        return f"pbkdf2 sha256 {stored.split('$')[1].partition(':')[0]}"
    if stored.startswith("$7$"):
        return f"pbkdf2 sha512 {stored.split('$')[2]}"
    return stored.rsplit("$", 2)[0]


def count_hashes(note: Callable[[str], object], replace: Callable[[object, str, object], None]) -> None:
    """From now on, every hash that takes time is noted and then worked out as always."""
    pbkdf2, argon2 = hashlib.pbkdf2_hmac, PasswordHasher.verify

    def counted_pbkdf2(name: str, password: bytes, salt: bytes, iterations: int, dklen: int | None = None) -> bytes:
        note(f"pbkdf2 {name} {iterations}")
        return pbkdf2(name, password, salt, iterations, dklen)

    def counted_argon2(hasher: PasswordHasher, stored: str, password: bytes) -> bool:
        note(cost_of(stored))
        return argon2(hasher, stored, password)

    replace(hashlib, "pbkdf2_hmac", counted_pbkdf2)
    replace(PasswordHasher, "verify", counted_argon2)


if __name__ == "__main__":
    from holdfast.cli.main import main

    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    count_hashes(lambda line: os.write(log, f"{line}\n".encode()), setattr)
    main(sys.argv[2:])
