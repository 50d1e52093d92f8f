"""What is owed to groups that share a subscription."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from model.debts import Copy, Mismatch, Subscription
from model.fold import Publication
from wire_packets import Publish

if TYPE_CHECKING:
    from model.person import Person


@dataclass
class Due:
    """A message for one member of a group; `certain` while none of its members has had a chance to lose it."""

    group: str
    publication: Publication
    copies: dict[str, Copy]
    certain: bool


class Pool:
    """What is owed to groups that share a subscription: one copy, to whichever member."""

    def __init__(self) -> None:
        self.dues: list[Due] = []
        self.given: list[Due] = []  # a member that leaves before acknowledging passes its QoS 1 copies on

    def take(self, person: Person, packet: Publish, now_ms: int) -> bool:
        for due in sorted(self.dues, key=lambda due: not due.certain):
            if self.fits(due, person, packet, now_ms):
                if packet.payload:  # empty ones look alike: any of them may be meant
                    self.dues.remove(due)
                    due.certain = False
                    self.given.append(due)
                return True
        return False

    def take_again(self, person: Person, packet: Publish, now_ms: int) -> bool:
        """A copy that somebody else was given and never acknowledged."""
        return any(self.fits(due, person, packet, now_ms) for due in self.given)

    def fits(self, due: Due, person: Person, packet: Publish, now_ms: int) -> bool:
        copies = [due.copies[person.name]] if person.name in due.copies else []
        if not due.certain:
            copies += [shared_copy(due.publication, each) for each in person.shared.get(due.group, [])]
        return any(person.is_same(copy, packet, now_ms) for copy in copies)

    def unsettle(self, name: str) -> list[tuple[str, str]]:
        """Where the share of this member ends up is open; the groups and topics that this is about."""
        about = []
        for due in (*self.dues, *self.given):
            if name in due.copies:
                due.certain = False
                about.append((due.group, due.publication.topic))
        return about

    def owes(self, name: str, topic: str) -> bool:
        return any(due.publication.topic == topic and name in due.copies for due in (*self.dues, *self.given))

    def check_settled(self) -> None:
        if owed := [str(next(iter(due.copies.values()))) for due in self.dues if due.certain]:
            raise Mismatch(f"nobody of the group got {owed}")


def shared_copy(publication: Publication, subscription: Subscription) -> Copy:
    wish = subscription.wish
    qos = min(publication.qos, wish.qos)
    return Copy(publication, qos, publication.retain and wish.as_published, subscription.identifiers)
