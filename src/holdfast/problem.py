"""What keeps a file of somebody's from being used: said with its key, what was expected, and what stands there.

Who reads such a file collects all of them: a person who mends it wants the whole list.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

HIDDEN: Final = "(hidden)"
# Up to the last @: who writes a password into a URL may not know what has to be escaped there.
PASSWORD_IN_URL: Final = re.compile(r"(?<=://)([^\s,:@/]*):[^\s,]*@")
TOKEN_IN_URL: Final = re.compile(r"\b(nats|tls)://[^\s,:@/]+@")
SECRET_IN_QUERY: Final = re.compile(r"([?&](?:sig|signature|token|secret|password)=)[^&\s,]+")
SECRET_NAME: Final = re.compile(r"(?:password|passphrase|secret|token)(?!\w*_file)", re.IGNORECASE)


@dataclass(frozen=True)
class Problem:
    """What keeps a configuration from being used. `key` is empty when it concerns no single key."""

    key: str
    message: str
    origin: str = ""

    def __str__(self) -> str:
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.key}{where}: {self.message}" if self.key else f"{self.message}{where}"


def shown(value: object, name: str = "") -> str:
    """A value as a person may read it in a message; `name` is that of its key."""
    text = json.dumps(without_secrets(value, name), ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the known key that `name` was most likely meant to be.

    A match of the last part alone counts nearly as much as one of the whole.
    """

    def likeness(candidate: str) -> float:
        whole = SequenceMatcher(None, name, candidate).ratio()
        last = SequenceMatcher(None, name.rpartition(".")[2], candidate.rpartition(".")[2]).ratio()
        return max(whole, last * 0.95)

    return max(known, key=likeness)


def without_secrets(value: object, name: str = "") -> object:
    """The same without passwords: those in URLs, and what stands under a name that says so. The name of a file that has
    one is no secret.
    """
    if isinstance(value, dict):
        return {key: without_secrets(one, str(key)) for key, one in value.items()}
    if isinstance(value, list):
        return [without_secrets(one, name) for one in value]
    if value is not None and SECRET_NAME.search(name):
        return HIDDEN
    return without_login(value) if isinstance(value, str) else value


def without_login(url: str) -> str:
    """A URL, or a text with URLs in it, without what would let its reader log in."""
    url = PASSWORD_IN_URL.sub(rf"\1:{HIDDEN}@", url)
    url = TOKEN_IN_URL.sub(rf"\1://{HIDDEN}@", url)
    return SECRET_IN_QUERY.sub(rf"\1{HIDDEN}", url)
