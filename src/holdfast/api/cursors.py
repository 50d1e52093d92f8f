"""Cursors that say nothing: where a page ended, sealed, so that a name behind which the next one begins is not told to
someone who may not read it.
"""

from cryptography.fernet import Fernet, InvalidToken

from holdfast.api.problem import Problem
from holdfast.service.caller import Caller


class SealedCursors:
    """Good until the process ends, for the caller and the listing that they were made for."""

    def __init__(self) -> None:
        self.box = Fernet(Fernet.generate_key())

    def seal(self, listing: str, caller: Caller, place: str | None) -> str | None:
        if place is None:
            return None
        return self.box.encrypt(f"{listing}\0{caller.name}\0{place}".encode()).decode()

    def open(self, listing: str, caller: Caller, cursor: str) -> str:
        """The place; empty for an empty cursor. Raises Problem for what is not of this listing and caller."""
        if not cursor:
            return ""
        try:
            found, name, place = self.box.decrypt(cursor.encode()).decode().split("\0", 2)
        except (InvalidToken, ValueError):
            found = name = place = ""
        if (found, name) != (listing, caller.name):
            raise Problem(
                410,
                "the cursor is too old or of another listing, expected `next` of the previous page: start again",
            )
        return place
