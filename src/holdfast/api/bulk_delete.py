"""Deleting by conditions, in two steps: the first counts and hands out a token that is good for exactly that count, the
second deletes.
"""

import hashlib
import hmac
import secrets
import time

from holdfast.api.problem import Problem
from holdfast.service.caller import Caller
from holdfast.service.requests import Conditions
from holdfast.service.retained import Removed, RetainedService

TOKEN_S = 600
SAMPLE = 20


class BulkDelete:
    def __init__(self, retained: RetainedService) -> None:
        self.retained = retained
        self.key = secrets.token_bytes(32)

    async def dry_run(self, conditions: Conditions, caller: Caller) -> dict[str, object]:
        """What a delete would take away, and the token for it."""
        found = await self.retained.find_writable(conditions, caller)
        expires = int(time.time()) + TOKEN_S
        return {
            "dry_run": True,
            "count": len(found),
            "bytes": sum(one.size for one in found),
            "sample": [one.topic.decode() for one in found[:SAMPLE]],
            "token": f"{expires}.{self.sign(conditions, caller, len(found), expires)}",
        }

    async def delete(self, conditions: Conditions, caller: Caller, token: str) -> Removed:
        """Delete what a dry run has counted. Raises Problem when the token is not for what matches now."""
        expires, _, signature = token.partition(".")
        if not expires.isascii() or not expires.isdigit() or int(expires) < time.time():
            raise Problem(409, "the token is too old or unknown, expected one from a recent dry run")
        found = await self.retained.find_writable(conditions, caller)
        expected = self.sign(conditions, caller, len(found), int(expires))
        if not hmac.compare_digest(expected.encode(), signature.encode()):
            raise Problem(
                409,
                f"the token does not match: {len(found)} messages match now; repeat the dry run",
                count=len(found),
            )
        return await self.retained.remove(found, caller)

    def sign(self, conditions: Conditions, caller: Caller, count: int, expires: int) -> str:
        asked = f"{conditions.model_dump_json()}{caller.name}\n{count}\n{expires}"
        return hmac.new(self.key, asked.encode(), hashlib.sha256).hexdigest()[:32]
