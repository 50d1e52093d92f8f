"""What keeps a configuration from being used, said so that it can be mended."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """`key` is empty when it concerns no single key."""

    key: str
    message: str
    origin: str = ""

    def __str__(self) -> str:
        place = f" ({self.origin})" if self.origin else ""
        return f"{self.key}{place}: {self.message}" if self.key else f"{self.message}{place}"


def shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
