"""What is told of clients at `info`: who came, who left and why, whose login failed, what was denied.

A client that does the same again and again gets a few lines and then a count of those left out; so do all together. The
names in a line are what clients say of themselves.
"""

import logging
from collections.abc import Hashable
from typing import Final

from holdfast.broker.rate import LeakyBucket
from holdfast.broker.seen import CONNECT_REFUSED, LOGIN_FAILED, PUBLISH_DENIED, SUBSCRIBE_DENIED, Seen
from holdfast.identity.denials import Denials
from holdfast.identity.hosts import key_of_host

log = logging.getLogger("holdfast.clients")

# Lines of one client at once, and a second after that; and of all clients in one tick.
BURST: Final = 10
PER_SECOND: Final = 1.0
LINES_PER_TICK: Final = 100
# Clients whose rate is remembered before those are forgotten who have been quiet.
REMEMBERED_MOST: Final = 10_000
# How long after the first line that was left out the count is told, if no other line brings it.
TELL_AFTER_S: Final = 10.0


DENIED: Final = (LOGIN_FAILED, CONNECT_REFUSED, PUBLISH_DENIED, SUBSCRIBE_DENIED)


class Share:
    """The lines of one client: its rate, and what was left out since a time."""

    def __init__(self) -> None:
        self.bucket = LeakyBucket(PER_SECOND, BURST)
        self.left_out = 0
        self.since_s = 0.0
        self.last: dict[str, object] = {}


class Sightings:
    """Times are seconds of the caller's clock, those of denials milliseconds of the day's. Call `on_tick` a few times a
    second. `denials` are kept whatever the level of the log is.
    """

    def __init__(self) -> None:
        self.denials = Denials()
        self.shares: dict[Hashable, Share] = {}
        self.owing: set[Hashable] = set()  # the keys of shares with something left out
        self.lines_left = LINES_PER_TICK
        self.left_out = 0

    def write(self, events: list[Seen], unseen: int, now_s: float, now_ms: int = 0) -> None:
        """`unseen` were counted and not kept."""
        for seen in events:
            if seen.event in DENIED:
                address = seen.connection.peer.remote_address()
                self.denials.add(now_ms, seen.event, seen.client_id, seen.username, address, seen.detail)
        if not log.isEnabledFor(logging.INFO):
            return
        self.left_out += unseen
        for seen in events:
            self.tell(key_of(seen), seen.event, fields_of(seen), now_s)

    def deny(self, event: str, username: str, host: str, reason: str, now_s: float, now_ms: int) -> None:
        """Somebody was denied something who is no client: who calls the API."""
        self.denials.add(now_ms, event, "", username, host, {"reason": reason})
        if log.isEnabledFor(logging.INFO):
            fields: dict[str, object] = {"username": username, "address": host}
            self.tell(key_of_host(host), event, {**fields, "reason": reason} if reason else fields, now_s)

    def tell(self, key: Hashable, event: str, fields: dict[str, object], now_s: float) -> None:
        """A line, or one more that is left out, of whoever the key stands for."""
        share = self.shares.get(key)
        if share is None:
            if len(self.shares) >= REMEMBERED_MOST:
                self.forget_quiet(now_s)
            share = self.shares[key] = Share()
        if self.lines_left == 0 or not share.bucket.offer(now_s):
            if share.left_out == 0:
                share.since_s = now_s
                self.owing.add(key)
            share.left_out += 1
            share.last = fields
            return
        self.lines_left -= 1
        if share.left_out:
            fields["left_out"] = share.left_out
            self.owe_nothing(key, share)
        log.info(event, extra=fields)

    def owe_nothing(self, key: Hashable, share: Share) -> None:
        share.left_out = 0
        share.last = {}
        self.owing.discard(key)

    def forget_quiet(self, now_s: float) -> None:
        """Makes room. With ten thousand that are not quiet, all begin afresh, and what they owe is told in one sum."""
        self.shares = {key: share for key, share in self.shares.items() if share.left_out or share.bucket.drain(now_s)}
        if len(self.shares) >= REMEMBERED_MOST:
            self.left_out += sum(share.left_out for share in self.shares.values())
            self.shares.clear()
            self.owing.clear()

    def on_tick(self, now_s: float) -> None:
        self.lines_left = LINES_PER_TICK
        if self.left_out:
            log.info("more of clients left out", extra={"left_out": self.left_out})
            self.left_out = 0
        for key in [key for key in self.owing if self.shares[key].since_s + TELL_AFTER_S <= now_s]:
            if self.lines_left == 0:
                break
            self.lines_left -= 1
            share = self.shares[key]
            log.info("more of a client left out", extra={**share.last, "left_out": share.left_out})
            self.owe_nothing(key, share)


def key_of(seen: Seen) -> Hashable:
    """Who counts as one client: who is not let in may call itself anything, so its address."""
    if seen.event in (LOGIN_FAILED, CONNECT_REFUSED):
        return key_of_host(seen.connection.peer.remote_address().rpartition(":")[0].strip("[]"))
    return seen.client_id


def fields_of(seen: Seen) -> dict[str, object]:
    return {
        "client_id": seen.client_id,
        "username": seen.username,
        "address": seen.connection.peer.remote_address(),
        **seen.detail,
    }
