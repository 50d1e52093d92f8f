"""A message that a sensor publishes, with a connection or without one."""

from typing import TYPE_CHECKING, Final

from holdfast.broker.message import NEVER, Message, Publisher
from holdfast.broker.publishing import accept, check_publish, may_publish, must_be_kept, publish_as, release_packet_id
from holdfast.broker.session import Connection, Session
from holdfast.broker.topics import matches
from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.reasons import NOT_AUTHORIZED, QOS_NOT_SUPPORTED, QUOTA_EXCEEDED, SUCCESS

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

WITHOUT_12: Final = Publisher("", "", "SN1.2")
WITHOUT_2: Final = Publisher("", "", "SN2.0")


def take_publish(
    broker: "Broker",
    connection: Connection,
    session: Session,
    field: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    packet_id: int,
) -> int:
    """The reason to acknowledge with, in MQTT 5's numbers; SUCCESS for a QoS 2 message that came before."""
    route = broker.route_of(connection, field)
    if qos > broker.settings.max_qos:
        raise ProtocolError(f"QoS is {qos}, expected no more than {broker.settings.max_qos}", QOS_NOT_SUPPORTED)
    broker.counters.messages_received[qos] += 1
    broker.counters.received_by_version[connection.agreed.version] += 1
    broker.counters.payload_received += len(payload)
    if qos == 2 and packet_id in session.unreleased:  # [SN2: 4.3.4-11]
        return SUCCESS
    if qos > 0 and not broker.log.healthy and must_be_kept(route, retain):
        broker.counters.publishes_refused += 1
        return QUOTA_EXCEEDED
    if route.reserved or (broker.access is not None and not may_publish(broker, connection, field, retain, qos)):
        broker.counters.publishes_refused += 1
        return NOT_AUTHORIZED
    message = Message(
        route.topic_field,
        payload,
        qos,
        retain and broker.settings.retain_available,
        b"",
        connection.publisher,
        0,
        broker.now_ms,
        NEVER,
        False,
    )
    reason = accept(broker, message, route, session, False)
    if reason >= 0x80:
        return reason
    if qos == 2:
        session.unreleased.add(packet_id)
        broker.recorder.on_received(session, packet_id)
    return SUCCESS


def release(broker: "Broker", connection: Connection, session: Session, packet_id: int) -> bool:
    """PUBREL; False when the packet id is not known."""
    if packet_id not in session.unreleased:
        return False
    release_packet_id(broker, connection, session, packet_id)
    return True


def publish_openly(
    broker: "Broker", publisher: Publisher, filters: list[list[bytes]], field: bytes, payload: bytes, retain: bool
) -> bool:
    """A message from nobody in particular; only for topics that the configuration names."""
    topic = field[2:]
    levels = topic.split(b"/")
    allowed = False
    for levels_of_filter in filters:
        if matches(levels_of_filter, levels):
            allowed = True
            break
    if not allowed or broker.find_route(field).reserved or not check_publish(broker, "", "", topic, retain):
        return False
    broker.counters.messages_received[0] += 1
    broker.counters.payload_received += len(payload)
    publish_as(broker, publisher, topic, payload, 0, retain)
    return True
