"""SUBSCRIBE and UNSUBSCRIBE."""

from typing import TYPE_CHECKING

from holdfast.broker.access import SUBSCRIBE as SUBSCRIBE_RIGHT
from holdfast.broker.delivery import write
from holdfast.broker.publishing import check_user_properties, redistribute
from holdfast.broker.seen import SUBSCRIBE_DENIED, Seen
from holdfast.broker.session import Connection, Session, Snapshot, Subscription
from holdfast.broker.snapshot import NOT_SINCE, begin, carry_over, end_all, step
from holdfast.broker.topics import SHARE, is_valid_filter, is_well_formed, split_share
from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.encode import encode_suback
from holdfast.protocol.mqtt.packets import SUBACK, UNSUBACK, V5, SubAck, Subscribe, SubscriptionRequest, Unsubscribe
from holdfast.protocol.mqtt.properties import Properties
from holdfast.protocol.mqtt.reasons import (
    NO_SUBSCRIPTION_EXISTED,
    NOT_AUTHORIZED,
    QUOTA_EXCEEDED,
    SUBSCRIBE_FAILURE_311,
    SUCCESS,
    TOPIC_FILTER_INVALID,
    reason_name,
)

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

FIRST_QUANTUM = 256


def on_subscribe(broker: "Broker", connection: Connection, packet: Subscribe) -> None:
    """Make a subscription of each filter in order, and answer one SUBACK, which goes before their snapshots."""
    session = connection.session
    assert session is not None
    identifier = 0
    since = NOT_SINCE
    properties = packet.properties
    check_user_properties(broker, properties)
    if properties is not None:
        if properties.subscription_ids is not None:
            identifier = properties.subscription_ids[0]
        since = parse_since(properties.user_property("holdfast-since"))
    reasons: list[int] = []
    begun: list[Snapshot] = []
    for request in packet.requests:
        reason = subscribe(broker, session, request, identifier, since, begun)
        if reason == NOT_AUTHORIZED:
            on_subscribe_denied(broker, connection, request)
        if reason >= 0x80 and not connection.agreed.is_v5:
            reason = SUBSCRIBE_FAILURE_311
        reasons.append(reason)
    write(connection, suback(connection, SUBACK, packet.packet_id, reasons))
    broker.effects.write_to(connection)
    for snapshot in begun:
        step(broker, snapshot, FIRST_QUANTUM)


def on_subscribe_denied(broker: "Broker", connection: Connection, request: SubscriptionRequest) -> None:
    broker.counters.subscribes_denied += 1
    if broker.effects.has_room_to_see():
        detail: dict[str, object] = {"filter": request.topic_filter, "qos": request.qos}
        broker.effects.seen.append(
            Seen(SUBSCRIBE_DENIED, connection, connection.client_id, connection.username, detail)
        )


def suback(connection: Connection, kind: int, packet_id: int, reasons: list[int]) -> bytes:
    """Return SUBACK or UNSUBACK, with the first failure in words where it fits [5: MQTT-3.9.2-1, 3.11.2-1]."""
    if connection.agreed.is_v5 and connection.agreed.reports_problems:
        for reason in reasons:
            if reason >= 0x80:
                properties = Properties()
                properties.reason_string = reason_name(reason)
                data = encode_suback(SubAck(kind, packet_id, reasons, properties), V5)
                if len(data) <= connection.agreed.max_packet_size:
                    return data
                break
    return encode_suback(SubAck(kind, packet_id, reasons), connection.agreed.version)


def parse_since(text: str | None) -> int:
    if text is None:
        return NOT_SINCE
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise ProtocolError(f"holdfast-since is {text!r}, expected an offset")
    return int(text)


def subscribe(
    broker: "Broker",
    session: Session,
    request: SubscriptionRequest,
    identifier: int,
    since: int,
    begun: list[Snapshot],
) -> int:
    """Make one subscription; returns the granted QoS, or the reason code that says why not."""
    settings = broker.settings
    share_name = b""
    topic_filter = request.topic_filter
    if topic_filter.startswith(SHARE):
        try:
            share_name, topic_filter = split_share(topic_filter)
        except ProtocolError:
            return TOPIC_FILTER_INVALID
    if not is_valid_filter(topic_filter, settings.max_topic_levels):
        return TOPIC_FILTER_INVALID
    levels = topic_filter.split(b"/")
    access = broker.access
    if access is not None and not access.may(
        SUBSCRIBE_RIGHT, session.owner, session.client_id, levels, request.qos, session.certified
    ):
        return NOT_AUTHORIZED
    old = session.subscriptions.get(request.topic_filter)
    if old is None and 0 < settings.max_subscriptions <= len(session.subscriptions):
        return QUOTA_EXCEEDED
    granted = min(request.qos, settings.max_qos)
    subscription = Subscription(
        session,
        request.topic_filter,
        levels,
        share_name,
        granted,
        request.no_local,
        request.retain_as_published,
        identifier,
    )
    broker.subscriptions.put(subscription)
    if session.record_id:
        broker.recorder.on_subscribed(session, subscription)
        if session.connection is not None:
            broker.hold(session.connection)
    # Shared subscriptions get none; Retain Handling decides for the rest [5: MQTT-3.3.1-9, 3.3.1-10, 3.3.1-11].
    wanted = request.retain_handling == 0 or (request.retain_handling == 1 and old is None)
    if old is not None:
        if wanted:
            end_all(broker, session, old)
        else:
            carry_over(session, old, subscription)
    if wanted and not share_name and settings.retain_available:
        begun.append(begin(broker, session, subscription, since))
    return granted


def on_unsubscribe(broker: "Broker", connection: Connection, packet: Unsubscribe) -> None:
    session = connection.session
    assert session is not None
    if not connection.agreed.is_v5:
        for topic_filter in packet.topic_filters:
            if not is_well_formed(topic_filter):  # UNSUBACK cannot say so [3.1.1: MQTT-4.7.1-2, 4.7.1-3, 4.8.0-1]
                raise ProtocolError(f"topic filter to unsubscribe is malformed: {topic_filter[:80]!r}")
    reasons: list[int] = []
    for topic_filter in packet.topic_filters:
        reasons.append(unsubscribe(broker, session, topic_filter))
    write(connection, suback(connection, UNSUBACK, packet.packet_id, reasons))
    broker.effects.write_to(connection)


def unsubscribe(broker: "Broker", session: Session, topic_filter: bytes) -> int:
    """End one subscription; returns the reason code of UNSUBACK."""
    subscription = session.subscriptions.get(topic_filter)
    if subscription is None:
        return NO_SUBSCRIPTION_EXISTED if is_well_formed(topic_filter) else TOPIC_FILTER_INVALID
    if session.record_id:
        broker.recorder.on_unsubscribed(session, topic_filter)
        if session.connection is not None:
            broker.hold(session.connection)
    end_all(broker, session, subscription)
    group = broker.subscriptions.group_of(subscription) if subscription.share_name else None
    broker.subscriptions.remove(subscription)
    if group is not None:
        redistribute(broker, session, group)
    return SUCCESS
