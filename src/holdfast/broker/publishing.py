"""What happens to a publish: rights, verdict on retaining, delivery, acknowledgement."""

from typing import TYPE_CHECKING, Final, final

from holdfast.broker.access import ANY_QOS, PUBLISH, RETAIN
from holdfast.broker.connection import Connection
from holdfast.broker.delivery import deliver
from holdfast.broker.message import (
    CLEARED,
    LIVE,
    NEVER,
    REFUSED_BUDGET,
    REFUSED_POLICY,
    REFUSED_SIZE,
    Message,
    Publisher,
)
from holdfast.broker.outbound import U16, write
from holdfast.broker.policy import REFUSE
from holdfast.broker.route import Route, policy_for
from holdfast.broker.session import Session
from holdfast.errors import MalformedPacket, ProtocolError
from holdfast.protocol.mqtt.encode import encode_ack
from holdfast.protocol.mqtt.packets import PUBACK as PUBACK_KIND
from holdfast.protocol.mqtt.packets import PUBLISH as PUBLISH_KIND
from holdfast.protocol.mqtt.packets import PUBREC as PUBREC_KIND
from holdfast.protocol.mqtt.packets import V5, Ack
from holdfast.protocol.mqtt.properties import Properties, decode_properties
from holdfast.protocol.mqtt.reasons import (
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED,
    PACKET_ID_NOT_FOUND,
    QOS_NOT_SUPPORTED,
    QUOTA_EXCEEDED,
    RECEIVE_MAXIMUM_EXCEEDED,
    RETAIN_NOT_SUPPORTED,
    SUCCESS,
    TOPIC_ALIAS_INVALID,
    reason_name,
)
from holdfast.protocol.wire import BYTE, Reader

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

# Every plain PUBACK there is: the packet that a publisher at QoS 1 is sent most.
PUBACKS: Final[list[bytes]] = [b"\x40\x02" + packet_id for packet_id in U16]
PUBREC: Final = b"\x50\x02"
PUBCOMP: Final = b"\x70\x02"
PUBACK_WITH_REASON: Final = b"\x40\x03"
PUBREC_WITH_REASON: Final = b"\x50\x03"
PUBCOMP_WITH_REASON: Final = b"\x70\x03"


@final
class Accepted:
    """What became of a publish: its offset in the log, and the reason code that its publisher would be told.

    The broker's own `offset` says something else as soon as a session waits for the message: then records of that
    session have taken the offsets after it.
    """

    def __init__(self, offset: int, reason: int) -> None:
        self.offset: Final = offset
        self.reason: Final = reason


def on_publish(broker: "Broker", connection: Connection, first: int, data: bytes, body: int, end: int) -> None:
    """A PUBLISH that the fast path does not take: any QoS, RETAIN, properties, aliases."""
    qos = first >> 1 & 3
    if qos == 3:  # [MQTT-3.3.1-4]
        raise MalformedPacket("QoS is 3, expected 0, 1 or 2")
    if qos == 0 and first & 8:  # [MQTT-3.3.1-2]
        raise MalformedPacket("DUP is set on a QoS 0 message")
    if end - body < 2:
        raise MalformedPacket("packet ends inside the topic")
    at = body + 2 + (data[body] << 8 | data[body + 1])
    if at + (2 if qos > 0 else 0) > end:
        raise MalformedPacket("packet ends inside the topic")
    field = data[body:at]
    packet_id = 0
    if qos > 0:
        packet_id = data[at] << 8 | data[at + 1]
        if packet_id == 0:
            raise ProtocolError("packet identifier is 0, expected 1 to 65535")
        at += 2
    properties: Properties | None = None
    if connection.is_v5:
        if at < end and data[at] == 0:
            at += 1
        else:
            reader = Reader(data, at, end)
            properties = decode_properties(reader, PUBLISH_KIND)
            at = reader.position
            if properties is not None:
                field = resolve_alias(broker, connection, field, properties)
                check_user_properties(broker, properties)
                if properties.subscription_ids is not None:  # [5: MQTT-3.3.4-6]
                    raise ProtocolError("a client's PUBLISH carries a subscription identifier")
        if len(field) == 2:
            raise ProtocolError("topic name is empty and there is no topic alias")
    route = broker.route_of(connection, field)
    check_capabilities(broker, connection, qos, first & 1 != 0)
    session = connection.session
    assert session is not None
    broker.counters.messages_received[qos] += 1
    broker.counters.payload_received += end - at
    if qos == 2:
        if packet_id in session.unreleased:  # [3.1.1: MQTT-4.3.3-2] [5: MQTT-4.3.3-10]
            acknowledge(broker, connection, 2, packet_id, SUCCESS)
            return
        if connection.is_v5 and len(session.unreleased) >= broker.settings.receive_maximum:  # [5: MQTT-3.3.4-7]
            raise ProtocolError("more QoS 2 messages under way than the receive maximum", RECEIVE_MAXIMUM_EXCEEDED)
    retain = first & 1 != 0 and broker.settings.retain_available
    expires_at_ms = NEVER
    if properties is not None and properties.message_expiry is not None:
        # A message that is already expired must not look like one that never does.
        expires_at_ms = broker.now_ms + properties.message_expiry * 1000
    reason = SUCCESS
    if qos > 0 and broker.log is not None and not broker.log.healthy and must_be_kept(route, retain):
        # Nothing can be made durable now. 3.1.1 has no word for that but to hang up without acknowledging.
        broker.counters.publishes_refused += 1
        if not connection.is_v5:
            raise ProtocolError("the message cannot be stored now: the disk is full or failing", QUOTA_EXCEEDED)
        acknowledge(broker, connection, qos, packet_id, QUOTA_EXCEEDED)
        return
    if route.reserved or (broker.access is not None and not may_publish(broker, connection, field, retain, qos)):
        reason = NOT_AUTHORIZED
        broker.counters.publishes_refused += 1
    else:
        message = Message(
            route.topic_field,
            data[at:end],
            qos,
            retain,
            b"" if properties is None else properties.forward,
            connection.publisher,
            broker.offset + 1,
            broker.now_ms,
            expires_at_ms,
            expires_at_ms != NEVER,
        )
        reason = accept(broker, message, route, session, connection.is_v5 and qos > 0)
    if qos > 0:
        if qos == 2 and reason < 0x80:
            session.unreleased.add(packet_id)
            if broker.log is not None:
                broker.log.on_received(broker, session, packet_id)
        acknowledge(broker, connection, qos, packet_id, reason)


def check_user_properties(broker: "Broker", properties: Properties | None) -> None:
    most = broker.settings.max_user_properties
    if most > 0 and properties is not None and properties.user_properties is not None:
        count = len(properties.user_properties)
        if count > most:
            raise ProtocolError(f"packet has {count} user properties, expected no more than {most}", QUOTA_EXCEEDED)


def must_be_kept(route: Route, retain: bool) -> bool:
    return retain or route.recorded or route.persistent


def resolve_alias(broker: "Broker", connection: Connection, field: bytes, properties: Properties) -> bytes:
    """The topic an alias stands for [5: MQTT-3.3.2-12], which is learnt or looked up."""
    alias = properties.topic_alias
    if alias is None:
        return field
    if alias > broker.settings.topic_alias_maximum:  # [5: MQTT-3.2.2-17]
        raise ProtocolError(
            f"topic alias is {alias}, expected no more than {broker.settings.topic_alias_maximum}", TOPIC_ALIAS_INVALID
        )
    if len(field) > 2:
        connection.aliases_in[alias] = field
        return field
    known = connection.aliases_in.get(alias)
    if known is None:
        raise ProtocolError(f"topic alias {alias} was never given a topic")
    return known


def check_capabilities(broker: "Broker", connection: Connection, qos: int, retain: bool) -> None:
    settings = broker.settings
    if qos > settings.max_qos:  # [5: MQTT-3.2.2-11]
        raise ProtocolError(f"QoS is {qos}, expected no more than {settings.max_qos}", QOS_NOT_SUPPORTED)
    if retain and not settings.retain_available and connection.is_v5:  # [5: MQTT-3.2.2-14]
        raise ProtocolError("RETAIN is set, but retained messages are off", RETAIN_NOT_SUPPORTED)


def may_publish(broker: "Broker", connection: Connection, field: bytes, retain: bool, qos: int = ANY_QOS) -> bool:
    """Asked for every publish, so the answer is remembered per topic until the rules change."""
    if connection.rights_generation != broker.rights_generation or len(connection.rights) > 4096:
        connection.rights.clear()
        connection.rights_generation = broker.rights_generation
    key = b"r" + field if retain else field
    access = broker.access
    if access is not None and access.asks_qos:
        key = BYTE[qos] + key
    known = connection.rights.get(key)
    if known is None:
        certified = connection.identity != ""
        known = check_publish(broker, connection.username, connection.client_id, field[2:], retain, qos, certified)
        connection.rights[key] = known
    return known


def check_publish(
    broker: "Broker",
    username: str,
    client_id: str,
    topic: bytes,
    retain: bool,
    qos: int = ANY_QOS,
    certified: bool = False,
) -> bool:
    access = broker.access
    if access is None:
        return True
    levels = topic.split(b"/")
    return access.may(PUBLISH, username, client_id, levels, qos, certified) and (
        not retain or access.may(RETAIN, username, client_id, levels, qos, certified)
    )


def accept(broker: "Broker", message: Message, route: Route, sender: Session | None, can_be_told: bool) -> int:
    """Take a publish into the log: the verdict on retaining, then delivery. Returns the reason to acknowledge with."""
    broker.offset += 1
    outcome: int = LIVE
    log = None if route.reserved else broker.log  # what the broker says of itself is made anew at every start
    if message.retain:
        retained = broker.retained
        policy = policy_for(route, message.publisher.username)
        if policy is not None and policy.action == REFUSE:
            retained.refuse(REFUSED_POLICY)
            if log is not None:
                log.end_publish(broker, message, REFUSED_POLICY, route.recorded)
            return NOT_AUTHORIZED
        outcome = retained.judge(message, policy, broker.now_ms)
        strict = broker.settings.strict_limits and REFUSED_SIZE <= outcome <= REFUSED_BUDGET
        if strict and retained.index.get(message.topic) is not None:
            # By the letter of the standard the new message replaces the old one, even if it cannot be kept itself.
            outcome = CLEARED
        stored = retained.apply(message, route.levels, outcome, policy, broker.now_ms)
        if strict and can_be_told:
            if log is not None:
                log.end_publish(broker, stored, outcome, route.recorded)
            return QUOTA_EXCEEDED
        if log is None:
            if outcome == REFUSED_POLICY:
                message = message.without_retain()
        else:
            return accept_logged(broker, message, stored, outcome, route, sender)
    elif log is not None:
        return accept_logged(broker, message, message, outcome, route, sender)
    if route.receivers or route.groups:
        if deliver(broker, message, route, sender) > 0:
            return SUCCESS
    return NO_MATCHING_SUBSCRIBERS


def accept_logged(
    broker: "Broker", message: Message, stored: Message, outcome: int, route: Route, sender: Session | None
) -> int:
    """Deliver, then record the publish as it is stored, together with the sessions that now wait for it."""
    log = broker.log
    assert log is not None
    log.begin_publish()
    live = message.without_retain() if outcome == REFUSED_POLICY else message
    count = deliver(broker, live, route, sender)
    log.end_publish(broker, stored, outcome, route.recorded)
    return SUCCESS if count > 0 else NO_MATCHING_SUBSCRIBERS


def acknowledge(broker: "Broker", connection: Connection, qos: int, packet_id: int, reason: int) -> None:
    """PUBACK or PUBREC. 3.1.1 has no reasons: what was refused is acknowledged all the same [3.1.1: MQTT-3.3.5-2]."""
    if reason == SUCCESS or not connection.is_v5:
        write(connection, PUBACKS[packet_id] if qos == 1 else PUBREC + U16[packet_id])
    elif reason < 0x80 or not connection.reports_problems:
        write(connection, (PUBACK_WITH_REASON if qos == 1 else PUBREC_WITH_REASON) + U16[packet_id] + BYTE[reason])
    else:
        write(connection, refusal(connection, qos, packet_id, reason))
    broker.touch(connection)
    if broker.log is not None:
        broker.log.guard(connection)


def refusal(connection: Connection, qos: int, packet_id: int, reason: int) -> bytes:
    """An acknowledgement that says why not, in words where they fit [5: MQTT-3.4.2-2, 3.5.2-2]."""
    kind = PUBACK_KIND if qos == 1 else PUBREC_KIND
    properties = Properties()
    properties.reason_string = reason_name(reason)
    data = encode_ack(Ack(kind, packet_id, reason, properties), V5)
    if len(data) > connection.max_packet_size:
        data = encode_ack(Ack(kind, packet_id, reason), V5)
    return data


def on_pubrel(broker: "Broker", connection: Connection, packet_id: int) -> None:
    session = connection.session
    assert session is not None
    if packet_id in session.unreleased:
        session.unreleased.discard(packet_id)
        write(connection, PUBCOMP + U16[packet_id])
        if broker.log is not None and session.record_id:
            broker.log.on_released(broker, session, packet_id)
            broker.log.guard(connection)
    elif connection.is_v5:
        write(connection, PUBCOMP_WITH_REASON + U16[packet_id] + BYTE[PACKET_ID_NOT_FOUND])
    else:
        write(connection, PUBCOMP + U16[packet_id])
    broker.touch(connection)


def publish_as(
    broker: "Broker",
    publisher: Publisher,
    topic: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    properties: bytes = b"",
    expiry_s: int = -1,
    sender: Session | None = None,
) -> Accepted:
    """Accept a publish that did not come in a PUBLISH: a will, a system topic, a call of the API. The caller has asked
    for rights.
    """
    field = len(topic).to_bytes(2, "big") + topic
    route = broker.find_route(field)
    expires_at_ms = broker.now_ms + expiry_s * 1000 if expiry_s >= 0 else NEVER
    message = Message(
        field,
        payload,
        qos,
        retain and broker.settings.retain_available,
        properties,
        publisher,
        broker.offset + 1,
        broker.now_ms,
        expires_at_ms,
        expiry_s >= 0,
    )
    return Accepted(message.offset, accept(broker, message, route, sender, False))
