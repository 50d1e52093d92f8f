"""Deleting by filter, in two steps, and taking it back.

The first step counts and hands out a token that is good for exactly that count; the second deletes. Each delete has a
name, which stands as client id in the history rows it made: that is how it can be undone later, by any broker that has
the history. The last few are kept in memory as well, so that undo needs no history when it comes at once.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from typing import Any

from holdfast.api.desk import PROTOCOL, Desk, new_operation
from holdfast.api.guard import Caller
from holdfast.api.listing import every
from holdfast.api.past import Past, properties_of_row, row_of
from holdfast.api.problem import Problem
from holdfast.api.rows import ms
from holdfast.broker.message import Message, Publisher
from holdfast.broker.views import Query

TOKEN_S = 600
SAMPLE = 20
PORTION = 200
# What is kept in memory for undo, all operations together.
KEPT_BYTES = 32 << 20


class Removal:
    def __init__(self, desk: Desk, past: Past) -> None:
        self.desk = desk
        self.past = past
        self.key = secrets.token_bytes(32)
        self.kept: OrderedDict[str, list[Message]] = OrderedDict()
        self.kept_bytes = 0

    async def rehearse(self, topic_filter: str, query: Query, caller: Caller, asked: str) -> dict[str, object]:
        """What a delete would take away."""
        found = await self.find(topic_filter, query, caller)
        expires = int(time.time()) + TOKEN_S
        return {
            "dry_run": True,
            "count": len(found),
            "bytes": sum(message.size() for message in found),
            "sample": [message.topic.decode() for message in found[:SAMPLE]],
            "token": f"{expires}.{self.sign(asked, len(found), expires)}",
        }

    async def carry_out(
        self, topic_filter: str, query: Query, caller: Caller, asked: str, token: str
    ) -> dict[str, object]:
        expires, _, signature = token.partition(".")
        if not expires.isascii() or not expires.isdigit() or int(expires) < time.time():
            raise Problem(409, "the token is too old or none of ours, expected one from a dry run just made")
        found = await self.find(topic_filter, query, caller)
        if not hmac.compare_digest(self.sign(asked, len(found), int(expires)), signature):
            raise Problem(
                409,
                f"the token is not for this: {len(found)} messages match now; look again with a dry run",
                count=len(found),
            )
        return await self.remove(found, caller)

    async def find(self, topic_filter: str, query: Query, caller: Caller) -> list[Message]:
        found = await every(self.desk, topic_filter, query, caller)
        return [message for message in found if caller.may_write(message.topic, True)]

    async def remove(self, found: list[Message], caller: Caller) -> dict[str, object]:
        """Delete these messages, those excepted that were replaced meanwhile."""
        operation = new_operation(caller.admin)
        publisher = Publisher(operation, caller.name, PROTOCOL)
        retained = self.desk.broker.retained
        gone: list[Message] = []
        for start in range(0, len(found), PORTION):
            for message in found[start : start + PORTION]:
                stored = retained.get(message.topic, self.desk.now_ms())
                if stored is not None and stored.offset == message.offset:
                    self.desk.publish(publisher, message.topic, b"", message.qos, True)
                    gone.append(message)
            await self.desk.settle()
            await asyncio.sleep(0)
        self.keep(operation, gone)
        return {"dry_run": False, "count": len(gone), "operation": operation}

    def keep(self, operation: str, gone: list[Message]) -> None:
        size = sum(message.size() + 200 for message in gone)
        if size > KEPT_BYTES:
            return
        self.kept[operation] = gone
        self.kept_bytes += size
        while self.kept_bytes > KEPT_BYTES:
            _, old = self.kept.popitem(last=False)
            self.kept_bytes -= sum(message.size() + 200 for message in old)

    async def undo(self, operation: str, caller: Caller) -> dict[str, object]:
        """Bring back what an operation took away, where nothing new has come to stand in its place."""
        rows: list[dict[str, Any]]
        if operation in self.kept:
            rows = [row_of(message) for message in self.kept[operation]]
        else:
            rows = await self.past.removed_by(operation)
            if not rows:
                raise Problem(404, f"no delete named {operation!r} is known here or in the history")
        return await self.bring_back(rows, caller)

    async def bring_back(
        self, rows: list[dict[str, Any]], caller: Caller, replace: bool = False, dry_run: bool = False
    ) -> dict[str, object]:
        """Publish rows of the past again, with what is left of their time; without `replace`, only where there is
        nothing now.
        """
        operation = new_operation(caller.admin)
        publisher = Publisher(operation, caller.name, PROTOCOL)
        now_ms = self.desk.now_ms()
        counts = {"restored": 0, "present": 0, "expired": 0, "refused": 0}
        for number, row in enumerate(rows):
            topic = row["topic"].encode()
            expires_at_ms = row.get("expires_at_ms", 0)
            if row.get("expires_at") is not None:
                expires_at_ms = ms(row["expires_at"])
            stored = self.desk.broker.retained.get(topic, now_ms)
            same = stored is not None and stored.payload == row["payload"]
            if expires_at_ms and expires_at_ms <= now_ms:
                counts["expired"] += 1
            elif stored is not None and (same or not replace):
                counts["present"] += 1
            elif not caller.may_write(topic, True):
                counts["refused"] += 1
            else:
                if not dry_run:
                    properties = row["properties"] if "properties" in row else properties_of_row(row)
                    expiry_s = -1 if not expires_at_ms else max(1, (expires_at_ms - now_ms) // 1000)
                    self.desk.publish(publisher, topic, row["payload"], row["qos"], True, properties, expiry_s)
                    stored = self.desk.broker.retained.get(topic, now_ms)
                kept = dry_run or (stored is not None and stored.payload == row["payload"])  # limits may refuse it
                counts["restored" if kept else "refused"] += 1
            if number % PORTION == PORTION - 1:
                await self.desk.settle()
                await asyncio.sleep(0)
        await self.desk.settle()
        return {"operation": operation, "dry_run": dry_run, **counts}

    def sign(self, asked: str, count: int, expires: int) -> str:
        return hmac.new(self.key, f"{asked}\n{count}\n{expires}".encode(), hashlib.sha256).hexdigest()[:32]
