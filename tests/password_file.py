"""Password files in mosquitto's format, written without the product's own code."""

import base64
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

ITERATIONS = 101


def write_password_file(path: Path, users: Mapping[str, str]) -> Path:
    """One line per user: name:$7$iterations$salt$hash, PBKDF2 with SHA-512."""
    lines = []
    for name, password in users.items():
        salt = os.urandom(12)
        digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
        encoded = base64.b64encode(salt).decode(), base64.b64encode(digest).decode()
        lines.append(f"{name}:$7${ITERATIONS}${encoded[0]}${encoded[1]}")
    path.write_text("\n".join(lines) + "\n")
    return path
