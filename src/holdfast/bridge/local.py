"""The bridge as a client of its own broker, over memory."""

import asyncio

from holdfast.bridge.options import BridgeOptions
from holdfast.broker.session import FOREVER, Session
from holdfast.client import Client, Endpoint, Options
from holdfast.client.stream import Stream
from holdfast.errors import ConnectionFailed, UsageError
from holdfast.net.admission import ListenerPolicy
from holdfast.net.driver import Driver
from holdfast.net.local import LocalTransport
from holdfast.protocol.mqtt.packets import V5, SubscriptionRequest
from holdfast.protocol.mqtt.properties import Properties
from holdfast.protocol.mqtt.reasons import reason_name

NO_SNAPSHOT = 2  # Retain Handling: what is retained is looked up, and sent when it is due


class LocalStream(Stream):
    def __init__(self, transport: LocalTransport) -> None:
        self.transport = transport

    async def read(self) -> bytes:
        return await self.transport.read()

    def write(self, data: bytes) -> None:
        self.transport.feed(data)

    async def drain(self) -> None:
        await self.transport.drained.wait()

    async def close(self) -> None:
        self.transport.hang_up()


class LocalClient(Client):
    """Its session stays while the bridge is configured: the queue of what waits for the other side."""

    def __init__(self, options: BridgeOptions, driver: Driver, policy: ListenerPolicy) -> None:
        self.driver = driver
        self.policy = policy
        self.username = options.local_username
        properties = Properties()
        properties.session_expiry = FOREVER
        properties.receive_maximum = options.max_inflight
        super().__init__(
            Endpoint("this broker", 0),
            Options(
                client_id=options.local_client_id,
                version=V5,
                clean_start=False,
                keep_alive=0,
                properties=properties,
                max_inflight=options.max_inflight,
                reconnect=True,
                reconnect_max_s=5.0,
                open_stream=self.open_stream,
            ),
        )

    async def open_stream(self) -> Stream:
        await asyncio.sleep(0)
        return LocalStream(LocalTransport(self.driver, self.policy, self.username))

    def _tries_again(self, failure: ConnectionFailed) -> bool:
        return True

    @property
    def session(self) -> Session | None:
        return self.driver.broker.sessions.get(self.options.client_id)

    async def listen_to(self, filters: dict[bytes, int]) -> None:
        """Subscribe to these, with their QoS, and to nothing else. Raises UsageError for what is not allowed."""
        session = self.session
        old = [one for one in session.subscriptions if one not in filters] if session is not None else []
        if old:
            await self.unsubscribe(old)
        if not filters:
            return
        requests = [SubscriptionRequest(one, qos, True, True, NO_SNAPSHOT) for one, qos in filters.items()]
        answer = await self.subscribe(requests)
        for one, reason in zip(filters, answer.reasons, strict=True):
            if reason >= 0x80:
                raise UsageError(
                    f"this broker does not let the bridge subscribe to {one.decode()!r}: {reason_name(reason)}; "
                    "does local_username have the right?"
                )

    def waits_for(self, topic: bytes) -> bool:
        """Whether messages of a topic are on their way through the session, or waiting in it."""
        session = self.session
        if session is not None:
            if session.waiting and len(topic).to_bytes(2, "big") + topic in session.waiting:
                return True
            if any(delivery.message.topic == topic for delivery in session.inflight.values()):
                return True
        return any(publish.topic == topic for _, publish in self._queue)

    @property
    def waiting_messages(self) -> int:
        """How many messages wait for the other side, on disk and in memory."""
        session = self.session
        if session is None:
            return 0
        unsent = sum(1 for _, publish in self._queue if publish.qos == 0) if len(self._queue) < 1000 else 1000
        return len(session.queue) + len(session.inflight) + unsent

    @property
    def waiting_bytes(self) -> int:
        session = self.session
        return 0 if session is None else session.queued_bytes
