"""An asyncio MQTT client on this package's own codec: 3.1, 3.1.1 and 5.0 over TCP, TLS, WebSocket and Unix sockets.

async with Client(Endpoint("localhost"), Options(version=V5)) as client:
    await client.subscribe([SubscriptionRequest(b"home/#", qos=1)])
    await client.publish("home/lamp", b"on", qos=1, retain=True)
    message = await client.receive()
"""

from holdfast.client.client import Client
from holdfast.client.connection import Options
from holdfast.client.endpoint import Endpoint

__all__ = ["Client", "Endpoint", "Options"]
