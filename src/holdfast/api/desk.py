"""The API's place beside the broker: what it may use, and the one way in which it changes anything.

A change is a publish like any other, by a publisher whose protocol is `api`: it gets an offset, is delivered to
subscribers, goes to the journal and to the history, and is answered for when it is durable.
"""

import asyncio
import secrets
from pathlib import Path
from typing import Protocol

from holdfast.api.problem import Problem
from holdfast.broker.core import Broker
from holdfast.broker.message import BY_USER, Message, Publisher
from holdfast.broker.publishing import Accepted, publish_as
from holdfast.errors import StoreError
from holdfast.journal.writer import Journal
from holdfast.protocol.wire import decode_text

PROTOCOL = "api"
TOPIC_MAX = 65535


class Hub(Protocol):
    """What the API needs of the net room, which it may not import."""

    broker: Broker
    loop: asyncio.AbstractEventLoop

    def now_ms(self) -> int: ...

    def carry_out(self) -> None: ...


class Desk:
    """`reached` says how far the followers are, by name; `history` is the table's folder, None where there is none."""

    def __init__(
        self,
        hub: Hub,
        *,
        journal: Journal | None = None,
        history: Path | None = None,
        reached: dict[str, int] | None = None,
        problems: dict[str, str] | None = None,
        version: str = "",
        started_at_ms: int = 0,
        storage_type: str = "ram",
    ) -> None:
        self.hub = hub
        self.broker = hub.broker
        self.journal = journal
        self.history = history
        self.reached = reached if reached is not None else {}
        self.problems = problems if problems is not None else {}
        self.version = version
        self.started_at_ms = started_at_ms
        self.storage_type = storage_type

    def now_ms(self) -> int:
        return self.hub.now_ms()

    def get(self, topic: bytes) -> Message:
        message = self.broker.retained.get(topic, self.now_ms())
        if message is None:
            raise Problem(404, f"topic {topic.decode()!r} is not retained")
        return message

    def publish(
        self,
        publisher: Publisher,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        properties: bytes = b"",
        expiry_s: int = -1,
    ) -> Accepted:
        """Publish; the caller carries out what follows with `settle`."""
        check_topic_name(topic)
        broker = self.broker
        if broker.log is not None and not broker.log.healthy:
            raise Problem(503, "nothing can be stored now: the disk is full or failing")
        broker.now_ms = self.now_ms()
        if broker.find_route(len(topic).to_bytes(2, "big") + topic).reserved:
            raise Problem(
                403, f"topic {topic.decode()!r} belongs to the broker, expected one that clients may write to"
            )
        return publish_as(broker, publisher, topic, payload, qos, retain, properties, expiry_s)

    async def settle(self) -> None:
        """Let what was published leave, and wait until it is durable."""
        self.hub.carry_out()
        if self.journal is None:
            return
        done: asyncio.Future[StoreError | None] = self.hub.loop.create_future()
        self.journal.append([], lambda error: None if done.cancelled() else done.set_result(error))
        error = await done
        if error is not None:
            raise Problem(503, str(error))


def check_topic_name(topic: bytes) -> None:
    """What the broker does not ask of a topic it knows already."""
    if not 0 < len(topic) <= TOPIC_MAX:
        raise Problem(400, f"topic has {len(topic)} bytes, expected 1 to {TOPIC_MAX}")
    decode_text(topic)


def new_operation(admin: bool) -> str:
    """A name under which everything that one call changed can be found in the history. It tells who was asked for
    rights, so that they can be asked again.
    """
    return f"{'api-' if admin else BY_USER}{secrets.token_hex(6)}"
