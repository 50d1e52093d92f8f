"""SUBSCRIBE and UNSUBSCRIBE.

A packet may have many filters, and a client may ask for deletions of long ago: no packet may stop the broker for
others, so both are gone through in portions. What the client sends after it waits until it is answered.
"""

from typing import TYPE_CHECKING, Final

from holdfast.broker import kept
from holdfast.broker.access import SUBSCRIBE as SUBSCRIBE_RIGHT
from holdfast.broker.delivery import write
from holdfast.broker.publishing import check_user_properties, redistribute
from holdfast.broker.seen import SUBSCRIBE_DENIED, Seen
from holdfast.broker.session import Connection, Session, Snapshot, Subscription
from holdfast.broker.session_records import SubscriptionRecord
from holdfast.broker.snapshot import NOT_SINCE, begin, carry_over, end_all, step
from holdfast.broker.subscription import PendingFilters, SubscriptionTree
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

FIRST_QUANTUM: Final = 256
# What is done of a packet with many filters before other clients have their turn.
FILTERS_PER_STEP: Final = 64
DELETIONS_PER_STEP: Final = 512
# How many deletions are looked up for one packet; a client that missed more is sent the whole set.
MOST_DELETIONS: Final = 200_000


def on_subscribe(broker: "Broker", connection: Connection, packet: Subscribe) -> None:
    """Make a subscription of each filter in order, and answer one SUBACK, which goes before their snapshots."""
    properties = packet.properties
    check_user_properties(broker, properties)
    pending = PendingFilters(connection, packet.packet_id)
    pending.requests = packet.requests
    if properties is not None:
        if properties.subscription_ids is not None:
            pending.identifier = properties.subscription_ids[0]
        since = parse_since(properties.user_property("holdfast-since"))
        if since != NOT_SINCE and since <= broker.log.position:
            pending.since = since
            pending.collected = since
            pending.deleted = {}
    if broker.shared is not None:
        admit(broker, pending)
    else:
        start(broker, pending)


def on_unsubscribe(broker: "Broker", connection: Connection, packet: Unsubscribe) -> None:
    if not connection.agreed.is_v5:
        for topic_filter in packet.topic_filters:
            if not is_well_formed(topic_filter):  # UNSUBACK cannot say so [3.1.1: MQTT-4.7.1-2, 4.7.1-3, 4.8.0-1]
                raise ProtocolError(f"topic filter to unsubscribe is malformed: {topic_filter[:80]!r}")
    pending = PendingFilters(connection, packet.packet_id)
    pending.topic_filters = packet.topic_filters
    if broker.shared is not None:
        propose_unsubscribe(broker, pending)
    else:
        start(broker, pending)


# Where nodes share a log.


def admit(broker: "Broker", pending: PendingFilters) -> None:
    """See which filters have to go through the log, and propose those that may be subscribed to. The others only wait
    until the log has come to what it is now, so that they find what anybody was told is stored.
    """
    connection = pending.connection
    session = connection.session
    shared = broker.shared
    assert session is not None
    assert shared is not None
    requests: list[SubscriptionRequest] = []
    new = 0
    for request in pending.requests:
        if not session.kept and not request.topic_filter.startswith(SHARE):
            pending.known.append(-1)
            continue
        reason = check_filter(broker, session, request, new)
        pending.known.append(reason)
        if reason < 0x80:
            requests.append(
                SubscriptionRequest(
                    request.topic_filter,
                    reason,
                    request.no_local,
                    request.retain_as_published,
                    request.retain_handling,
                )
            )
            if request.topic_filter not in session.subscriptions:
                new += 1
    if requests or shared.fresh_reads or connection.under_way > 0:
        shared.subscribe(connection, pending, requests)
    else:
        start(broker, pending)


def propose_unsubscribe(broker: "Broker", pending: PendingFilters) -> None:
    connection = pending.connection
    session = connection.session
    shared = broker.shared
    assert session is not None
    assert shared is not None
    topic_filters: list[bytes] = []
    for i in range(len(pending.topic_filters)):
        topic_filter = pending.topic_filters[i]
        if topic_filter in session.subscriptions and (session.kept or topic_filter.startswith(SHARE)):
            topic_filters.append(topic_filter)
            pending.known.append(SUCCESS)
        else:
            pending.known.append(-1)
    if topic_filters:
        shared.unsubscribe(connection, pending, topic_filters)
    else:
        start(broker, pending)


def put_subscription(broker: "Broker", session: Session, request: SubscriptionRequest, identifier: int) -> None:
    """Apply a subscription that was admitted by the node with the connection."""
    share_name = b""
    topic_filter = request.topic_filter
    if topic_filter.startswith(SHARE):
        share_name, topic_filter = split_share(topic_filter)
    old = session.subscriptions.get(request.topic_filter)
    subscription = Subscription(
        session,
        request.topic_filter,
        topic_filter.split(b"/"),
        share_name,
        request.qos,
        request.no_local,
        request.retain_as_published,
        identifier,
    )
    broker.subscriptions.put(subscription)
    broker.recorder.on_subscribed(session, subscription)
    if share_name:
        return
    # Retain Handling decides whether there is a snapshot [5: MQTT-3.3.1-9, 3.3.1-10, 3.3.1-11].
    wanted = request.retain_handling == 0 or (request.retain_handling == 1 and old is None)
    if old is not None:
        if wanted:
            kept.end_resting(broker, session, request.topic_filter)
        else:
            carry_over(old, subscription)
    if wanted and broker.settings.retain_available:
        kept.begin(broker, session, subscription)


def take_subscription(broker: "Broker", session: Session, subscription: Subscription) -> None:
    """Apply the end of a subscription."""
    broker.recorder.on_unsubscribed(session, subscription.topic_filter)
    kept.end_resting(broker, session, subscription.topic_filter)
    broker.subscriptions.remove(subscription)


# In portions.


def start(broker: "Broker", pending: PendingFilters) -> None:
    """Do the first portion, which is all of it for nearly every packet; the rest goes on in `Broker.work`."""
    if broker.filters_left <= 0 or not go_on(broker, pending):
        pending.connection.pending = pending
        broker.pending.append(pending)


def go_on(broker: "Broker", pending: PendingFilters) -> bool:
    """Do a portion of the filters of a packet; returns whether it is answered."""
    connection = pending.connection
    session = connection.session
    assert session is not None
    if pending.topic_filters:
        end = min(pending.position + broker.filters_left, len(pending.topic_filters))
        broker.filters_left -= end - pending.position
        for i in range(pending.position, end):
            known = pending.known[i] if pending.known else -1
            pending.reasons.append(known if known >= 0 else unsubscribe(broker, session, pending.topic_filters[i]))
        pending.position = end
        if end < len(pending.topic_filters):
            return False
        answer(broker, pending, UNSUBACK)
        return True
    if pending.deleted is not None and not collect_deleted(broker, pending):
        return False
    end = min(pending.position + broker.filters_left, len(pending.requests))
    broker.filters_left -= end - pending.position
    for i in range(pending.position, end):
        request = pending.requests[i]
        known = pending.known[i] if pending.known else -1
        reason = known if known >= 0 else subscribe(broker, session, request, pending)
        if reason == NOT_AUTHORIZED:
            on_subscribe_denied(broker, connection, request)
        if reason >= 0x80 and not connection.agreed.is_v5:
            reason = SUBSCRIBE_FAILURE_311
        pending.reasons.append(reason)
    pending.position = end
    if end < len(pending.requests):
        return False
    answer(broker, pending, SUBACK)
    for snapshot in pending.begun:
        send_first(broker, snapshot)
    return True


def send_first(broker: "Broker", snapshot: Snapshot) -> None:
    """Send the first messages of a snapshot right behind SUBACK, as far as the call at hand has not sent enough."""
    sent = snapshot.sent
    if broker.first_left > 0:
        step(broker, snapshot, broker.first_left)
        broker.first_left -= snapshot.sent - sent + 1
    else:
        broker.wake(snapshot)


def answer(broker: "Broker", pending: PendingFilters, kind: int) -> None:
    connection = pending.connection
    write(connection, suback(connection, kind, pending.packet_id, pending.reasons))
    broker.effects.write_to(connection)


def collect_deleted(broker: "Broker", pending: PendingFilters) -> bool:
    """Look for topics that were deleted since the client was last told, for all filters at once; returns whether all
    are found that there are up to now.
    """
    found = pending.deleted
    assert found is not None
    tombstones = broker.retained.tombstones
    if tombstones.known_since > pending.collected or pending.deletions > MOST_DELETIONS:
        pending.deleted = None  # what was forgotten meanwhile cannot be told: it is sent everything
        return True
    tree = pending.tree
    if tree is None:
        tree = tree_of(pending)
        pending.tree = tree
    left = DELETIONS_PER_STEP
    while left > 0:
        deletions = tombstones.read(pending.collected)
        if not deletions:
            return True
        left -= len(deletions)
        for deletion in deletions:
            field = deletion.topic_field
            for subscription in tree.match(field[2:].split(b"/")).subscriptions:
                topics = found.get(subscription.topic_filter)
                if topics is None:
                    topics = {}
                    found[subscription.topic_filter] = topics
                topics[field] = deletion.offset
                pending.deletions += 1
            pending.collected = deletion.offset
    return False


def tree_of(pending: PendingFilters) -> SubscriptionTree:
    tree = SubscriptionTree()
    nobody = Session("", "", 0)
    for request in pending.requests:
        levels = request.topic_filter.split(b"/")
        tree.put(Subscription(nobody, request.topic_filter, levels, b"", 0, False, False, 0))
    return tree


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


def subscribe(broker: "Broker", session: Session, request: SubscriptionRequest, pending: PendingFilters) -> int:
    """Make one subscription; returns the granted QoS, or the reason code that says why not."""
    settings = broker.settings
    granted = check_filter(broker, session, request)
    if granted >= 0x80:
        return granted
    share_name = b""
    topic_filter = request.topic_filter
    if topic_filter.startswith(SHARE):
        share_name, topic_filter = split_share(topic_filter)
    levels = topic_filter.split(b"/")
    old = session.subscriptions.get(request.topic_filter)
    subscription = Subscription(
        session,
        request.topic_filter,
        levels,
        share_name,
        granted,
        request.no_local,
        request.retain_as_published,
        pending.identifier,
    )
    broker.subscriptions.put(subscription)
    if broker.shared is not None and old is None:
        broker.shared.interest.add(topic_filter)
    if session.kept:
        broker.recorder.on_subscribed(session, subscription)
        if session.connection is not None:
            broker.hold(session.connection)
    # Shared subscriptions get none; Retain Handling decides for the rest [5: MQTT-3.3.1-9, 3.3.1-10, 3.3.1-11].
    wanted = request.retain_handling == 0 or (request.retain_handling == 1 and old is None)
    if old is not None:
        if wanted:
            end_all(broker, session, old)
        else:
            carry_over(old, subscription)
    if wanted and not share_name and settings.retain_available:
        deleted: dict[bytes, int] | None = None
        if pending.deleted is not None:
            deleted = dict(pending.deleted.get(request.topic_filter, {}))
        pending.begun.append(begin(broker, session, subscription, pending.since, deleted))
    return granted


def check_filter(broker: "Broker", session: Session, request: SubscriptionRequest, more: int = 0) -> int:
    """Return the QoS that a client is granted, or the reason code that says why it may not subscribe so. `more` are the
    subscriptions that it is about to have beside those it has.
    """
    settings = broker.settings
    topic_filter = request.topic_filter
    if topic_filter.startswith(SHARE):
        try:
            topic_filter = split_share(topic_filter)[1]
        except ProtocolError:
            return TOPIC_FILTER_INVALID
    if not is_valid_filter(topic_filter, settings.max_topic_levels):
        return TOPIC_FILTER_INVALID
    access = broker.access
    if access is not None:
        levels = topic_filter.split(b"/")
        if not access.may(SUBSCRIBE_RIGHT, session.owner, session.client_id, levels, request.qos, session.certified):
            return NOT_AUTHORIZED
    if request.topic_filter not in session.subscriptions:
        if 0 < settings.max_subscriptions <= len(session.subscriptions) + more:
            return QUOTA_EXCEEDED
    return min(request.qos, settings.max_qos)


def unsubscribe(broker: "Broker", session: Session, topic_filter: bytes) -> int:
    """End one subscription; returns the reason code of UNSUBACK."""
    subscription = session.subscriptions.get(topic_filter)
    if subscription is None:
        return NO_SUBSCRIPTION_EXISTED if is_well_formed(topic_filter) else TOPIC_FILTER_INVALID
    if session.kept:
        broker.recorder.on_unsubscribed(session, topic_filter)
        if session.connection is not None:
            broker.hold(session.connection)
    if broker.shared is not None and not subscription.share_name:
        broker.shared.interest.remove(topic_filter)
    end_all(broker, session, subscription)
    group = broker.subscriptions.group_of(subscription) if subscription.share_name else None
    broker.subscriptions.remove(subscription)
    if group is not None:
        redistribute(broker, session, group)
    return SUCCESS


def add_subscription(broker: "Broker", session: Session, record: SubscriptionRecord) -> None:
    """Make the subscription that a record keeps, in the place of an older one with the same filter."""
    share_name, topic_filter = b"", record.topic_filter
    if topic_filter.startswith(SHARE):
        share_name, topic_filter = split_share(topic_filter)
    subscription = Subscription(
        session,
        record.topic_filter,
        topic_filter.split(b"/"),
        share_name,
        record.options & 3,
        record.options & 4 != 0,
        record.options & 8 != 0,
        record.subscription_id,
    )
    broker.subscriptions.put(subscription)
