"""Publishers and subscribers for tests about retained messages, so that a test reads like the rule it proves.

    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", qos=1, retain=True)
    subscriber.subscribe("a", qos=1)
    subscriber.receives(Copy("a", "1", qos=1, retain=True))

Topics are relative to a prefix of the test's own, so tests share a broker; topics that start with `$` are taken as they
are (the filter inside `$share/group/filter` is relative again). What a test has retained is deleted when it ends.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pytest

from broker_process import MOSQUITTO, BrokerProcess, Server, Unique, on_told_clock, start_holdfast, under_test
from core_broker import CoreBroker
from wire import (
    Closed,
    Disconnect,
    P,
    Packet,
    Property,
    PubAck,
    Publish,
    SubAck,
    Will,
    WireClient,
    puback,
    publish,
    subscribe,
)

Payload = bytes | str

BOTH = pytest.mark.parametrize("version", [4, 5], ids=["v311", "v5"])
ONLY_5 = pytest.mark.parametrize("version", [5], ids=["v5"])
ONLY_311 = pytest.mark.parametrize("version", [4], ids=["v311"])
OURS = pytest.mark.skipif(under_test() == MOSQUITTO, reason="a choice or a rule that mosquitto does not follow")

SHARE = "$share/"
A_LONG_TIME = 3600
BATCH = 500  # packets to send before reading; less than a broker's Receive Maximum


def raw(payload: Payload) -> bytes:
    return payload.encode() if isinstance(payload, str) else payload


def user(name: str, value: str) -> Property:
    return (P.USER_PROPERTY, (name, value))


@dataclass(frozen=True)
class Copy:
    """A message as a subscriber gets it. The packet itself is there for a closer look and does not count as a part."""

    topic: str
    payload: Payload
    qos: int = 0
    retain: bool = False
    packet: Publish = field(default_factory=lambda: Publish(topic=""), compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "payload", raw(self.payload))

    def prop(self, identifier: int) -> Any:
        return self.packet.prop(identifier)

    def user(self, name: str) -> str | None:
        """The value of the user property of that name."""
        values = [value for key, value in self.packet.props(P.USER_PROPERTY) if key == name]
        assert len(values) < 2, f"user property {name} appears {len(values)} times in {self.packet}"
        return values[0] if values else None


class Actor:
    """A connected client with a short memory: `receives` says what must have come since the last time."""

    def __init__(self, wire: WireClient, prefix: str, quiet_s: float) -> None:
        self.wire = wire
        self.prefix = prefix
        self.quiet_s = quiet_s
        self.stored: set[str] = set()
        self.aliases: dict[int, str] = {}

    def full(self, name: str) -> str:
        if not self.prefix:
            return name
        if name.startswith(SHARE) and name.count("/") >= 2:
            _, group, rest = name.split("/", 2)
            return f"{SHARE}{group}/{self.prefix}/{rest}"
        return name if name.startswith("$") else f"{self.prefix}/{name}"

    def short(self, topic: str) -> str:
        return topic.removeprefix(f"{self.prefix}/") if self.prefix else topic

    def publish(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Iterable[Property] = (),
        check: bool = True,
    ) -> int:
        """Publish and finish the handshake; the reason code (0 at QoS 0). On return the broker has handled it."""
        self.note(topic, retain)
        answer = self.wire.publish(
            self.full(topic), raw(payload), qos=qos, retain=retain, properties=properties, check=check
        )
        return answer.reason if answer is not None else 0

    def note(self, topic: str, retain: bool) -> None:
        if retain:
            self.stored.add(self.full(topic))

    def send_publish(self, topic: str, payload: Payload = b"", *, qos: int = 0, retain: bool = False) -> int | None:
        """Publish without waiting for anything."""
        self.note(topic, retain)
        return self.wire.send_publish(self.full(topic), raw(payload), qos=qos, retain=retain)

    def fill(self, messages: Mapping[str, Payload], *, qos: int = 0, properties: Sequence[Property] = ()) -> None:
        """Retain many messages at QoS 0 or 1, a batch at a time."""
        wire = self.wire
        pending = list(messages.items())
        for begin in range(0, len(pending), BATCH):
            batch = pending[begin : begin + BATCH]
            packets = []
            for number, (topic, payload) in enumerate(batch, start=1):
                self.note(topic, True)
                packet_id = number if qos else None
                packets.append(
                    publish(
                        self.full(topic),
                        raw(payload),
                        qos=qos,
                        retain=True,
                        packet_id=packet_id,
                        properties=properties,
                        version=wire.version,
                    )
                )
            wire.sock.settimeout(60)
            wire.sock.sendall(b"".join(packets))
            acknowledged = [packet for packet in wire.barrier() if isinstance(packet, PubAck)]
            assert len(acknowledged) == (len(batch) if qos else 0)

    def subscribe(
        self,
        *filters: str | tuple[str, int],
        qos: int = 0,
        rh: int = 0,
        rap: bool = False,
        nl: bool = False,
        sid: int | None = None,
        since: int | None = None,
        check: bool = True,
    ) -> list[int]:
        """Subscribe and return the codes of the SUBACK. `rh`, `rap`, `nl` and `sid` as in MQTT 5."""
        properties: list[Property] = []
        if sid is not None:
            properties.append((P.SUBSCRIPTION_ID, sid))
        if since is not None:
            properties.append(user("holdfast-since", str(since)))
        answer: SubAck = self.wire.subscribe(
            *((self.full(item[0]), item[1]) if isinstance(item, tuple) else self.full(item) for item in filters),
            qos=qos,
            no_local=nl,
            retain_as_published=rap,
            retain_handling=rh,
            properties=properties,
            check=check,
        )
        return answer.codes

    def is_refused(self, topic_filter: str, option: int = 0) -> bool:
        """Whether the broker refuses to subscribe, with a code or by ending the connection, and sends no message."""
        self.wire.send(subscribe(999, [(self.full(topic_filter), option)], version=self.wire.version))
        try:
            packet = self.wire.recv()
        except Closed:
            return True
        if isinstance(packet, SubAck):
            assert self.rest() == [], "expected no message for a refused filter"
            return packet.codes[0] >= 0x80
        assert isinstance(packet, Disconnect), f"expected SUBACK or the end of the connection, got {packet}"
        return packet.reason >= 0x80

    def unsubscribe(self, *filters: str) -> None:
        self.wire.unsubscribe(*(self.full(item) for item in filters))

    def receives(self, *expected: Copy, timeout: float | None = None) -> list[Copy]:
        """Exactly these copies, in this order for each topic, and nothing else; all are acknowledged."""
        got = self.take(len(expected), timeout) + self.rest()
        if by_topic(got) != by_topic(list(expected)):
            raise AssertionError(f"expected {listed(expected)}\n     got {listed(got)}")
        return got

    def take(self, count: int, timeout: float | None = None, *, ack: bool = True) -> list[Copy]:
        """The next copies, as many as asked for, or what has come when nothing more comes in time."""
        out: list[Copy] = []
        while len(out) < count:
            try:
                packet = self.wire.recv(timeout)
            except TimeoutError:
                break
            if isinstance(packet, Publish):
                out.append(self.copy(packet, ack))
        return out

    def rest(self, quiet: float | None = None) -> list[Copy]:
        """Whatever else the broker has sent: up to a PINGRESP that nothing precedes, and a moment of silence where the
        broker may have more to say.
        """
        quiet = self.quiet_s if quiet is None else quiet
        out: list[Copy] = []
        while True:
            more = [self.copy(packet, True) for packet in self.wire.barrier() if isinstance(packet, Publish)]
            if not more and quiet:
                more = self.take(1, quiet)
            if not more:
                return out
            out += more

    def copy(self, packet: Packet, ack: bool) -> Copy:
        assert isinstance(packet, Publish), packet
        if ack:
            self.wire.ack(packet)
        topic = packet.topic
        alias = packet.prop(P.TOPIC_ALIAS)
        if alias is not None:
            topic = topic or self.aliases[alias]
            self.aliases[alias] = topic
        return Copy(self.short(topic), packet.payload, packet.qos, packet.retain, packet)

    def refuse(self, copy: Copy, reason: int) -> None:
        assert copy.packet.packet_id is not None
        self.wire.send(puback(copy.packet.packet_id, reason))

    def disconnect(self, reason: int | None = None) -> None:
        self.wire.disconnect(reason)

    def cut(self) -> None:
        self.wire.cut()


def by_topic(copies: list[Copy]) -> list[Copy]:
    """Order between topics is nobody's promise; within a topic it stays (sorting is stable)."""
    return sorted(copies, key=lambda copy: copy.topic)


def listed(copies: Iterable[Copy]) -> str:
    shown = [f"{c.topic} {_short(raw(c.payload))} q{c.qos} r{int(c.retain)}" for c in copies]
    return ", ".join(shown[:20]) + (f" ... ({len(shown)})" if len(shown) > 20 else "") if shown else "nothing"


def _short(payload: bytes) -> str:
    return repr(payload) if len(payload) <= 32 else f"{payload[:32]!r}... ({len(payload)} bytes)"


class Stage:
    """Where the actors of one test meet: one broker, one prefix."""

    def __init__(self, broker: Server, unique: Unique, prefix: str | None = None) -> None:
        self.broker = broker
        self.unique = unique
        self.prefix = str(unique) if prefix is None else prefix
        self.actors: list[Actor] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def client(
        self,
        version: int,
        name: str | None = None,
        *,
        keep: bool = False,
        clean: bool | None = None,
        will: Will | None = None,
        properties: Iterable[Property] = (),
        receive_buffer: int | None = None,
        **fields: Any,
    ) -> Actor:
        """A connected client. `keep` gives it a session that outlives the connection and is resumed, unless `clean`."""
        given = list(properties)
        if keep and version == 5:
            given.append((P.SESSION_EXPIRY, A_LONG_TIME))
        wire = self.broker.client(version, receive_buffer=receive_buffer)
        actor = Actor(wire, self.prefix, self.broker.quiet_s)
        self.actors.append(actor)
        if will is not None:
            topic = will.topic if isinstance(will.topic, str) else will.topic.decode()
            will = Will(actor.full(topic), will.payload, will.qos, will.retain, will.properties)
            actor.note(topic, will.retain)
        client_id = self.unique.client(name if name is not None else f"n{len(self.actors)}")
        start_clean = not keep if clean is None else clean
        wire.connect(client_id, clean=start_clean, will=will, properties=given, **fields)
        return actor

    def stored(self, version: int, topic_filter: str = "#") -> dict[str, bytes]:
        """What a new subscriber would be sent, by topic."""
        reader = self.client(version)
        reader.subscribe(topic_filter, qos=2)
        copies = reader.rest()
        assert all(copy.retain for copy in copies), f"expected only retained copies, got {listed(copies)}"
        topics = [copy.topic for copy in copies]
        assert len(topics) == len(set(topics)), f"expected one copy for each topic, got {listed(copies)}"
        reader.disconnect()
        return {copy.topic: raw(copy.payload) for copy in copies}

    def now(self) -> float:
        """Seconds since the epoch, by the broker's clock."""
        return self.broker.now()

    def pass_time(self, seconds: float) -> None:
        """On a told clock this takes no time."""
        self.broker.pass_time(seconds)

    def close_clients(self) -> None:
        """Cut everyone off and leave what is retained."""
        for actor in self.actors:
            actor.cut()
        self.actors.clear()

    def close(self) -> None:
        stored = sorted(set().union(*(actor.stored for actor in self.actors)) if self.actors else set())
        for actor in self.actors:
            actor.cut()
        if stored and self.broker.is_running():
            with self.broker.client() as cleaner, contextlib.suppress(AssertionError, OSError):
                cleaner.connect(self.unique.client("cleaner"))
                for topic in stored:
                    cleaner.send_publish(topic, b"", retain=True)
                cleaner.ping()


class StageBuilder:
    """Stages on brokers with settings of their own; a broker is started once for each set of settings."""

    def __init__(self, folder: Callable[[str], Any]) -> None:
        self.folder = folder
        self.running: dict[str, BrokerProcess] = {}

    def broker(self, settings: dict[str, Any]) -> BrokerProcess:
        if under_test() == MOSQUITTO:
            pytest.skip("needs a broker with Holdfast's settings")
        key = json.dumps(settings, sort_keys=True)
        if key not in self.running:
            plain = {name: json.dumps(v) if isinstance(v, list | dict) else v for name, v in settings.items()}
            self.running[key] = start_holdfast(self.folder("settings"), {"history.enable": False, **plain})
        return self.running[key]

    def stop(self) -> None:
        for broker in self.running.values():
            broker.stop()


@pytest.fixture
def stage(server: Server, unique: Unique) -> Iterator[Stage]:
    """A stage on a broker with default settings."""
    made = Stage(server, unique)
    yield made
    made.close()


@pytest.fixture(scope="module")
def stage_builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StageBuilder]:
    builder = StageBuilder(tmp_path_factory.mktemp)
    yield builder
    builder.stop()


@pytest.fixture
def staged(
    request: pytest.FixtureRequest, stage_builder: StageBuilder, unique: Unique
) -> Iterator[Callable[..., Stage]]:
    """A stage on a broker with these settings, e.g. `staged(retainer__max_retained_messages=2)`.

    Processes are shared by the tests of a module that ask for the same settings.
    """
    made: list[Stage] = []
    cores: list[CoreBroker] = []

    def build(*, prefix: str | None = None, **settings: Any) -> Stage:
        if on_told_clock(request):
            cores.append(CoreBroker(**settings))
            made.append(Stage(cores[-1], unique, prefix))
        else:
            made.append(Stage(stage_builder.broker(settings), unique, prefix))
        return made[-1]

    yield build
    for each in made:
        each.close()
    for core in cores:
        core.close()


__all__ = [
    "BOTH",
    "ONLY_5",
    "ONLY_311",
    "OURS",
    "Actor",
    "Copy",
    "P",
    "Stage",
    "StageBuilder",
    "Will",
    "raw",
    "stage",
    "stage_builder",
    "staged",
    "user",
]
