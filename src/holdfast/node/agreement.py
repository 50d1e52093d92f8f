"""Whether the nodes are equal: the hash of what each has read, told with every sign of life, and on an operator's
question the hash of the whole state of each at one position.
"""

import asyncio
import json
import secrets
from typing import Any

from holdfast.broker.digest import state_digest
from holdfast.broker.shared import Shared
from holdfast.cluster.channel import Channel
from holdfast.node.options import BrokerDriver

HASH = b"H"  # on the channel
VERIFY_S = 60.0


class Agreement:
    def __init__(self, node: str, driver: BrokerDriver, shared: Shared, channel: Channel) -> None:
        self.node = node
        self.driver = driver
        self.shared = shared
        self.channel = channel
        self.answers: dict[int, dict[str, str]] = {}
        self.asked: dict[int, asyncio.Event] = {}
        shared.on_verify = self.on_verify

    def agrees(self, sequence: int, chain: str) -> bool | None:
        """Whether this node has read the same up to there; None when it has not come so far, or has forgotten."""
        mine = self.shared.recent.get(sequence)
        return None if mine is None else mine.hex() == chain

    def stands_alone(self, claims: dict[str, dict[str, Any]]) -> bool:
        """Whether more of the others have read something else than have read the same; of two, the younger yields."""
        against, with_us = 0, 1
        for said in claims.values():
            same = self.agrees(int(said["sequence"]), said["chain"])
            if same is not None:
                with_us += same
                against += not same
        return against > with_us or (against == with_us and self.is_youngest())

    def is_youngest(self) -> bool:
        mine = self.shared.members.get(self.node)
        return mine is not None and all(mine.began >= member.began for member in self.shared.members.values())

    async def verify(self) -> dict[str, str]:
        """The hash of the state of every node at one position, by name; empty for one that did not answer in time."""
        question = secrets.randbits(62) + 1
        self.asked[question] = asyncio.Event()
        self.answers[question] = {}
        self.shared.verify(question)
        self.driver.propose()
        try:
            await asyncio.wait_for(self.asked[question].wait(), VERIFY_S)
        except TimeoutError:
            pass
        finally:
            del self.asked[question]
        up = {member.name: "" for member in self.shared.members.values() if member.up}
        return up | self.answers.pop(question)

    def on_verify(self, question: int) -> None:
        found = state_digest(self.driver.broker)
        if question in self.answers:
            self.answers[question][self.node] = found
        self.driver.loop.call_soon(self.tell, question, found)

    def tell(self, question: int, found: str) -> None:
        self.channel.broadcast(HASH + json.dumps({"question": question, "hash": found}).encode())
        self.count(question)

    def hear(self, node: str, data: bytes) -> None:
        said = json.loads(data)
        question = int(said["question"])
        if question in self.answers:
            self.answers[question][node] = str(said["hash"])
            self.count(question)

    def count(self, question: int) -> None:
        wanted = {member.name for member in self.shared.members.values() if member.up}
        if question in self.asked and wanted <= set(self.answers[question]):
            self.asked[question].set()
