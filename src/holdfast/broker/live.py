"""Live messages on their way from one node to the clients of another, as bytes.

They are QoS 0 messages that nobody has to remember: what the log does not carry. Neighbours to one topic travel as the
packets that came in.
"""

import struct
from typing import TYPE_CHECKING, Final

from holdfast.broker.effects import LiveItem
from holdfast.broker.inbound import PublishRun, forward
from holdfast.broker.message import NEVER, Message
from holdfast.broker.publishing import deliver
from holdfast.broker.session import Route
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

PACKETS_311: Final = 0
PACKETS_5: Final = 1
MESSAGE: Final = 2

# kind, count of messages, bytes of the largest; lengths of topic, origin, properties; when it expires
HEAD: Final = struct.Struct("<BIIHIIQ")
HEAD_SIZE: Final = 27


def encode_live(item: LiveItem) -> bytes:
    message = item.message
    if message is not None:
        origin = message.publisher.origin
        expires_at_ms = message.expires_at_ms if message.interval_given else NEVER
        head: bytes = HEAD.pack(
            MESSAGE, 1, 0, len(message.topic_field) - 2, len(origin), len(message.properties), expires_at_ms
        )
        return b"".join((head, message.topic_field, origin, message.properties, message.payload))
    publisher = item.publisher
    assert publisher is not None
    kind = PACKETS_5 if item.is_v5 else PACKETS_311
    head = HEAD.pack(kind, item.count, item.largest, len(item.topic_field) - 2, len(publisher.origin), 0, 0)
    return b"".join((head, item.topic_field, publisher.origin, item.frames))


def pass_on(broker: "Broker", data: bytes) -> None:
    """Give what another node has sent to the clients of this one. Sessions that are kept have it from the log."""
    if len(data) < HEAD_SIZE:
        raise StoreError(f"a live message of another node has {len(data)} bytes, expected at least {HEAD_SIZE}")
    fields = HEAD.unpack_from(data)
    kind: int = fields[0]
    topic_size: int = fields[3]
    origin_size: int = fields[4]
    properties_size: int = fields[5]
    expires_at_ms: int = fields[6]
    origin_start = HEAD_SIZE + 2 + topic_size  # its length stands in front of it
    properties_start = origin_start + origin_size
    start = properties_start + properties_size
    route = broker.find_route(data[HEAD_SIZE:origin_start], True)
    local = Route(route.topic_field, route.levels, route.generation, None)
    local.receivers = [receiver for receiver in route.receivers if not receiver.session.kept]
    if not local.receivers:
        return
    shared = broker.shared
    assert shared is not None
    publisher = shared.publishers.of(data[origin_start:properties_start])
    if kind == MESSAGE:
        message = Message(
            route.topic_field,
            data[start:],
            0,
            False,
            data[properties_start:start],
            publisher,
            broker.log.order_beside(1, False),
            broker.now_ms,
            expires_at_ms,
            expires_at_ms != NEVER,
        )
        deliver(broker, message, local, None)
        return
    connection = broker.elsewhere
    connection.agreed.set_version(5 if kind == PACKETS_5 else 4)
    connection.publisher = publisher
    run = PublishRun()
    run.route = local
    run.start = start
    run.end = len(data)
    run.count = fields[1]
    run.largest = fields[2]
    forward(broker, connection, data, run)
