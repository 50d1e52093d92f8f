"""What a connection was let in by."""

from dataclasses import dataclass
from typing import Final

NAMELESS: Final = 0
BY_NAME_ALONE: Final = 1
BY_PASSWORD: Final = 2
BY_TOKEN: Final = 3
BY_CALLBACK: Final = 4


@dataclass(frozen=True, slots=True)
class Login:
    """`by` is what has to be there for the login to hold: the hash of a user, a key's digest, a service's address."""

    way: int
    by: str = ""


# Without a name, and with one that was taken as a label.
ANONYMOUS: Final = Login(NAMELESS)
UNPROVEN: Final = Login(BY_NAME_ALONE)
