"""aiomqtt, asyncio on top of paho."""

from __future__ import annotations

import asyncio
import ssl

import aiomqtt
import pytest

from broker_process import Unique
from integration.conftest import TRANSPORTS, VERSIONS, Everywhere

PROTOCOLS = {"3.1.1": aiomqtt.ProtocolVersion.V311, "5.0": aiomqtt.ProtocolVersion.V5}


def make_client(everywhere: Everywhere, transport: str, version: str, client_id: str) -> aiomqtt.Client:
    context = ssl.create_default_context(cafile=everywhere.ca) if transport in ("tls", "wss") else None
    web = transport in ("ws", "wss")
    return aiomqtt.Client(
        "localhost",
        everywhere.port(transport),
        identifier=client_id,
        protocol=PROTOCOLS[version],
        transport="websockets" if web else "tcp",
        websocket_path="/mqtt" if web else None,
        tls_context=context,
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_aiomqtt_publishes_and_receives_at_every_qos(
    transport: str, version: str, everywhere: Everywhere, unique: Unique
) -> None:
    async def run() -> list[tuple[str, object, int, bool]]:
        async with (
            make_client(everywhere, transport, version, unique.client("w")) as writer,
            make_client(everywhere, transport, version, unique.client("r")) as reader,
        ):
            await writer.publish(unique.topic("kept"), b"kept", qos=1, retain=True)
            await reader.subscribe(unique.topic("#"), qos=2)
            for qos in (0, 1, 2):
                await writer.publish(unique.topic("live"), f"{qos}", qos=qos)
            got: list[tuple[str, object, int, bool]] = []
            async for message in reader.messages:
                got.append((str(message.topic), message.payload, message.qos, bool(message.retain)))
                if len(got) == 4:
                    return got
        return []

    assert asyncio.run(asyncio.wait_for(run(), 120)) == [
        (unique.topic("kept"), b"kept", 1, True),
        (unique.topic("live"), b"0", 0, False),
        (unique.topic("live"), b"1", 1, False),
        (unique.topic("live"), b"2", 2, False),
    ]
