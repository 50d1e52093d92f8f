"""Two brokers that a bridge keeps equal while clients move: are they? Topic by topic, while both go on working.

A topic that differs is looked at again, several times: the old broker is listened to for a while, and what the new one
has in the middle of that is to be among what was heard, be it the first, the last or what came in between.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from holdfast.broker.topics import matches
from holdfast.client import Client
from holdfast.migration.destination import RunningBroker, portions
from holdfast.migration.inventory import FoundMessage
from holdfast.migration.live_broker import LiveBroker, message_of, request_for
from holdfast.protocol.mqtt.packets import V5
from holdfast.rules.bridge_topic import VIA
from holdfast.service.messages import decode_forwarded

ROUNDS: Final = 8
BETWEEN_S: Final = 0.5
AT_ONCE: Final = 100

Content = tuple[object, ...]
GONE: Final[Content] = ()
Progress = Callable[[str, int], None]


@dataclass
class Comparison:
    """Topics by what is wrong with them; `same` counts the others."""

    same: int = 0
    missing: list[str] = field(default_factory=list)  # on the old broker only
    extra: list[str] = field(default_factory=list)  # on the new broker only
    different: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return not self.missing and not self.extra and not self.different


class Audit:
    """`get` reads one topic of the new broker."""

    def __init__(
        self, old: LiveBroker, new: RunningBroker, get: Callable[[str], FoundMessage | None], on_progress: Progress
    ) -> None:
        self.old = old
        self.new = new
        self.get = get
        self.on_progress = on_progress

    async def compare(self) -> Comparison:
        there = contents((await self.old.retained()).values(), self.has_properties)
        here = contents(self.asked_for((await self.new.retained()).values()), self.has_properties)
        topics = there.keys() | here.keys()
        suspects = {topic for topic in topics if there.get(topic) != here.get(topic)}
        for _ in range(ROUNDS):
            if not suspects:
                break
            self.on_progress("looking again at", len(suspects))
            await asyncio.sleep(BETWEEN_S)
            suspects = await self.still_different(sorted(suspects))
        return await self.named(suspects, len(topics) - len(suspects))

    def asked_for(self, messages: Iterable[FoundMessage]) -> Iterable[FoundMessage]:
        """Those that the old broker was asked for. No wildcard reaches topics that begin with `$`."""
        levels = self.old.patience.topic_filter.encode().split(b"/")
        return (one for one in messages if one.topic[:1] != b"$" and matches(levels, one.topic.split(b"/")))

    @property
    def has_properties(self) -> bool:
        return self.old.options.version == V5

    async def still_different(self, topics: list[bytes]) -> set[bytes]:
        found: set[bytes] = set()
        for _, portion in portions(topics, AT_ONCE):
            heard: dict[bytes, set[Content]] = {topic: set() for topic in portion}
            client = await self.old.connect()
            try:
                await client.subscribe([request_for(topic, 0, self.old.options.version) for topic in portion])
                await self.listen(client, heard)
                here = self.here(portion)
                await self.listen(client, heard)
            finally:
                await client.disconnect()
            found |= {topic for topic in portion if here.get(topic, GONE) not in (heard[topic] or {GONE})}
        return found

    async def listen(self, client: Client, heard: dict[bytes, set[Content]]) -> None:
        """Note what the old broker says of these topics for a while; a deletion is something said too."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + max(BETWEEN_S, self.old.patience.quiet_s)
        while (left_s := until_s - loop.time()) > 0:
            try:
                publish = await asyncio.wait_for(client.receive(), left_s)
            except TimeoutError:
                return
            message = message_of(publish, 0)
            heard[publish.topic].add(content_of(message, self.has_properties) if publish.payload else GONE)

    async def there(self, topics: list[bytes]) -> dict[bytes, Content]:
        return contents((await self.old.snapshot(topics, 0, set(topics))).values(), self.has_properties)

    def here(self, topics: list[bytes]) -> dict[bytes, Content]:
        found = (self.get(topic.decode()) for topic in topics)
        return contents((one for one in found if one is not None), self.has_properties)

    async def named(self, suspects: set[bytes], same: int) -> Comparison:
        found = Comparison(same)
        for _, portion in portions(sorted(suspects), AT_ONCE):
            there, here = await self.there(portion), self.here(portion)
            for topic in portion:
                name = topic.decode()
                if topic not in here and topic in there:
                    found.missing.append(name)
                elif topic in here and topic not in there:
                    found.extra.append(name)
                else:
                    found.different.append(name)
        return found


def contents(messages: Iterable[FoundMessage], with_properties: bool) -> dict[bytes, Content]:
    return {message.topic: content_of(message, with_properties) for message in messages}


def content_of(message: FoundMessage, with_properties: bool) -> Content:
    """What a subscriber is sent, as far as both brokers can say it; the QoS of a snapshot is its subscription's."""
    if not with_properties or not message.properties:
        return (message.payload,)
    properties = decode_forwarded(message.properties)
    pairs = [pair for pair in properties.user_properties or [] if pair[0] != VIA]
    carried = (properties.content_type, properties.response_topic, properties.correlation_data)
    found = (*carried, properties.payload_format, tuple(pairs))
    return (message.payload,) if found == (None, None, None, None, ()) else (message.payload, *found)
