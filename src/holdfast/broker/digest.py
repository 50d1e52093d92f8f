"""One number for everything that nodes which have read the same must hold alike."""

from hashlib import blake2b
from typing import TYPE_CHECKING

from holdfast.broker.message import SET
from holdfast.broker.records import encode_publish
from holdfast.broker.session import Delivery, Session

if TYPE_CHECKING:
    from holdfast.broker.core import Broker


def state_digest(broker: "Broker") -> str:
    """Return the hash of the retained set and of all sessions as of the last message of the log that was read."""
    shared = broker.shared
    assert shared is not None
    digest = blake2b(digest_size=16)
    digest.update(b"%d %d" % (shared.sequence, shared.log.position))
    for text in retained_lines(broker, shared.time_ms):
        digest.update(text)
    sessions = sorted(broker.sessions.values(), key=by_record)
    for session in sessions:
        digest.update(repr(session_values(session)).encode())
    return digest.hexdigest()


def by_record(session: Session) -> int:
    return session.record_id


def retained_lines(broker: "Broker", now_ms: int) -> list[bytes]:
    index = broker.retained.index
    cursor = index.everything()
    lines: list[bytes] = []
    while not cursor.ended:
        message = cursor.next(1 << 30)
        if message is not None and not message.expired(now_ms) and not message.topic.startswith(b"$SYS/"):
            lines.append(message.topic + b"\0" + encode_publish(message, SET, False, False))
    index.release(cursor)
    lines.sort()
    return lines


def session_values(session: Session) -> tuple[object, ...]:
    spread = session.spread
    connection_id = spread.connection_id if spread is not None else 0
    given = sorted(spread.given) if spread is not None else []
    subscriptions = sorted(
        [
            (one.topic_filter, one.qos, one.no_local, one.retain_as_published, one.identifier)
            for one in session.subscriptions.values()
            if session.kept or one.share_name
        ]
    )
    will = session.will
    values = (
        session.client_id,
        session.owner,
        session.record_id,
        session.kept,
        session.attached,
        connection_id,
        session.expiry_s,
        session.expires_at_ms,
        sorted(session.unreleased),
        given,
        subscriptions,
        None if will is None else (will.will.topic, will.will.payload, will.due_ms),
    )
    if not session.kept:
        return values
    queue = [delivery_values(one) for one in session.queue]
    inflight = sorted([(packet_id, delivery_values(one)) for packet_id, one in session.inflight.items()])
    return (*values, queue, inflight)


def delivery_values(delivery: Delivery) -> tuple[object, ...]:
    return delivery.sequence, delivery.message.offset, delivery.qos, delivery.retain, delivery.stage
