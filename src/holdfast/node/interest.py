"""What the clients of each node subscribe to, told to the others, and the live messages that are sent for it.

A node tells what has changed under a version that goes up by one, and the version with every sign of life: whoever has
missed something sees it there and asks for all.
"""

import json

from holdfast.broker.effects import LiveItem
from holdfast.broker.live import encode_live
from holdfast.broker.shared import Shared
from holdfast.cluster.channel import Channel
from holdfast.errors import HoldfastError, NoAnswer
from holdfast.node.options import BrokerDriver

# What is said on the channel.
LIVE = b"L"
CHANGED = b"I"
WHOLE = b"F"
ANSWER_S = 1.0


class InterestExchange:
    def __init__(self, driver: BrokerDriver, shared: Shared, channel: Channel) -> None:
        self.driver = driver
        self.shared = shared
        self.channel = channel
        self.version = 0
        self.known: dict[str, int] = {}  # the version of each other node that was learned last

    def send_live(self, items: list[LiveItem]) -> None:
        for item in items:
            data = LIVE + encode_live(item)
            for node in item.nodes:
                self.channel.send(node, data)

    def tell_changes(self) -> None:
        changes = self.shared.interest.take_changes()
        self.version += 1
        told = {"version": self.version, "changes": {f.decode(): on for f, on in changes.items()}}
        self.channel.broadcast(CHANGED + json.dumps(told).encode())
        self.channel.flush()

    def tell_all(self) -> None:
        self.shared.interest.take_changes()
        self.version += 1
        self.channel.broadcast(WHOLE + self.whole())
        self.channel.flush()

    def whole(self) -> bytes:
        filters = [topic_filter.decode() for topic_filter in self.shared.interest.own]
        return json.dumps({"version": self.version, "filters": filters}).encode()

    def has_missed(self, node: str, version: int) -> bool:
        return self.known.get(node, -1) != version

    async def ask(self, node: str) -> None:
        try:
            self.learn(node, await self.channel.request(node, WHOLE, ANSWER_S))
        except (NoAnswer, HoldfastError):
            return

    def learn(self, node: str, data: bytes) -> None:
        said = json.loads(data)
        self.shared.interest.replace(node, [text.encode() for text in said["filters"]])
        self.known[node] = said["version"]
        self.driver.broker.subscriptions.generation += 1

    def learn_changes(self, node: str, data: bytes) -> None:
        said = json.loads(data)
        if self.known.get(node, -1) + 1 != said["version"]:
            return  # something was lost: the next sign of life shows it
        self.shared.interest.learn(node, {text.encode(): bool(on) for text, on in said["changes"].items()})
        self.known[node] = said["version"]
        self.driver.broker.subscriptions.generation += 1

    def forget(self, node: str) -> None:
        self.known.pop(node, None)
