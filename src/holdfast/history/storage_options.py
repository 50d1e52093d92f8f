"""What an object store is told besides its address, credentials above all. None of it is ever shown.

Credentials come from where the store's own tools take them: variables such as `AWS_ACCESS_KEY_ID`, or the role of a
machine. Or from a file (`history.storage_file`), whose name processes hand on in a variable. Executors import this.
"""

import os
import re
from pathlib import Path
from typing import Final

from holdfast.errors import StoreError

VARIABLE: Final = "HOLDFAST_HISTORY__STORAGE_FILE"
# A store that is away is asked again by us, who can say so meanwhile; the library would go on for minutes.
PATIENCE: Final = {"connect_timeout": "5s", "timeout": "30s", "max_retries": "3", "retry_timeout": "20s"}
SECRET: Final = re.compile(r"secret|key|token|password|sas|sig|credential|service_account", re.IGNORECASE)
TOLD: Final[set[str]] = set()  # secrets that this process has given to a store
SIGNED: Final = re.compile(r"(://[^\s?\"']+\?)[^\s\"')>]*")  # what asks in an address may be a signature


def is_remote(uri: str) -> bool:
    return "://" in uri and not uri.startswith("file:")


def storage_options(uri: str, file: str = "") -> dict[str, str] | None:
    """What the libraries are given for a table; None where it lies in a folder. Raises StoreError."""
    if not is_remote(uri):
        return None
    found = read_options(file or os.environ.get(VARIABLE, ""))
    TOLD.update(value for name, value in found.items() if is_secret(name, value))
    return {**PATIENCE, **found}


def read_options(file: str) -> dict[str, str]:
    """The options in a file of `name = "value"` lines (TOML). Errors do not show what is in it."""
    if not file:
        return {}
    try:
        import tomllib

        found = tomllib.loads(Path(file).read_text())
    except OSError as error:
        raise StoreError(f"history.storage_file {file} cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise StoreError(f'history.storage_file {file}: expected lines of the form name = "value"') from None
    for name, value in found.items():
        if not isinstance(value, (str, bool, int)):
            raise StoreError(f"history.storage_file {file}: expected {name} to be a text, got a {type(value).__name__}")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in found.items()}


def is_secret(name: str, value: str) -> bool:
    return bool(SECRET.search(name)) and len(value) >= 8


def redacted(text: str) -> str:
    """A text of the libraries without what may be a credential."""
    secrets = TOLD | {value for name, value in os.environ.items() if is_secret(name, value)}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "…")
    return SIGNED.sub(r"\1…", text)
