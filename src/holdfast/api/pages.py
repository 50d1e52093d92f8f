"""Pages of the retained set. A cursor is held between two pages and moves with the set, so that a topic which stays is
listed exactly once, whatever changes around it.

A page is bounded in time as well as in length: over a million topics a rare match may come on a later page, and the
pages before it may be empty. `next` says whether there is more.
"""

import asyncio
import secrets
import time
from dataclasses import dataclass, field

from holdfast.api.problem import Problem
from holdfast.broker.message import Message
from holdfast.broker.ports import TopicCursor
from holdfast.broker.views import Query, collect
from holdfast.service.caller import Caller
from holdfast.service.requests import Conditions
from holdfast.service.source import WALK_PORTION, RetainedSource

LISTINGS_MOST = 200
LISTING_KEPT_S = 300.0
PAGE_S = 0.025


@dataclass
class Listing:
    """One listing on its way: `number` pages have been asked for, `last` is the newest of them."""

    cursor: TopicCursor
    query: Query
    caller: Caller
    number: int = 0
    last: list[Message] = field(default_factory=list)
    used_at_s: float = 0.0


class CursorPages:
    def __init__(self, source: RetainedSource) -> None:
        self.source = source
        self.listings: dict[str, Listing] = {}

    async def first(
        self, conditions: Conditions, caller: Caller, limit: int, most_bytes: int = 0
    ) -> tuple[list[Message], str | None]:
        """The first page, and the token of the next."""
        caller.need_publisher(conditions.client_id, conditions.username)
        query = conditions.query(self.source.now_ms(), caller.admin)
        cursor = self.source.cursor(conditions)
        self.sweep()
        listing = Listing(cursor, query, caller)
        name = secrets.token_urlsafe(12)
        self.listings[name] = listing
        return await self.page(name, listing, limit, most_bytes)

    async def next(
        self, token: str, caller: Caller, limit: int, most_bytes: int = 0
    ) -> tuple[list[Message], str | None]:
        """The page after; asking for the same one again gives it again."""
        name, _, number = token.rpartition(".")
        listing = self.listings.get(name)
        if listing is None or listing.caller != caller or number not in (str(listing.number), str(listing.number - 1)):
            raise Problem(
                410, "the cursor has been used or is too old, expected one from the previous page: start again"
            )
        if number == str(listing.number - 1):
            return listing.last, None if listing.cursor.ended else f"{name}.{listing.number}"
        return await self.page(name, listing, limit, most_bytes)

    async def page(self, name: str, listing: Listing, limit: int, most_bytes: int) -> tuple[list[Message], str | None]:
        listing.used_at_s = time.monotonic()
        listing.number += 1
        deadline = listing.used_at_s + PAGE_S
        found: list[Message] = []
        size = 0
        while not listing.cursor.ended and len(found) < limit and (not found or time.monotonic() < deadline):
            most = limit - len(found) if most_bytes == 0 else 1
            portion = collect(listing.cursor, listing.query, self.source.now_ms(), most, WALK_PORTION)
            seen = portion if listing.caller.sees_all else [m for m in portion if listing.caller.may_see(m)]
            size += sum(len(message.payload) for message in seen)
            found += seen
            if time.monotonic() >= deadline or 0 < most_bytes <= size:
                break
            if most_bytes == 0 or len(found) % 50 == 0:
                await asyncio.sleep(0)
        listing.last = found
        if listing.cursor.ended:
            if listing.number == 1:
                self.source.index.release(self.listings.pop(name).cursor)
            # Else it is kept for a while, in case the answer is lost on its way and asked for again.
            return found, None
        return found, f"{name}.{listing.number}"

    def sweep(self) -> None:
        now = time.monotonic()
        old = [name for name, listing in self.listings.items() if listing.used_at_s + LISTING_KEPT_S < now]
        if len(self.listings) - len(old) >= LISTINGS_MOST:
            oldest = sorted(self.listings, key=lambda name: self.listings[name].used_at_s)
            old = oldest[: len(self.listings) - LISTINGS_MOST // 2]
        for name in old:
            self.source.index.release(self.listings.pop(name).cursor)
