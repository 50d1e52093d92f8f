"""Clients as the dashboard lists them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from holdfast.broker.core import Broker
from holdfast.broker.session import FOREVER, Session

PORTION = 5000
Sort = Literal["client_id", "user", "address", "since", "received", "sent", "queued", "subscriptions"]


def address_of(session: Session) -> str:
    connection = session.connection
    return connection.peer.remote_address() if connection is not None else ""


def traffic(session: Session, name: str) -> int:
    """Bytes that the transport has counted; transports that do not count say 0."""
    connection = session.connection
    return int(getattr(connection.peer, name, 0)) if connection is not None else 0


def since_ms(session: Session) -> int:
    connection = session.connection
    return connection.connected_at_ms if connection is not None else session.created_at_ms


SORTS: dict[Sort, Callable[[Session], int | str]] = {
    "client_id": lambda session: session.client_id,
    "user": lambda session: session.owner,
    "address": address_of,
    "since": since_ms,
    "received": lambda session: traffic(session, "received"),
    "sent": lambda session: traffic(session, "sent"),
    "queued": lambda session: len(session.queue),
    "subscriptions": lambda session: len(session.subscriptions),
}


@dataclass
class ClientList:
    broker: Broker
    node: str

    async def find(self, search: str, state: str, sort: Sort, descending: bool) -> list[Session]:
        wanted = search.lower()
        found: list[Session] = []
        for number, session in enumerate(list(self.broker.sessions.values())):
            if number % PORTION == PORTION - 1:
                await asyncio.sleep(0)
            if state and (state == "connected") != session.attached:
                continue
            if wanted and not any(
                wanted in text.lower() for text in (session.client_id, session.owner, address_of(session))
            ):
                continue
            found.append(session)
        found.sort(key=lambda session: session.client_id)
        if sort != "client_id" or descending:
            found.sort(key=SORTS[sort], reverse=descending)
        return found

    def shape(self, session: Session) -> dict[str, object]:
        """Of a client of another node it is not known here from where it is connected, and what it sends."""
        connection = session.connection
        will = session.will
        return {
            "client_id": session.client_id,
            "user": session.owner,
            "connected": session.attached,
            "address": address_of(session),
            "node": (session.spread.node if session.spread is not None else "") or self.node,
            "protocol": session.protocol,
            "connected_at_ms": None if connection is None else connection.connected_at_ms,
            "created_at_ms": session.created_at_ms,
            "keep_alive_s": 0 if connection is None else connection.agreed.keep_alive_ms * 2 // 3000,
            "expiry_s": None if session.expiry_s == FOREVER else session.expiry_s,
            "expires_at_ms": session.expires_at_ms or None,
            "certificate": session.certified,
            "subscriptions": len(session.subscriptions),
            "inflight": len(session.inflight),
            "inflight_most": session.window,
            "queued": len(session.queue),
            "queued_bytes": session.queued_bytes,
            "received": traffic(session, "received"),
            "sent": traffic(session, "sent"),
            "will": None
            if will is None
            else {
                "topic": will.will.topic.decode(errors="replace"),
                "qos": will.will.qos,
                "retain": will.will.retain,
                "size": len(will.will.payload),
                "delay_s": will.delay_s,
            },
        }
