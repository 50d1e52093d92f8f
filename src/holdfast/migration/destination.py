"""Where an inventory goes: a data folder that no broker runs on, or a running broker.

Nothing that is there is replaced unless asked for, so that doing it again changes nothing. Retained messages go through
the one service for them; sessions go into a folder only, since no broker takes another's sessions while it runs.
"""

import base64
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from holdfast.broker.effects import Effects
from holdfast.broker.message import Message
from holdfast.errors import HoldfastError, ProtocolError, UsageError
from holdfast.migration.inventory import (
    QUEUED,
    RETAINED,
    SESSIONS,
    SUBSCRIPTIONS,
    FoundMessage,
    FoundSession,
    Inventory,
)
from holdfast.migration.session_records import SessionRecorder, as_message
from holdfast.rules.restore import seconds_left
from holdfast.service.caller import OPERATOR
from holdfast.service.folder import FolderSource
from holdfast.service.history import HistoryService
from holdfast.service.messages import same_content, whole_of
from holdfast.service.requests import publications_from
from holdfast.service.retained import RetainedService
from holdfast.service.source import BrokerHandle
from holdfast.storage.folder import DataFolder

SESSIONS_AT_ONCE = 200
PUBLISHED_AT_ONCE = 500
REFUSALS = (400, 403, 413, 422)  # of HTTP: not this message, by this user
ONLY_OFFLINE = "a running broker takes none: stop it and import with --data"

T = TypeVar("T")


class OfflineBroker(BrokerHandle, Protocol):
    """A broker on a data folder whose log can be written to."""

    def carry_out(self, effects: Effects) -> None: ...


OpenOffline = Callable[[Path], AbstractAsyncContextManager[OfflineBroker]]


class Progress(Protocol):
    """What is being done, how many of it are done, and how many there are."""

    def __call__(self, what: str, count: int, total: int) -> None: ...


def silent(what: str, count: int, total: int) -> None:
    """Shows no progress."""


@dataclass
class Tally:
    """What became of one kind of thing. `same`: it was there already; `other`: something else is there, and stays."""

    imported: int = 0
    same: int = 0
    other: int = 0
    refused: int = 0


@dataclass
class Outcome:
    """`left` are reasons for things that only show up here, as in `Inventory`."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    left: dict[str, dict[str, int]] = field(default_factory=dict)

    def tally(self, kind: str) -> Tally:
        return self.tallies.setdefault(kind, Tally())

    def leave(self, kind: str, reason: str, count: int) -> None:
        if count:
            reasons = self.left.setdefault(kind, {})
            reasons[reason] = reasons.get(reason, 0) + count

    @property
    def changed(self) -> bool:
        return any(tally.imported for tally in self.tallies.values())

    @property
    def complete(self) -> bool:
        return not any(tally.refused or tally.other for tally in self.tallies.values())


class Destination(ABC):
    @abstractmethod
    async def put(self, found: Inventory, replace: bool, dry_run: bool, progress: Progress = silent) -> Outcome:
        """Put what was found there; with `dry_run` only say what would become of it."""


class FolderDestination(Destination):
    """A data folder, made where there is none. `open_offline` opens a broker on it."""

    def __init__(self, root: Path, open_offline: OpenOffline, now_ms: Callable[[], int]) -> None:
        self.root = root
        self.open_offline = open_offline
        self.now_ms = now_ms

    async def put(self, found: Inventory, replace: bool, dry_run: bool, progress: Progress = silent) -> Outcome:
        outcome = Outcome()
        if not DataFolder(self.root).state.is_dir():
            if self.root.exists() and any(self.root.iterdir()):
                raise UsageError(f"{self.root} has other things in it, expected a data folder, an empty one, or none")
            if dry_run:
                count_as_new(found, outcome)
                return outcome
            async with self.open_offline(self.root):
                pass
        await self.put_retained(found, outcome, replace, dry_run, progress)
        await self.put_sessions(found, outcome, replace, dry_run, progress)
        return outcome

    async def put_retained(
        self, found: Inventory, outcome: Outcome, replace: bool, dry_run: bool, progress: Progress
    ) -> None:
        source = FolderSource(self.root, self.open_offline, self.now_ms)
        tally = outcome.tally(RETAINED)
        wanted = []
        for message in (as_message(one, 0, self.now_ms()) for one in found.retained.values()):
            stored = source.get(message.topic)
            if stored is None or (replace and not same_content(stored, message)):
                wanted.append(message)
            elif same_content(stored, message):
                tally.same += 1
            else:
                tally.other += 1
        service = RetainedService(source, HistoryService(source))
        total = len(wanted)

        async def portions() -> AsyncIterator[list[Message]]:
            yield wanted

        done = await service.put_back(
            portions(), OPERATOR, replace, dry_run, lambda count: progress("retained messages", count, total)
        )
        source.close()
        tally.imported += done.restored
        tally.refused += done.refused
        outcome.leave(RETAINED, "refused: too many levels", done.refused)
        outcome.leave(RETAINED, "expired meanwhile", done.expired)

    async def put_sessions(
        self, found: Inventory, outcome: Outcome, replace: bool, dry_run: bool, progress: Progress
    ) -> None:
        source = FolderSource(self.root, self.open_offline, self.now_ms)
        there = source.client_ids()
        source.close()
        tally = outcome.tally(SESSIONS)
        wanted = [one for one in found.sessions.values() if replace or one.client_id not in there]
        kept = [one for one in found.sessions.values() if not replace and one.client_id in there]
        tally.same += len(kept)
        outcome.tally(SUBSCRIPTIONS).same += sum(len(one.subscriptions) for one in kept)
        outcome.tally(QUEUED).same += sum(len(one.queue) + len(one.received) for one in kept)
        if wanted and not dry_run:
            async with self.open_offline(self.root) as handle:
                await self.record_sessions(handle, wanted, progress)
            refused = await self.hand_on_received(wanted)
            outcome.tally(QUEUED).refused += refused
            outcome.leave(QUEUED, "refused: too many levels", refused)
        tally.imported += len(wanted)
        outcome.tally(SUBSCRIPTIONS).imported += sum(len(one.subscriptions) for one in wanted)
        outcome.tally(QUEUED).imported += sum(len(one.queue) + len(one.received) for one in wanted)

    async def record_sessions(self, handle: OfflineBroker, sessions: list[FoundSession], progress: Progress) -> None:
        for session in sessions:
            if session.client_id in handle.broker.sessions:
                handle.end_session(session.client_id)
        recorder = SessionRecorder(handle.broker, handle.now_ms())
        for count, portion in portions(sessions, SESSIONS_AT_ONCE):
            handle.broker.begin(handle.now_ms())
            recorder.record(portion)
            handle.carry_out(handle.broker.finish())
            await handle.durable()
            progress("sessions", count, len(sessions))

    async def hand_on_received(self, sessions: list[FoundSession]) -> int:
        """Publish what clients had handed over at QoS 2 and not released; returns how many were refused. mosquitto
        passes such messages on when they are released, this broker when it has them: so now is the time, and the
        sessions that wait for them are there.
        """
        received = [message for session in sessions for message in session.received.values()]
        refused = 0
        if not received:
            return refused
        async with self.open_offline(self.root) as handle:
            for one in received:
                message = as_message(one, 0, handle.now_ms())
                expiry_s = seconds_left(one.expires_at_ms, handle.now_ms())
                publisher = message.publisher
                try:
                    handle.publish(publisher, one.topic, one.payload, one.qos, one.retain, one.properties, expiry_s)
                except ProtocolError:
                    refused += 1
            await handle.durable()
        return refused


def count_as_new(found: Inventory, outcome: Outcome) -> None:
    sessions = found.sessions.values()
    outcome.tally(RETAINED).imported = len(found.retained)
    outcome.tally(SESSIONS).imported = len(sessions)
    outcome.tally(SUBSCRIPTIONS).imported = sum(len(one.subscriptions) for one in sessions)
    outcome.tally(QUEUED).imported = sum(len(one.queue) + len(one.received) for one in sessions)


class RunningBroker(ABC):
    """A broker that is asked for its retained messages, and given some."""

    @abstractmethod
    async def retained(self) -> dict[bytes, FoundMessage]: ...

    @abstractmethod
    async def publish(self, messages: list[FoundMessage], now_ms: int) -> None:
        """Publish with RETAIN, and return when the broker has them."""


class LiveDestination(Destination):
    """A running broker. What limits or policies refuse shows when its messages are read again."""

    def __init__(self, broker: RunningBroker, now_ms: Callable[[], int]) -> None:
        self.broker = broker
        self.now_ms = now_ms

    async def put(self, found: Inventory, replace: bool, dry_run: bool, progress: Progress = silent) -> Outcome:
        outcome = Outcome()
        self.leave_sessions(found, outcome)
        tally = outcome.tally(RETAINED)
        there = await self.broker.retained()
        wanted: list[FoundMessage] = []
        for message in found.retained.values():
            stored = there.get(message.topic)
            if stored is None:
                wanted.append(message)
            elif is_same(stored, message):
                tally.same += 1
            elif replace:
                wanted.append(message)
            else:
                tally.other += 1
        if dry_run or not wanted:
            tally.imported = len(wanted)
            return outcome
        for count, portion in portions(wanted, PUBLISHED_AT_ONCE):
            await self.broker.publish(portion, self.now_ms())
            progress("retained messages", count, len(wanted))
        there = await self.broker.retained()
        kept = [message for message in wanted if message.topic in there and is_same(there[message.topic], message)]
        tally.imported = len(kept)
        tally.refused = len(wanted) - len(kept)
        outcome.leave(RETAINED, "not retained there now: a limit, a policy, a right, or a newer message", tally.refused)
        return outcome

    def leave_sessions(self, found: Inventory, outcome: Outcome) -> None:
        sessions = found.sessions.values()
        outcome.leave(SESSIONS, ONLY_OFFLINE, len(sessions))
        outcome.leave(SUBSCRIPTIONS, ONLY_OFFLINE, sum(len(one.subscriptions) for one in sessions))
        outcome.leave(QUEUED, ONLY_OFFLINE, sum(len(one.queue) + len(one.received) for one in sessions))


class Api(Protocol):
    """The HTTP API of a broker, as `holdfast retained` uses it."""

    def find(self, topic_filter: str, payload: bool, **conditions: Any) -> Iterator[dict[str, Any]]: ...

    def publish(self, messages: list[dict[str, Any]]) -> int: ...


class ApiBroker(RunningBroker):
    def __init__(self, api: Api) -> None:
        self.api = api

    async def retained(self) -> dict[bytes, FoundMessage]:
        found = (message_from(one) for one in self.api.find("#", True, hidden=True))
        return {message.topic: message for message in found}

    async def publish(self, messages: list[FoundMessage], now_ms: int) -> None:
        """One that is refused, for want of rights or for its size, ends a call: then each has a call of its own."""
        publications = [publication_of(message, now_ms) for message in messages]
        if self.was_taken(publications):
            return
        for publication in publications:
            self.was_taken([publication])

    def was_taken(self, publications: list[dict[str, Any]]) -> bool:
        try:
            self.api.publish(publications)
        except HoldfastError as error:
            if getattr(error, "status", 0) not in REFUSALS:
                raise
            return False
        return True


def message_from(given: dict[str, Any]) -> FoundMessage:
    """A message from the API's JSON."""
    names = ("content_type", "response_topic", "correlation_data", "payload_format", "user_properties")
    one = publications_from([{"topic": given["topic"], **{name: given[name] for name in names}}])[0]
    return FoundMessage(
        one.topic.encode(),
        base64.b64decode(given["payload"]),
        given["qos"],
        one.properties_bytes(),
        given["expires_at_ms"] or 0,
    )


def publication_of(message: FoundMessage, now_ms: int) -> dict[str, Any]:
    """A message as the API takes it for publishing."""
    whole = whole_of(as_message(message, 0, now_ms))
    names = ("content_type", "response_topic", "correlation_data", "payload_format", "user_properties")
    given = {name: whole[name] for name in names if whole[name] not in (None, [])}
    if message.expires_at_ms:
        given["expiry_s"] = seconds_left(message.expires_at_ms, now_ms)
    return {
        **given,
        "topic": message.topic.decode(),
        "payload": whole["payload"],
        "encoding": "base64",
        "qos": message.qos,
        "retain": True,
    }


def is_same(one: FoundMessage, other: FoundMessage) -> bool:
    return same_content(as_message(one, 0, 0), as_message(other, 0, 0))


def portions(items: list[T], size: int) -> Iterator[tuple[int, list[T]]]:
    """The items in order, with how many have been seen at the end of each portion."""
    for start in range(0, len(items), size):
        portion = items[start : start + size]
        yield start + len(portion), portion
