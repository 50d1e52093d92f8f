"""What keeps a file of somebody's from being used: said with its key, what was expected, and what stands there.

Who reads such a file collects all of them: a person who mends it wants the whole list.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher


@dataclass(frozen=True)
class Problem:
    """What keeps a configuration from being used. `key` is empty when it concerns no single key."""

    key: str
    message: str
    origin: str = ""

    def __str__(self) -> str:
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.key}{where}: {self.message}" if self.key else f"{self.message}{where}"


def shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
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
