"""gmqtt, an independent asyncio implementation of both versions."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import gmqtt
import pytest
from gmqtt.mqtt.constants import MQTTv50, MQTTv311
from gmqtt.storage import PersistentStorage

from broker_process import Unique
from integration.conftest import VERSIONS, Everywhere

PROTOCOLS = {"3.1.1": MQTTv311, "5.0": MQTTv50}


class Gmqtt:
    def __init__(self, client_id: str) -> None:
        self.unacknowledged = PersistentStorage()
        self.client = gmqtt.Client(client_id, persistent_storage=self.unacknowledged)
        self.messages: asyncio.Queue[tuple[str, bytes, int, dict[str, Any]]] = asyncio.Queue()
        self.subscribed: asyncio.Queue[int] = asyncio.Queue()
        self.client.on_message = self._on_message
        self.client.on_subscribe = lambda _client, mid, _qos, _properties: self.subscribed.put_nowait(mid)

    async def _on_message(self, _client: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]) -> int:
        await self.messages.put((topic, payload, qos, properties))
        return 0

    async def connect(self, everywhere: Everywhere, transport: str, version: str) -> None:
        context = ssl.create_default_context(cafile=everywhere.ca) if transport == "tls" else False
        await self.client.connect("localhost", everywhere.port(transport), ssl=context, version=PROTOCOLS[version])

    async def subscribe(self, topic: str, **options: Any) -> None:
        self.client.subscribe(topic, **options)
        await asyncio.wait_for(self.subscribed.get(), 60)

    async def leave(self) -> None:
        """Disconnect when nothing is under way: over TLS gmqtt stumbles over what comes after its goodbye."""
        await asyncio.wait_for(self.unacknowledged.wait_empty(), 60)
        await self.subscribe("answered/in/order")
        await self.client.disconnect()

    async def receive(self) -> tuple[str, bytes, int, dict[str, Any]]:
        return await asyncio.wait_for(self.messages.get(), 60)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transport", ["tcp", "tls"])
def test_gmqtt_publishes_and_receives_at_every_qos(
    transport: str, version: str, everywhere: Everywhere, unique: Unique
) -> None:
    async def run() -> None:
        writer, reader = Gmqtt(unique.client("w")), Gmqtt(unique.client("r"))
        for client in (writer, reader):
            await client.connect(everywhere, transport, version)
        await reader.subscribe(unique.topic("#"), qos=2)
        for qos in (0, 1, 2):
            writer.client.publish(unique.topic("live"), f"{qos}", qos=qos)
            topic, payload, delivered, _ = await reader.receive()
            assert (topic, payload, delivered) == (unique.topic("live"), b"%d" % qos, qos)
        await writer.leave()
        await reader.leave()

    asyncio.run(run())


@pytest.mark.parametrize("version", VERSIONS)
def test_gmqtt_gets_the_retained_message(version: str, everywhere: Everywhere, unique: Unique) -> None:
    async def run() -> None:
        writer, reader = Gmqtt(unique.client("w")), Gmqtt(unique.client("r"))
        for client in (writer, reader):
            await client.connect(everywhere, "tcp", version)
        own = unique.topic("signal")
        await writer.subscribe(own, qos=1)
        writer.client.publish(unique.topic("kept"), b"kept", qos=1, retain=True)
        writer.client.publish(own, b"stored by now", qos=1)
        await writer.receive()
        await reader.subscribe(unique.topic("kept"), qos=1)
        topic, payload, _, properties = await reader.receive()
        assert (topic, payload) == (unique.topic("kept"), b"kept")
        assert properties["retain"] == 1
        await writer.leave()
        await reader.leave()

    asyncio.run(run())


def test_gmqtt_sees_its_properties_unchanged(everywhere: Everywhere, unique: Unique) -> None:
    async def run() -> None:
        client = Gmqtt(unique.client())
        await client.connect(everywhere, "tcp", "5.0")
        await client.subscribe(unique.topic(), qos=1, subscription_identifier=9)
        client.client.publish(
            unique.topic(),
            b"x",
            qos=1,
            content_type="json",
            response_topic="answers/here",
            correlation_data=b"\x01\x02",
            user_property=[("a", "1"), ("a", "2")],
            message_expiry_interval=60,
        )
        _, _, _, properties = await client.receive()
        assert properties["content_type"] == ["json"]
        assert properties["response_topic"] == ["answers/here"]
        assert properties["correlation_data"] == [b"\x01\x02"]
        assert properties["user_property"] == [("a", "1"), ("a", "2")]
        assert 58 <= properties["message_expiry_interval"][0] <= 60
        assert properties["subscription_identifier"] == [9]
        await client.leave()

    asyncio.run(run())
