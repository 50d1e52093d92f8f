"""What a client can be owed: copies of messages, and the snapshots they belong to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from model.fold import Publication
from model.steps import Wish
from wire_packets import Publish
from wire_properties import P


class Mismatch(AssertionError):
    """The broker did something that the model does not allow."""


@dataclass(frozen=True)
class Copy:
    """A copy that is owed to someone."""

    publication: Publication
    qos: int
    retain: bool
    identifiers: tuple[int, ...] = ()

    def __str__(self) -> str:
        return describe(self.publication.topic, self.publication.payload, self.qos, self.retain, list(self.identifiers))


def describe(topic: str, payload: bytes, qos: int, retain: bool, identifiers: list[int]) -> str:
    shown = f"{topic} {payload!r} q{qos} r{int(retain)}"
    return f"{shown} ids {identifiers}" if identifiers else shown


def shown(packet: Publish) -> str:
    text = describe(packet.topic, packet.payload, packet.qos, packet.retain, packet.props(P.SUBSCRIPTION_ID))
    return f"{text} dup" if packet.dup else text


@dataclass
class Subscription:
    wish: Wish
    identifier: int

    @property
    def identifiers(self) -> tuple[int, ...]:
        return (self.identifier,) if self.identifier else ()


@dataclass
class Snapshot:
    """What a new subscription is owed of the set as it was.

    `early` are topics that a plain message has overtaken: their retained copy was put in line before it, and may still
    come after a change. `changed` holds such copies. `soft` are topics that another snapshot may have been sent for,
    `told_live` those whose later change the client learns of anyway. One that has `rested` while its client was away
    goes on when it is back, and may tell all where it was to tell changes.
    """

    subscription: Subscription
    pending: dict[str, Publication]
    number: int
    marked: bool
    since: int | None = None
    deleted: dict[str, int] = field(default_factory=dict)
    early: set[str] = field(default_factory=set)
    changed: dict[str, list[Publication]] = field(default_factory=dict)
    soft: set[str] = field(default_factory=set)
    told_live: set[str] = field(default_factory=set)
    consumed: dict[int, int] = field(default_factory=dict)  # number of the publish to when its copy came
    begun: int = 0
    newest: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    alone: bool = True
    over: bool = False
    full: bool = True  # as the end marker says
    rested: bool = False

    def copy_of(self, publication: Publication) -> Copy:
        qos = min(publication.qos, self.subscription.wish.qos)
        return Copy(publication, qos, True, self.subscription.identifiers)

    def allows(self, publication: Publication) -> bool:
        """Whether a copy of it would not come after a newer one."""
        return publication.number >= self.newest.get(publication.topic, 0)

    def took(self, publication: Publication, since: int) -> bool:
        """Whether a copy that came since then was taken for this snapshot's."""
        return self.consumed.get(publication.number, -1) >= since


def listed(copies: Iterable[Copy]) -> str:
    shown_copies = [str(copy) for copy in copies]
    more = f" ... ({len(shown_copies)})" if len(shown_copies) > 8 else ""
    return ", ".join(shown_copies[:8]) + more if shown_copies else "none"
