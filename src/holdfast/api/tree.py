"""One level of the topic tree at a time, for someone who opens it by hand."""

import asyncio
import time
from bisect import bisect_right
from itertools import islice
from typing import Any

from holdfast.broker.index import Index
from holdfast.broker.message import Message
from holdfast.broker.views import ANY, Branch, Query, branch, child_count, child_names, count_below
from holdfast.service.caller import Caller
from holdfast.service.live import LiveSource
from holdfast.service.messages import leaf_of

# Up to this many children are sorted; more come in the order in which they were first set.
SORTED_MOST = 20_000
COUNT_VISITS = (300, 30_000)
COUNT_S = 0.02
# Walks over all messages below a place at the same time; the others wait.
WALKS_AT_ONCE = 2


class TopicTree:
    def __init__(self, source: LiveSource) -> None:
        self.source = source
        self.walks = asyncio.Semaphore(WALKS_AT_ONCE)

    async def children(self, prefix: str | None, after: str, limit: int, caller: Caller) -> dict[str, Any]:
        """Children of a place, None being the root: the `limit` after the one named, with what the caller may see."""
        levels = [] if prefix is None else prefix.encode().split(b"/")
        index = self.source.index
        if isinstance(index, Index) and caller.sees_all:
            names = child_names(index, levels)
            total = len(names)
            page, more = page_of(names, after.encode(), limit)
            found = [one for one in (branch(index, levels, name) for name in page) if one is not None]
            self.count(index, levels, found)
        else:
            async with self.walks:
                everything = await self.from_walk(levels, caller)
            total = len(everything)
            page, more = page_of(list(everything), after.encode(), limit)
            found = [everything[name] for name in page]
        return {
            "prefix": prefix,
            "total": total,
            "sorted": total <= SORTED_MOST,
            "children": [describe(prefix, one) for one in found],
            "next": page[-1].decode() if more and page else None,
            "version": self.source.last_change,
        }

    def count(self, index: Index, levels: list[bytes], found: list[Branch]) -> None:
        """Count what lies below, small branches first, as far as a moment's work goes."""
        deadline = time.monotonic() + COUNT_S
        for visits in COUNT_VISITS:
            for one in found:
                if one.count == ANY:
                    if time.monotonic() >= deadline:
                        return
                    count_below(index, levels, one, visits)

    async def usage(self, prefix: str | None, caller: Caller) -> dict[str, object]:
        """Messages and bytes at and below a place that the caller may see, exactly, however many there are."""
        count = size = 0
        cursor = self.source.index.cursor(b"#" if prefix is None else prefix.encode() + b"/#", self.source.version)
        async for portion in self.source.walk(cursor, Query()):
            seen = portion if caller.sees_all else [one for one in portion if caller.may_see(one)]
            count += len(seen)
            size += sum(message.size() for message in seen)
        return {"prefix": prefix, "count": count, "bytes": size}

    async def from_walk(self, levels: list[bytes], caller: Caller) -> dict[bytes, Branch]:
        """The children where the set is on disk only, or where not everything may be seen: what lies below is walked
        over.
        """
        depth = len(levels)
        messages: dict[bytes, Message] = {}
        deeper: set[bytes] = set()
        totals: dict[bytes, tuple[int, int]] = {}
        index, below = self.source.index, b"/".join([*levels, b"#"])
        cursor = index.cursor(below, self.source.version) if levels else index.everything()
        async for portion in self.source.walk(cursor, Query()):
            for message in portion:
                own = message.topic.split(b"/")
                if len(own) <= depth or not caller.may_see(message):
                    continue
                name = own[depth]
                count, size = totals.get(name, (0, 0))
                totals[name] = (count + 1, size + message.size())
                if len(own) == depth + 1:
                    messages[name] = message
                else:
                    deeper.add(name)
        branches: dict[bytes, Branch] = {}
        for name, (count, size) in totals.items():
            one = Branch(name, messages.get(name), name not in deeper)
            one.count, one.size = count, size
            branches[name] = one
        return branches

    def size_of(self, prefix: str | None) -> int:
        """How many children a place has now, for a page that watches it; ANY where that is not known cheaply."""
        index = self.source.index
        if isinstance(index, Index):
            return child_count(index, [] if prefix is None else prefix.encode().split(b"/"))
        return ANY


def page_of(names: list[bytes], after: bytes, limit: int) -> tuple[list[bytes], bool]:
    if len(names) <= SORTED_MOST:
        names.sort()
        start = bisect_right(names, after) if after else 0
    else:
        try:
            start = names.index(after) + 1 if after else 0
        except ValueError:  # it is gone: the beginning again is better than a gap
            start = 0
    return list(islice(names, start, start + limit)), start + limit < len(names)


def describe(prefix: str | None, one: Branch) -> dict[str, object]:
    name = one.name.decode()
    message = one.message
    return {
        "name": name,
        "path": name if prefix is None else f"{prefix}/{name}",
        "leaf": one.is_leaf,
        "count": None if one.count == ANY else one.count,
        "bytes": None if one.size == ANY else one.size,
        "message": None if message is None else leaf_of(message),
    }
