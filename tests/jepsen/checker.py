"""Holds a history against what a cluster promises. It knows MQTT's guarantees and nothing of the broker that was asked.

`check` returns everything that is wrong; an empty list is a pass. What it cannot decide it says, as a violation too: a
search that was given up is not a pass.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TypeVar

from jepsen.history import Attached, Ending, Final, History, Outcome, Read, Received, Sent, Served, Sight, Write
from jepsen.register import UNREAD, Undecided, explain, settle

Key = TypeVar("Key", bound=Hashable)
Record = TypeVar("Record")


@dataclass(frozen=True)
class Violation:
    """`kind` is the promise that was broken, `about` the topic, session or client, `at` when it showed.

    `names` are values, messages and connections whose whole story belongs to it.
    """

    kind: str
    about: str
    at: float
    text: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.about} at {self.at:.3f} s: {self.text}"


def check(history: History) -> list[Violation]:
    found: list[Violation] = []
    for judge in (
        malformed,
        stuck,
        recorded_alike,
        made_up_values,
        registers,
        one_order,
        deliveries,
        watched,
        lost_sessions,
        wills,
        one_connection,
        equal_nodes,
    ):
        found += judge(history)
    return sorted(found, key=lambda violation: violation.at)


def grouped(records: Iterable[Record], key: Callable[[Record], Key]) -> dict[Key, list[Record]]:
    groups: dict[Key, list[Record]] = defaultdict(list)
    for record in records:
        groups[key(record)].append(record)
    return groups


def malformed(history: History) -> Iterator[Violation]:
    for record in history.malformed:
        yield Violation("malformed", record.client, record.at, f"on node {record.node}: {record.what}")


def recorded_alike(history: History) -> Iterator[Violation]:
    """The histories of all nodes have the same rows, and Spark makes of each what its node says."""
    for record in history.recorded:
        for difference in record.differences:
            yield Violation("history is wrong", record.node, record.at, difference)
        if record.digest != history.recorded[0].digest:
            text = f"{record.digest}, and {history.recorded[0].node} has {history.recorded[0].digest}"
            yield Violation("histories differ", record.node, record.at, text)


def stuck(history: History) -> Iterator[Violation]:
    """What is healed works again."""
    for record in history.stuck:
        yield Violation("stuck", record.who, record.at, record.what)


# Retained messages


def shown(value: str | None) -> str:
    return "nothing" if value is None else value


def made_up_values(history: History) -> Iterator[Violation]:
    """What is seen was written, to that topic, and was not refused."""
    outcomes = {(write.topic, write.value): write.outcome for write in history.writes}
    seen = [(read.topic, read.value, read.ended, read.client) for read in history.reads]
    seen += [(sight.topic, sight.value, sight.at, sight.stream) for sight in history.sights]
    told: set[tuple[str, str | None]] = set()
    for topic, value, at, who in sorted(seen, key=lambda row: row[2]):
        if value is None or (topic, value) in told:
            continue
        outcome = outcomes.get((topic, value))
        if outcome is None:
            yield Violation("made up", topic, at, f"{who} saw {value}, which nobody wrote there", (value,))
        elif outcome is Outcome.REFUSED:
            text = f"{who} saw {value}, which the writer was refused"
            yield Violation("refused and yet done", topic, at, text, (value,))
        else:
            continue
        told.add((topic, value))


def registers(history: History) -> Iterator[Violation]:
    """Each topic is a linearizable register; so what was acknowledged is there until something replaces it."""
    reads = grouped(history.reads, lambda read: read.topic)
    writes = grouped(history.writes, lambda write: write.topic)
    sights = grouped(history.sights, lambda sight: sight.topic)
    for topic in sorted({*reads, *writes}):
        written = {write.value for write in writes[topic] if write.outcome is not Outcome.REFUSED} | {None}
        known = [read for read in reads[topic] if read.value in written]  # the others have been told already
        try:
            problem = explain(writes[topic], known, sights[topic])
        except Undecided:
            yield Violation("undecided", topic, 0.0, "too many operations at once for the search")
            continue
        if problem is not None:
            operation = problem.operation
            did = "read" if isinstance(operation, Read) else "wrote"
            possible = ", ".join(sorted(map(shown, problem.possible)))
            yield Violation(
                "not linearizable",
                topic,
                operation.ended or operation.began,
                f"{operation.client} on node {operation.node} {did} {shown(operation.value)} between "
                f"{operation.began:.3f} and {operation.ended or 0.0:.3f} s, and there is no moment for that; the topic "
                f"could have been: {possible}. {last_known(writes[topic], operation)}",
                tuple(value for value in (operation.value, *problem.possible) if value not in (None, UNREAD))[:5],
            )


def last_known(writes: Sequence[Write], operation: Write | Read) -> str:
    """The newest write that was acknowledged before the operation began."""
    before = [w for w in writes if w.outcome is Outcome.OK and w.ended is not None and w.ended < operation.began]
    if not before:
        return "Nothing had been acknowledged before."
    last = max(before, key=lambda write: write.ended or 0.0)
    return f"Acknowledged last before it: {shown(last.value)}, at {last.ended or 0.0:.3f} s on node {last.node}."


def one_order(history: History) -> Iterator[Violation]:
    """All subscribers see the values of a topic in one order, which is also that of writes that did not overlap."""
    reads = grouped(history.reads, lambda read: read.topic)
    writes = grouped(history.writes, lambda write: write.topic)
    for topic, sights in sorted(grouped(history.sights, lambda sight: sight.topic).items()):
        streams = grouped(sights, lambda sight: sight.stream)
        seen = {stream: in_order(values) for stream, values in streams.items()}
        circle = find_circle(seen.values(), settle(writes[topic], reads[topic], sights))
        if circle:
            text = "; ".join(reasons(circle, seen, writes[topic]))
            at = max(sight.at for sight in sights if sight.value in circle)
            yield Violation("no common order", topic, at, text, tuple(circle))


def in_order(sights: Sequence[Sight]) -> list[str]:
    """The values of one stream without absence; of a stream that may repeat, when each came first."""
    values: list[str] = []
    known: set[str] = set()
    for sight in sights:
        if sight.value is None or (sight.again and sight.value in known) or values[-1:] == [sight.value]:
            continue
        values.append(sight.value)
        known.add(sight.value)
    return values


def find_circle(streams: Iterable[Sequence[str]], writes: Sequence[Write]) -> list[str]:
    """Values each of which came before the next and the last before the first, or none.

    That one write ended before another began is told by moments: a write comes before the moment of its end, moments
    follow one another, and a moment comes before the writes that began after it.
    """
    before: dict[str | float, set[str | float]] = defaultdict(set)
    for values in streams:
        for earlier, later in pairwise(values):
            before[later].add(earlier)
    ends = sorted({write.ended for write in writes if write.ended is not None})
    for end, next_end in pairwise(ends):
        before[next_end].add(end)
    for write in writes:
        if write.value is None:
            continue
        if write.ended is not None:
            before[write.ended].add(write.value)
        if passed := bisect_left(ends, write.began):
            before[write.value].add(ends[passed - 1])
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        circle: list[str | float] = error.args[1]  # its first stands at its end once more
        return [place for place in circle[1:] if isinstance(place, str)]
    return []


def reasons(circle: Sequence[str], seen: dict[str, list[str]], writes: Sequence[Write]) -> Iterator[str]:
    by_value = {write.value: write for write in writes}
    for earlier, later in zip(circle, [*circle[1:], circle[0]], strict=True):
        streams = [s for s, values in seen.items() if (earlier, later) in pairwise(values)]
        if streams:
            yield f"{streams[0]} saw {earlier} before {later}"
        else:
            first, second = by_value.get(earlier), by_value.get(later)
            ended = "?" if first is None or first.ended is None else f"{first.ended:.3f}"
            began = "?" if second is None else f"{second.began:.3f}"
            yield f"{earlier} was there by {ended} s, before {later} was sent at {began} s"


# Messages to persistent sessions


def deliveries(history: History) -> Iterator[Violation]:
    """At QoS 1 at least once, at QoS 2 exactly once, and in order, whatever happened to node and connection."""
    received = grouped(history.received, lambda message: message.session)
    for subscription in history.subscriptions:
        due = [s for s in history.sent if s.topic.startswith(subscription.prefix) and s.began > subscription.since]
        got = [m for m in received[subscription.session] if m.topic.startswith(subscription.prefix)]
        yield from counted(subscription.session, subscription.qos, due, got)
        yield from ordered(subscription.session, due, got)


def watched(history: History) -> Iterator[Violation]:
    """Retained writes are messages, too: a persistent session gets each that was acknowledged at QoS 1 or 2."""
    sights = grouped(history.sights, lambda sight: sight.stream)
    for subscription in history.subscriptions:
        seen = {(sight.topic, sight.value) for sight in sights[subscription.session]}
        for write in history.writes:
            due = write.outcome is Outcome.OK and write.qos > 0 and write.value is not None
            if not due or not write.topic.startswith(subscription.prefix) or write.began <= subscription.since:
                continue
            if (write.topic, write.value) not in seen:
                text = f"{write.value} on {write.topic} was acknowledged on node {write.node} and never came"
                names = (write.value or "",)
                yield Violation("lost message", subscription.session, write.ended or write.began, text, names)


def counted(session: str, granted: int, due: Sequence[Sent], got: Sequence[Received]) -> Iterator[Violation]:
    times = Counter(message.message for message in got)
    end = max((message.at for message in got), default=0.0)
    for sent in due:
        qos, count, names = min(sent.qos, granted), times[sent.message], (sent.message,)
        what = f"{sent.message} (QoS {sent.qos}, sent at {sent.began:.3f} s)"
        if sent.outcome is Outcome.OK and qos > 0 and count == 0:
            at = sent.ended or end
            yield Violation("lost message", session, at, f"{what} was acknowledged and never came", names)
        if sent.outcome is Outcome.REFUSED and count:
            yield Violation("refused and yet done", session, end, f"{what} was refused and came", names)
        if qos == 2 and count > 1:
            came = [message for message in got if message.message == sent.message]
            when = ", ".join(f"{message.at:.3f} s on node {message.node}" for message in came)
            yield Violation("not exactly once", session, came[1].at, f"{what} came {count} times: {when}", names)


def ordered(session: str, due: Sequence[Sent], got: Sequence[Received]) -> Iterator[Violation]:
    """Counted by first sight: at QoS 1 a message may come again."""
    numbers = {sent.message: sent for sent in due}
    last: dict[tuple[str, str], Sent] = {}
    known: set[str] = set()
    for message in got:
        sent = numbers.get(message.message)
        if sent is None or message.message in known:
            continue
        known.add(message.message)
        before = last.get((sent.publisher, sent.topic))
        if before is not None and before.number > sent.number:
            text = f"{sent.message} came first after {before.message}, on node {message.node}"
            yield Violation("out of order", session, message.at, text, (sent.message, before.message))
            continue
        last[sent.publisher, sent.topic] = sent


def lost_sessions(history: History) -> Iterator[Violation]:
    for seen in history.sessions:
        if seen.expected and not seen.present:
            yield Violation("lost session", seen.session, seen.at, f"node {seen.node} does not know it any more")


def wills(history: History) -> Iterator[Violation]:
    """Published once for a connection that was cut or whose node died, never for one that ended with DISCONNECT."""
    watchers = [subscription for subscription in history.subscriptions if subscription.qos == 2]
    received = grouped(history.received, lambda message: (message.session, message.message))
    for will in history.wills:
        for watcher in watchers:
            if not will.topic.startswith(watcher.prefix) or will.began < watcher.since:
                continue
            count = len(received[watcher.session, will.will])
            how = f"will of {will.client} on node {will.node}, which ended at {will.ended:.3f} s ({will.ending})"
            wrong = {
                "will twice": count > 1,
                "will after DISCONNECT": count > 0 and will.ending is Ending.CLEAN,
                "lost will": count == 0 and will.ending is Ending.CUT and will.accepted is not None,
            }
            for kind in (kind for kind, is_so in wrong.items() if is_so):
                text = f"{watcher.session} got the {how} {count} times"
                yield Violation(kind, will.client, will.ended, text, (will.will,))


# One connection for each client id


def one_connection(history: History) -> Iterator[Violation]:
    """Of two connections of one client id, the older one gets no acknowledgement for what it sends from then on when
    the newer one has its CONNACK.

    Which is the newer one is certain when one had its CONNACK before the other sent CONNECT. When they overlapped it is
    either, but one of them: it is wrong when both were served after both were accepted.
    """
    served = grouped(history.served, lambda record: record.connection)
    for client, connections in grouped(history.attached, lambda record: record.client).items():
        connections.sort(key=lambda record: record.ended)
        for at, older in enumerate(connections):
            for newer in connections[at + 1 :]:
                late = first_after(served[older.connection], newer.ended)
                if late is None:
                    continue
                mutual = first_after(served[newer.connection], newer.ended)
                if older.ended < newer.began:
                    yield both_served(client, older, newer, late)
                elif mutual is not None:
                    yield both_served(client, older, newer, max(late, mutual, key=lambda record: record.ended))


def first_after(served: Sequence[Served], moment: float) -> Served | None:
    return min((s for s in served if s.began > moment), key=lambda record: record.ended, default=None)


def both_served(client: str, older: Attached, newer: Attached, late: Served) -> Violation:
    return Violation(
        "two connections",
        client,
        late.ended,
        f"{older.connection} on node {older.node} (CONNACK at {older.ended:.3f} s) and {newer.connection} on node "
        f"{newer.node} (CONNACK at {newer.ended:.3f} s) were both served: {late.connection} sent at {late.began:.3f} s "
        f"and was acknowledged at {late.ended:.3f} s",
        (older.connection, newer.connection),
    )


# Equal nodes


def equal_nodes(history: History) -> Iterator[Violation]:
    finals: Sequence[Final] = history.finals
    for other in finals[1:]:
        first = finals[0]
        if other.digest != first.digest:
            text = f"digest of node {first.node} is {first.digest}, of node {other.node} {other.digest}"
            yield Violation("nodes differ", other.node, float("inf"), text)
        topics = sorted(
            topic
            for topic in {*first.retained, *other.retained}
            if first.retained.get(topic) != other.retained.get(topic)
        )
        if topics:
            text = "; ".join(
                f"{topic} is {shown(first.retained.get(topic))} on node {first.node} and "
                f"{shown(other.retained.get(topic))} on node {other.node}"
                for topic in topics[:10]
            )
            yield Violation("nodes differ", other.node, float("inf"), text)
