"""Any broker that speaks MQTT, asked for its retained messages as a subscriber.

MQTT has no word for the end of a snapshot, and some brokers cut it: at a queue limit, at a rate, in silence. So it is
taken several times, in turns with one filter and level by level, until two passes in a row bring the same topics: a
broker that always cuts at the same place is found out by the other kind of pass. A pass ends when nothing has come for
a while. If no two passes agree it is an error, and nothing is imported.

A subscription at QoS 2 tells the QoS of each message, but is what brokers cut at their queue limits; one at QoS 0
mostly is not. The first pass is at QoS 2, the others at QoS 0, and topics that only the others have brought are asked
for by name. With `walk` the tree is gone through in small parts as well: for each topic that is known, and each of its
levels, what stands beside it there; until that brings nothing new.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from holdfast.client import Client, Endpoint, Options
from holdfast.client.endpoint import TlsOptions, parse_url
from holdfast.errors import ConnectionFailed, UsageError
from holdfast.migration.destination import RunningBroker, portions
from holdfast.migration.inventory import FoundMessage, Inventory, is_topic
from holdfast.protocol.mqtt.packets import V5, V311, Publish, SubscriptionRequest
from holdfast.protocol.mqtt.properties import Properties
from holdfast.protocol.mqtt.reasons import UNACCEPTABLE_PROTOCOL_311, UNSUPPORTED_PROTOCOL_VERSION
from holdfast.rules.restore import seconds_left
from holdfast.service.messages import decode_forwarded

BY_NAME_AT_ONCE: Final = 100
RECEIVE_MAXIMUM: Final = 65_535
AT_ONCE: Final = 8
AGAIN_AFTER_S: Final = (1.0, 2.0, 4.0, 8.0)
PORTION: Final = 1000

Progress = Callable[[str, int], None]


@dataclass(frozen=True)
class Patience:
    """`quiet_s` without a message ends a snapshot. `passes` is how many passes are made at most. `walk`: in small
    parts.
    """

    quiet_s: float = 2.0
    passes: int = 6
    walk: bool = False
    topic_filter: str = "#"


class LiveBroker(RunningBroker):
    """`login` is `user:password`, empty where the URL says it, or nobody asks."""

    def __init__(
        self, url: str, patience: Patience, tls: TlsOptions, now_ms: Callable[[], int], login: str = ""
    ) -> None:
        location = parse_url(url)
        self.endpoint = Endpoint(location.host, location.port, location.transport, location.path or "/mqtt", tls)
        username, password = location.username, location.password
        if login:
            username, _, password = login.partition(":")
        self.options = Options(
            client_id=f"holdfast-import-{time.time_ns():x}",
            version=V5,
            username=username,
            password=None if password is None else password.encode(),
            properties=announced(),
            max_inflight=1000,
        )
        self.connections = 0
        self.has_answered = False
        self.patience = patience
        self.now_ms = now_ms
        self.on_progress: Progress = lambda what, count: None

    async def connect(self) -> Client:
        """A connection, of MQTT 5 where the broker speaks it. One that has answered before is given time to do so
        again: some are busy for seconds with what the last connection left behind.
        """
        for wait_s in AGAIN_AFTER_S:
            try:
                return await self.connect_once()
            except ConnectionFailed as error:
                if not self.has_answered or error.reason:
                    raise
                await asyncio.sleep(wait_s)
        return await self.connect_once()

    async def connect_once(self) -> Client:
        try:
            client = await self.open(self.options)
        except ConnectionFailed as error:
            unknown = error.reason in (UNSUPPORTED_PROTOCOL_VERSION, UNACCEPTABLE_PROTOCOL_311, 0)
            if self.options.version != V5 or self.has_answered or not unknown:
                raise
            older = replace(self.options, version=V311, properties=None)
            client = await self.open(older)
            self.options = older
        self.has_answered = True
        return client

    async def open(self, options: Options) -> Client:
        client = Client(self.endpoint, replace(options, client_id=self.next_client_id()))
        await client.connect()
        return client

    def next_client_id(self) -> str:
        """Several connections are open at once, and none may take another's place."""
        self.connections += 1
        return f"{self.options.client_id}-{self.connections}"

    async def retained(self) -> dict[bytes, FoundMessage]:
        """The retained set. Raises UsageError when it cannot be had whole."""
        first = await self.snapshot([self.patience.topic_filter.encode()], 2)
        before: set[bytes] | None = None
        latest = first
        for number in range(1, self.patience.passes + 1):
            latest = await self.take_pass(number, latest)
            self.on_progress(f"pass {number}", len(latest))
            if before is not None and before == latest.keys():
                return await self.with_qos(first, latest)
            before = set(latest)
        raise UsageError(
            f"{self.endpoint} sends another set of retained messages each time, the last one of {len(latest)} topics: "
            "it cuts them, or they come and go. --walk asks in smaller parts, --quiet waits longer, --passes tries "
            "more often"
        )

    async def with_qos(
        self, first: dict[bytes, FoundMessage], latest: dict[bytes, FoundMessage]
    ) -> dict[bytes, FoundMessage]:
        """The latest messages with the QoS that they were published with: a subscription at QoS 0 does not tell."""
        whole = {
            topic: replace(message, qos=first[topic].qos) if topic in first else message
            for topic, message in latest.items()
        }
        missing = [topic for topic in latest if topic not in first and is_topic(topic)]
        for count, portion in portions(missing, BY_NAME_AT_ONCE):
            named = await self.snapshot(portion, 2, set(portion))
            whole.update({topic: message for topic, message in named.items() if topic in whole})
            self.on_progress("by name", count)
        return whole

    async def take_pass(self, number: int, known: dict[bytes, FoundMessage]) -> dict[bytes, FoundMessage]:
        """Everything once, at QoS 0: in odd passes with the filter itself, in even ones level by level."""
        top = self.patience.topic_filter.encode()
        if self.patience.walk:
            return await self.walk(top)
        if number % 2 == 1 or not top.endswith(b"#"):
            return await self.snapshot([top], 0)
        return await self.snapshots(by_level(top, deepest(known)))

    async def walk(self, top: bytes) -> dict[bytes, FoundMessage]:
        """Go through the tree around every topic that is known, and around those that this makes known."""
        found = await self.snapshot([top], 0)
        found |= await self.snapshots(by_level(top, deepest(found)))
        done: set[bytes] = set()
        while todo := around(found) - done:
            done |= todo
            found |= await self.snapshots(sorted(todo))
            self.on_progress("walking", len(found))
        return found

    async def snapshots(self, topic_filters: list[bytes]) -> dict[bytes, FoundMessage]:
        """What each of these filters brings alone, several at a time: most of it is waiting for silence."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(topic_filter: bytes) -> dict[bytes, FoundMessage]:
            async with turns:
                return await self.snapshot([topic_filter], 0)

        found: dict[bytes, FoundMessage] = {}
        for _, portion in portions(topic_filters, PORTION):
            for part in await asyncio.gather(*map(one, portion)):
                found |= part
        return found

    async def snapshot(
        self, topic_filters: list[bytes], qos: int, expected: set[bytes] | None = None
    ) -> dict[bytes, FoundMessage]:
        """What a new subscription to these filters brings, until no topic is new or all that is expected is there. What
        devices publish meanwhile does not make it longer.
        """
        client = await self.connect()
        try:
            requests = [request_for(topic_filter, qos, self.options.version) for topic_filter in topic_filters]
            answer = await client.subscribe(requests)
            refused = [
                topic_filter.decode(errors="replace")
                for topic_filter, reason in zip(topic_filters, answer.reasons, strict=False)
                if reason >= 0x80
            ]
            if refused:
                raise UsageError(f"{self.endpoint} refuses a subscription to {refused[0]!r}; may this user read it?")
            found: dict[bytes, FoundMessage] = {}
            seen: set[bytes] = set()
            now = asyncio.get_running_loop().time
            ends_at = now() + self.patience.quiet_s
            while (expected is None or found.keys() != expected) and (left_s := ends_at - now()) > 0:
                try:
                    publish = await asyncio.wait_for(client.receive(), left_s)
                except TimeoutError:
                    break
                self.keep(found, publish)
                if publish.retain and publish.topic not in seen:
                    seen.add(publish.topic)
                    ends_at = now() + self.patience.quiet_s
                if len(found) % 1000 == 0:
                    self.on_progress("receiving", len(found))
            return found
        finally:
            await client.disconnect()

    def keep(self, found: dict[bytes, FoundMessage], publish: Publish) -> None:
        """Messages with RETAIN are of the snapshot, or, where the broker tells how they were published, newer ones."""
        if not publish.retain:
            return
        if publish.payload:
            found[publish.topic] = message_of(publish, self.now_ms())
        else:
            found.pop(publish.topic, None)

    async def publish(self, messages: list[FoundMessage], now_ms: int) -> None:
        client = await self.connect()
        try:
            answers = []
            for one in messages:
                properties = self.properties_of(one, now_ms)
                packet = Publish(one.topic, one.payload, one.qos, True, False, 0, properties)
                answer = await client.send(packet)
                if answer is not None:
                    answers.append(answer)
            for answer in answers:
                await answer
        finally:
            await client.disconnect()

    def properties_of(self, message: FoundMessage, now_ms: int) -> Properties | None:
        if self.options.version != V5:
            return None
        properties = decode_forwarded(message.properties)
        if message.expires_at_ms:
            properties.message_expiry = seconds_left(message.expires_at_ms, now_ms)
        return properties


async def read_broker(broker: LiveBroker, now_ms: int) -> Inventory:
    """The inventory of a live broker."""
    found = Inventory(f"broker {broker.endpoint}")
    for message in (await broker.retained()).values():
        found.add_retained(message, now_ms)
    if broker.options.version != V5:
        found.notes.append(f"{broker.endpoint} does not speak MQTT 5: properties and expiry cannot be had from it")
    if not found.retained:
        found.notes.append(
            "nothing is retained there that this user may read; some brokers (RabbitMQ) send nothing for wildcards"
        )
    found.notes.append(
        "sessions, subscriptions and queued messages cannot be had over MQTT; topics that begin with $ neither"
    )
    return found


def announced() -> Properties:
    properties = Properties()
    properties.receive_maximum = RECEIVE_MAXIMUM
    return properties


def request_for(topic_filter: bytes, qos: int, version: int) -> SubscriptionRequest:
    if version != V5:
        return SubscriptionRequest(topic_filter, qos)
    return SubscriptionRequest(topic_filter, qos, retain_as_published=True)


def message_of(publish: Publish, now_ms: int) -> FoundMessage:
    properties = publish.properties
    expires_at_ms = 0
    forward = b""
    if properties is not None:
        forward = properties.forward
        if properties.message_expiry is not None:
            expires_at_ms = now_ms + properties.message_expiry * 1000
    return FoundMessage(publish.topic, publish.payload, publish.qos, forward, expires_at_ms)


def around(topics: Iterable[bytes]) -> set[bytes]:
    """Each topic with one of its levels left open, in turn."""
    found: set[bytes] = set()
    for topic in topics:
        levels = topic.split(b"/")
        for i in range(len(levels)):
            found.add(b"/".join([*levels[:i], b"+", *levels[i + 1 :]]))
    return found


def by_level(top: bytes, levels: int) -> list[bytes]:
    """Filters for one level of the tree each, which together match what `top`, that ends with `#`, does."""
    if not top.endswith(b"#"):
        return [top]
    stem = top[:-1].rstrip(b"/").split(b"/") if top != b"#" else []
    filters = [b"/".join(stem)] if stem else []
    for below in range(1, max(levels - len(stem), 0) + 1):
        filters.append(b"/".join([*stem, *[b"+"] * below]))
    return [*filters, b"/".join([*stem, *[b"+"] * max(levels - len(stem), 0), b"#"])]


def deepest(topics: Iterable[bytes]) -> int:
    return max((topic.count(b"/") + 1 for topic in topics), default=0)
