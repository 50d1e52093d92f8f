"""What mosquitto keeps, whichever file it keeps it in: messages by a number, and rows that point at them.

`assemble` makes an inventory of the rows. Files of real life have rows that point at nothing and sessions without an
end; mosquitto passes over them when it starts, and so does this, but says so.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from holdfast.errors import ProtocolError
from holdfast.migration.inventory import (
    EXPIRED,
    NO_MESSAGE,
    QUEUED,
    RETAINED,
    SESSIONS,
    SUBSCRIPTIONS,
    WILLS,
    FoundDelivery,
    FoundMessage,
    FoundSession,
    FoundSubscription,
    Inventory,
    is_topic,
    is_topic_filter,
)
from holdfast.protocol.mqtt.packets import PUBLISH, V5, V311
from holdfast.protocol.mqtt.properties import decode_properties
from holdfast.protocol.wire import Reader, decode_text

# `enum mosquitto_msg_direction` and `enum mosquitto_msg_state`.
FROM_CLIENT: Final = 0
TO_CLIENT: Final = 1
WAIT_FOR_PUBREL: Final = 7
SEND_PUBREC: Final = 10
QUEUED_STATE: Final = 11
RELEASED_STATES: Final = (6, 9)  # resend_pubrel, wait_for_pubcomp

FOREVER_S: Final = 0xFFFFFFFF
LAST_PACKET_ID: Final = 65535

# Retain Handling and the bits above it say how a subscription began, not how it goes on.
KEPT_OPTIONS: Final = 0x0F


@dataclass(frozen=True, slots=True)
class ClientRow:
    """`username` is None in a file that does not say. `expires_at_s` is 0 while the client is connected."""

    client_id: bytes
    username: bytes | None
    expiry_interval_s: int
    expires_at_s: int = 0


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    client_id: bytes
    topic_filter: bytes
    options: int
    identifier: int = 0


@dataclass(frozen=True, slots=True)
class ClientMessageRow:
    client_id: bytes
    message: Hashable
    packet_id: int
    qos: int
    retain: bool
    direction: int
    state: int
    identifiers: tuple[int, ...] = ()


@dataclass
class MosquittoStore:
    messages: dict[Hashable, FoundMessage] = field(default_factory=dict)
    retained: list[Hashable] = field(default_factory=list)
    clients: list[ClientRow] = field(default_factory=list)
    subscriptions: list[SubscriptionRow] = field(default_factory=list)
    client_messages: list[ClientMessageRow] = field(default_factory=list)
    wills: int = 0


def assemble(store: MosquittoStore, found: Inventory, owner: str | None, now_ms: int) -> None:
    """Fill the inventory. `owner` is whose sessions they are where the file does not say; None leaves them behind."""
    for key in store.retained:
        message = store.messages.get(key)
        if message is None:
            found.leave(RETAINED, NO_MESSAGE)
        else:
            found.add_retained(message, now_ms)
    known = add_clients(store, found, owner, now_ms)
    add_subscriptions(store, found, known)
    add_client_messages(store, found, known, now_ms)
    for session in found.sessions.values():
        if speaks_v5(session):
            session.version = V5
    if store.wills:
        found.leave(WILLS, "a will goes with its connection; the client brings it again", store.wills)


def add_clients(store: MosquittoStore, found: Inventory, owner: str | None, now_ms: int) -> dict[bytes, str]:
    """Returns why a session stays behind, by client id, with an empty reason for those that come."""
    known: dict[bytes, str] = {}
    for row in store.clients:
        reason = why_not(row, owner, now_ms)
        known[row.client_id] = reason
        if reason:
            found.leave(SESSIONS, reason)
            continue
        username = owner if row.username is None else row.username.decode()
        assert username is not None
        disconnected_at_ms = 0
        if row.expires_at_s and row.expiry_interval_s != FOREVER_S:
            disconnected_at_ms = max(0, row.expires_at_s - row.expiry_interval_s) * 1000
        client_id = row.client_id.decode()
        found.sessions[client_id] = FoundSession(
            client_id, username, V311, row.expiry_interval_s, min(disconnected_at_ms, now_ms)
        )
    return known


def why_not(row: ClientRow, owner: str | None, now_ms: int) -> str:
    if not row.client_id:
        return "without a client id"
    if not is_text(row.client_id) or not is_text(row.username or b""):
        return "client id or user name is not text"
    if row.username is None and owner is None:
        return "the file does not say whose they are (--owner says it)"
    if row.expiry_interval_s == 0:
        return "ended with its connection"
    if row.expiry_interval_s != FOREVER_S and row.expires_at_s and row.expires_at_s * 1000 <= now_ms:
        return EXPIRED
    return ""


def add_subscriptions(store: MosquittoStore, found: Inventory, known: dict[bytes, str]) -> None:
    for row in store.subscriptions:
        reason = known.get(row.client_id, "no session in the file")
        if not reason and not is_topic_filter(row.topic_filter):
            reason = "no topic filter by the standard"
        if not reason and row.options & 3 == 3:
            reason = "its QoS is 3"
        if reason:
            found.leave(SUBSCRIPTIONS, reason)
            continue
        session = found.sessions[row.client_id.decode()]
        options = row.options & KEPT_OPTIONS
        session.subscriptions[row.topic_filter] = FoundSubscription(row.topic_filter, options, row.identifier)


def add_client_messages(store: MosquittoStore, found: Inventory, known: dict[bytes, str], now_ms: int) -> None:
    under_way: set[tuple[bytes, int]] = set()
    for row in store.client_messages:
        message = store.messages.get(row.message)
        reason = known.get(row.client_id, "no session in the file")
        if not reason:
            reason = why_no_delivery(row, message, now_ms)
        if reason:
            found.leave(QUEUED, reason)
            continue
        assert message is not None
        session = found.sessions[row.client_id.decode()]
        if row.direction == FROM_CLIENT:
            session.received[row.packet_id] = message
            continue
        packet_id = 0 if row.state == QUEUED_STATE else row.packet_id
        if (row.client_id, packet_id) in under_way:
            packet_id = 0
        under_way.add((row.client_id, packet_id))
        released = packet_id > 0 and row.state in RELEASED_STATES
        session.queue.append(FoundDelivery(message, row.qos, row.retain, row.identifiers, packet_id, released))


def why_no_delivery(row: ClientMessageRow, message: FoundMessage | None, now_ms: int) -> str:
    if message is None:
        return NO_MESSAGE
    if not is_topic(message.topic) or row.qos > 2:
        return "topic or QoS is not valid"
    if row.qos == 0:
        return "QoS 0, which does not wait here for absent clients"
    if message.expired(now_ms) and row.state == QUEUED_STATE:
        return EXPIRED
    if row.direction == FROM_CLIENT:
        if row.packet_id == 0 or row.state not in (WAIT_FOR_PUBREL, SEND_PUBREC):
            return "not acknowledged yet: the client sends it again"
        return ""
    return "" if row.direction == TO_CLIENT else "neither to nor from a client"


def speaks_v5(session: FoundSession) -> bool:
    """Whether what is known of a session can only come from a client of MQTT 5."""
    return session.expiry_interval_s != FOREVER_S or any(
        one.identifier or one.options > 2 for one in session.subscriptions.values()
    )


def is_text(data: bytes) -> bool:
    if len(data) > 65535:
        return False
    try:
        decode_text(data)
    except ProtocolError:
        return False
    return True


def forwarded(block: bytes) -> tuple[bytes, tuple[int, ...]]:
    """What a property block of a PUBLISH, with its length in front, passes on, and its subscription identifiers. Raises
    ProtocolError for what no PUBLISH may carry.
    """
    if not block:
        return b"", ()
    properties = decode_properties(Reader(block), PUBLISH)
    if properties is None:
        return b"", ()
    return properties.forward, tuple(properties.subscription_ids or ())
