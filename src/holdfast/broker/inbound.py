"""The way in: one socket read is one pass over all the packets it brought.

QoS 0 publishes that need no change are not even looked at one by one: neighbours with the same topic are a *run*, and a
run is forwarded as one slice of what came in. Everything else goes packet by packet.
"""

from typing import TYPE_CHECKING, Final, final

from holdfast.broker.delivery import on_puback, on_pubcomp, on_pubrec, publish_head, write
from holdfast.broker.effects import LiveItem
from holdfast.broker.lifecycle import on_auth, on_connect, on_disconnect
from holdfast.broker.message import NEVER, Message
from holdfast.broker.publishing import deliver, on_publish, on_pubrel
from holdfast.broker.session import HIGH_WATER_BYTES, UNLIMITED, Connection, Route
from holdfast.broker.subscribing import on_subscribe, on_unsubscribe
from holdfast.errors import MalformedPacket, ProtocolError
from holdfast.protocol.mqtt.connection import AUTHENTICATING, CLOSED, CONNECTED, WAITING, check_received
from holdfast.protocol.mqtt.decode import decode
from holdfast.protocol.mqtt.packets import (
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    V5,
    Ack,
    Auth,
    Connect,
    Disconnect,
    Subscribe,
    Unsubscribe,
)
from holdfast.protocol.mqtt.reasons import PACKET_TOO_LARGE

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

CONNECT_V5: Final = b"\x00\x04MQTT\x05"


@final
class PublishRun:
    """Neighbouring plain QoS 0 publishes to one topic, as a stretch of the read they came in."""

    def __init__(self) -> None:
        self.route: Route | None = None
        self.start = 0
        self.end = 0
        self.count = 0
        self.largest = 0

    def clear(self) -> None:
        self.route = None


def receive(broker: "Broker", connection: Connection, data: bytes) -> None:
    """Handle everything one read brought; what is left of an unfinished packet waits for the next one."""
    connection.last_seen_ms = broker.now_ms
    broker.counters.bytes_received += len(data)
    inbound = connection.inbound
    if inbound.size > 0 or connection.state == AUTHENTICATING or connection.pending is not None or connection.parked:
        inbound.add(data)
        if connection.pending is not None or connection.parked:
            return
        if connection.state == AUTHENTICATING and not connection.exchanging:
            if inbound.size > broker.settings.max_bytes_before_login:
                raise ProtocolError("too much was sent before the login was through", PACKET_TOO_LARGE)
            return
        if inbound.size < inbound.needed:
            return
        data = inbound.drain()
    run = broker.run
    run.clear()
    try:
        position = walk(broker, connection, data, run)
    finally:  # what came before a packet that breaks the protocol counts
        if run.route is not None:
            forward(broker, connection, data, run)
    if position < len(data) and connection.state != CLOSED:
        inbound.add(data[position:] if position > 0 else data)


def walk(broker: "Broker", connection: Connection, data: bytes, run: PublishRun) -> int:
    size = len(data)
    position = 0
    packets = 0
    inbound = connection.inbound
    inbound.needed = 0
    max_packet_size = broker.settings.max_packet_size
    is_v5 = connection.agreed.is_v5
    forwards = connection.state == CONNECTED and broker.access is None and connection.under_way == 0
    while position + 1 < size:
        first = data[position]
        remaining = data[position + 1]
        body = position + 2
        if remaining > 127:
            remaining &= 127
            shift = 7
            while True:
                if shift > 21:
                    raise MalformedPacket("remaining length has more than 4 bytes")
                if body >= size:
                    inbound.needed = body - position + 1
                    broker.counters.packets_received += packets
                    return position
                byte = data[body]
                body += 1
                remaining |= (byte & 127) << shift
                if byte < 128:
                    if byte == 0 and is_v5:  # [5: MQTT-1.5.5-1]
                        raise MalformedPacket("remaining length is longer than it needs to be")
                    break
                shift += 7
        end = body + remaining
        if end - position > max_packet_size:
            raise ProtocolError(
                f"packet has {end - position} bytes, expected no more than {max_packet_size}", PACKET_TOO_LARGE
            )
        if end > size:
            if connection.state != CONNECTED:
                check_unauthenticated(broker, connection, first, end - position)
            inbound.needed = end - position
            break
        packets += 1
        if first == 0x30 and forwards and remaining > 2:
            topic_end = body + 2 + (data[body] << 8 | data[body + 1])
            if topic_end < end if is_v5 else topic_end <= end:
                if not is_v5 or data[topic_end] == 0:
                    field = data[body:topic_end]
                    route = connection.last_route
                    if (
                        route is None
                        or field != connection.last_topic
                        or route.generation != broker.subscriptions.generation
                    ):
                        route = broker.route_of(connection, field)
                    if route.plain:
                        if route is run.route:
                            run.end = end
                            run.count += 1
                            if end - position > run.largest:
                                run.largest = end - position
                        else:
                            if run.route is not None:
                                forward(broker, connection, data, run)
                            run.route = route
                            run.start = position
                            run.end = end
                            run.count = 1
                            run.largest = end - position
                        position = end
                        continue
        if run.route is not None:
            forward(broker, connection, data, run)
            run.clear()
        dispatch(broker, connection, first, data, body, end)
        position = end
        is_v5 = connection.agreed.is_v5
        state = connection.state
        forwards = state == CONNECTED and broker.access is None and connection.under_way == 0
        if state != CONNECTED:
            if state == CLOSED:
                position = size
                break
            if state == AUTHENTICATING or connection.parked:
                inbound.needed = UNLIMITED
                break
        elif connection.pending is not None or connection.parked:
            inbound.needed = UNLIMITED
            break
    broker.counters.packets_received += packets
    if inbound.needed == 0 and position < size:
        inbound.needed = 2
    return position


def check_unauthenticated(broker: "Broker", connection: Connection, first: int, size: int) -> None:
    """Raise when a client that has not logged in sends more than a CONNECT of moderate size (CVE-2017-7651)."""
    if connection.state == WAITING and first != 0x10:
        raise ProtocolError(f"first packet is of type {first >> 4}, expected CONNECT")
    if size > broker.settings.max_bytes_before_login:
        most = broker.settings.max_bytes_before_login
        raise ProtocolError(f"packet has {size} bytes, expected no more than {most} before the login", PACKET_TOO_LARGE)


def dispatch(broker: "Broker", connection: Connection, first: int, data: bytes, body: int, end: int) -> None:
    """Handle one packet, commonest kind first."""
    kind = first >> 4
    if connection.state == CONNECTED:
        session = connection.session
        assert session is not None
        if kind == PUBLISH:
            broker.met_high_water = False
            on_publish(broker, connection, first, data, body, end)
            if broker.met_high_water:
                connection.backpressured = has_slow_receivers(connection, broker.now_ms)
            return
        if end - body == 2 and PUBACK <= kind <= PUBCOMP:
            # An acknowledgement without reason or properties: every one in 3.1.1, nearly every one in 5.0.
            if first & 15 == (2 if kind == PUBREL else 0):
                packet_id = data[body] << 8 | data[body + 1]
                if packet_id != 0:
                    on_ack(broker, connection, kind, packet_id, 0)
                    return
        elif first == PINGREQ << 4 and body == end:
            if connection.under_way > 0:
                connection.pings += 1
                return
            write(connection, b"\xd0\x00")
            broker.effects.write_to(connection)
            return
    elif data.startswith(CONNECT_V5, body, end):
        # Known before the rest is read, so that even a malformed CONNECT gets its answer [5: MQTT-3.1.4-1].
        connection.agreed.set_version(V5)
    version = connection.agreed.version
    check_received(connection.state, kind, version)
    packet = decode(first, data[body:end], version, False, broker.settings.max_filters_per_packet)
    if isinstance(packet, Connect):
        on_connect(broker, connection, packet)
    elif isinstance(packet, Ack):
        on_ack(broker, connection, kind, packet.packet_id, packet.reason)
    elif isinstance(packet, Subscribe):
        on_subscribe(broker, connection, packet)
    elif isinstance(packet, Unsubscribe):
        on_unsubscribe(broker, connection, packet)
    elif isinstance(packet, Disconnect):
        on_disconnect(broker, connection, packet)
    elif isinstance(packet, Auth):
        on_auth(broker, connection, packet)


def on_ack(broker: "Broker", connection: Connection, kind: int, packet_id: int, reason: int) -> None:
    session = connection.session
    assert session is not None
    if kind == PUBACK:
        on_puback(broker, session, packet_id)
    elif kind == PUBREC:
        on_pubrec(broker, session, connection, packet_id, reason)
    elif kind == PUBREL:
        on_pubrel(broker, connection, packet_id)
    else:
        on_pubcomp(broker, session, packet_id)


def forward(broker: "Broker", connection: Connection, data: bytes, run: PublishRun) -> None:
    """Pass a run on to all receivers on its route, as the bytes that came in where the receiver can be sent them."""
    route = run.route
    assert route is not None
    count = run.count
    first_offset = broker.log.order_beside(count, False)
    counters = broker.counters
    counters.messages_received[0] += count
    size = run.end - run.start
    payload = size - count * (len(route.topic_field) + 2)  # to the accuracy of a few header bytes
    counters.payload_received += payload
    is_v5 = connection.agreed.is_v5
    chunk: bytes | None = None
    converted: bytes | None = None
    slow = 0
    for receiver in route.receivers:
        session = receiver.session
        to = session.connection
        if to is None:
            slow += 1
            continue
        outbox = to.outbox
        agreed = to.agreed
        if outbox.size >= HIGH_WATER_BYTES and session.is_over_high_water(broker.now_ms):
            slow += 1
        if (
            not agreed.plain
            or session.snapshots
            or session.queue
            or session.resending
            or run.largest >= agreed.max_packet_size
        ):
            forward_singly(broker, connection, data, run, first_offset, to)
            continue
        if outbox.is_full():
            counters.dropped_slow += count
            continue
        if agreed.is_v5 == is_v5:
            if chunk is None:
                chunk = data if size == len(data) else data[run.start : run.end]
            piece = chunk
        else:
            if converted is None:
                converted = convert(data, run.start, run.end, is_v5)
            piece = converted
        outbox.pieces.append(piece)
        outbox.size += len(piece)
        counters.messages_sent[0] += count
        counters.sent_by_version[agreed.version & 7] += count
        counters.payload_sent += payload
        if not outbox.listed:
            broker.effects.write_to(to)
    if route.nodes and connection is not broker.elsewhere:
        item = LiveItem(route.nodes, None, data[run.start : run.end])
        item.publisher = connection.publisher
        item.topic_field = route.topic_field
        item.is_v5 = is_v5
        item.count = count
        item.largest = run.largest
        broker.effects.live.append(item)
    if route.recorded_live:
        broker.recorder.on_run(messages(broker, connection, data, run, first_offset))
    elif broker.recorder.publishing:
        broker.recorder.on_run([])
    if slow * 2 > len(route.receivers):
        connection.backpressured = has_slow_receivers(connection, broker.now_ms)


def has_slow_receivers(connection: Connection, now_ms: int) -> bool:
    """Return whether most receivers of this client's last topic are busy with what it sent before.

    Most, not some: a few slow readers must not slow down what the others get.
    """
    route = connection.last_route
    if route is None or route.groups:
        return False
    slow = 0
    present = 0
    for receiver in route.receivers:
        session = receiver.session
        if session.connection is not None:
            present += 1
            if session.is_over_high_water(now_ms):
                slow += 1
    return slow * 2 > present


def convert(data: bytes, start: int, end: int, from_v5: bool) -> bytes:
    """Return plain QoS 0 publishes in the form of the other version, with a property length more or less."""
    pieces: list[bytes] = []
    position = start
    while position < end:
        body = position + 1
        remaining = 0
        shift = 0
        while True:
            byte = data[body]
            body += 1
            remaining |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        position = body + remaining
        topic_end = body + 2 + (data[body] << 8 | data[body + 1])
        if from_v5:
            pieces.append(publish_head(0, remaining - 1))
            pieces.append(data[body:topic_end])
            pieces.append(data[topic_end + 1 : position])
        else:
            pieces.append(publish_head(0, remaining + 1))
            pieces.append(data[body:topic_end])
            pieces.append(b"\x00")
            pieces.append(data[topic_end:position])
    return b"".join(pieces)


def forward_singly(
    broker: "Broker", connection: Connection, data: bytes, run: PublishRun, first_offset: int, to: Connection
) -> None:
    """Pass a run on message by message, to a receiver for which each has to be looked at."""
    route = run.route
    session = to.session
    if route is None or session is None:
        return
    only = Route(route.topic_field, route.levels, route.generation, None)
    only.receivers = [receiver for receiver in route.receivers if receiver.session is session]
    broker.recorder.publishing = True
    for message in messages(broker, connection, data, run, first_offset):
        deliver(broker, message, only, connection.session)


def messages(
    broker: "Broker", connection: Connection, data: bytes, run: PublishRun, first_offset: int
) -> list[Message]:
    """Return the messages of a run."""
    route = run.route
    assert route is not None
    found: list[Message] = []
    position = run.start
    offset = first_offset
    while position < run.end:
        body = position + 1
        remaining = 0
        shift = 0
        while True:
            byte = data[body]
            body += 1
            remaining |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        position = body + remaining
        payload_start = body + len(route.topic_field) + (1 if connection.agreed.is_v5 else 0)
        message = Message(
            route.topic_field,
            data[payload_start:position],
            0,
            False,
            b"",
            connection.publisher,
            offset,
            broker.now_ms,
            NEVER,
            False,
        )
        found.append(message)
        offset += 1
    return found
