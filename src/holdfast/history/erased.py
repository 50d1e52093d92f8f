"""What an erasure is: whose rows, when, how many, and how the table says so afterwards.

One row, the record, stands for the rows that are gone. It has the offset of one of them, no payload, and says the rest
in its user properties. Where a value that others had set was followed by erased rows, the first of these stays without
payload and publisher as well, as a row that cleared the topic: else the older value would seem to have held on. Both
are known by their protocol. A reader that knows nothing of erasures folds them rightly. Executors import this.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

# Which column each kind of selector looks at.
COLUMN_OF: Final = {"topic": "topic", "user": "username", "client": "client_id"}


@dataclass(frozen=True)
class Selector:
    """Rows whose topic a filter covers, or that a user or a client has published."""

    kind: str
    value: str

    @property
    def column(self) -> str:
        return COLUMN_OF[self.kind]

    @property
    def has_wildcard(self) -> bool:
        return self.kind == "topic" and ("#" in self.value or "+" in self.value)

    def __str__(self) -> str:
        return f"{self.kind} {self.value}"


@dataclass(frozen=True)
class Erasure:
    """`rows` with offsets up to `upto` have gone, all that were not in force at `at_ms`. `number` counts erasures of a
    table; `name` is the request's.
    """

    name: str
    number: int
    selector: Selector
    at_ms: int
    upto: int
    rows: int

    def mark(self) -> list[dict[str, str]]:
        """The user properties of a row that stays where one was erased: they do not say whose it was."""
        return [{"key": "erased", "value": self.name}]

    def record(self) -> list[dict[str, str]]:
        values = {
            "erased": self.name,
            "erased-number": self.number,
            f"erased-{self.selector.kind}": self.selector.value,
            "erased-at-ms": self.at_ms,
            "erased-upto": self.upto,
            "erased-rows": self.rows,
        }
        return [{"key": key, "value": str(value)} for key, value in values.items()]


def erasure_of(row: Mapping[str, Any]) -> Erasure | None:
    """The erasure that a row of the table is the record of, if it is one."""
    said = {pair["key"]: pair["value"] for pair in row["user_properties"] or []}
    kind = next((kind for kind in COLUMN_OF if f"erased-{kind}" in said), None)
    if kind is None:
        return None
    return Erasure(
        said["erased"],
        int(said["erased-number"]),
        Selector(kind, said[f"erased-{kind}"]),
        int(said["erased-at-ms"]),
        int(said["erased-upto"]),
        int(said["erased-rows"]),
    )
