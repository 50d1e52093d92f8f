"""The clients of a round, each of which writes down what it did and saw.

Topics: `r/...` holds retained values that are set and deleted, `q/...` carries messages to persistent sessions, `w/...`
wills, `c/...` what connections that fight for one client id send, and `x/...` what shows that a node is still there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from jepsen.actor import PATIENCE_S, Actor, Connection, Gone, World, outcome_of
from jepsen.history import (
    Attached,
    Ending,
    Final,
    Outcome,
    Read,
    Received,
    Sent,
    Served,
    SessionSeen,
    Sight,
    Subscription,
    WillConnection,
    Write,
)
from wire import (
    Closed,
    ConnAck,
    Disconnect,
    P,
    Packet,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Will,
    disconnect,
    options,
    pingreq,
    puback,
    pubcomp,
    publish,
    pubrec,
    pubrel,
    subscribe,
)

FOR_EVER = 0xFFFFFFFF
BUSY = [f"r/busy/{number}" for number in range(5)]  # where many operations meet
CALM = [f"r/calm/{number}" for number in range(20)]  # where a value stays for a while, and is missed when it is gone
TOPICS = [*BUSY, *CALM]
MARKER = "$holdfast/snapshot/end"


class Writer(Actor):
    """Sets and deletes retained values, each of its own, at any QoS. What was not answered is never sent again."""

    def turn(self) -> None:
        version = self.random.choice([4, 5])
        with self.connection(self.world.clock.unique(self.name), version=version) as client:
            for _ in range(self.random.randrange(1, 40)):
                if self.over.is_set():
                    break
                self.write(client)
                self.rest(0.05)
            self.leave(client)

    def write(self, client: Connection) -> None:
        topic = self.random.choice(BUSY if self.random.random() < 0.7 else CALM)
        value = None if self.random.random() < 0.25 else self.world.clock.unique("v")
        # What a delete without an outcome has done shows nowhere, and could explain much: most are acknowledged.
        qos = self.random.choice([0, 1, 1, 1, 2, 2] if value else [1, 2])
        began, ended, outcome = self.now(), None, Outcome.UNKNOWN
        packet_id = client.next_id() if qos else None
        try:
            client.send(publish(topic, value or b"", qos=qos, retain=True, packet_id=packet_id, version=client.version))
            if qos:
                answer = self.wait_for(client, PubAck if qos == 1 else PubRec, packet_id)
                ended, outcome = self.now(), outcome_of(answer)
        finally:
            self.history.writes.append(Write(topic, value, began, ended, outcome, self.name, client.node, qos))
        if qos == 2 and outcome is Outcome.OK and packet_id is not None:
            client.send(pubrel(packet_id))
            self.wait_for(client, PubComp, packet_id)


class Reader(Actor):
    """Subscribes anew again and again, on fresh connections: what comes first for each topic is a read."""

    def turn(self) -> None:
        version = self.random.choice([4, 5, 5, 5])
        stream = self.world.clock.unique(self.name)
        mark = [(P.USER_PROPERTY, ("holdfast-snapshot", "mark"))] if version == 5 else []
        with self.connection(stream, version=version, properties=mark) as client:
            one = self.random.choice(TOPICS)
            topic_filter, topics = self.random.choice([("r/#", TOPICS), ("r/busy/+", BUSY), (one, [one])])
            reading = Reading(self, client, stream, topics)
            reading.subscribe(topic_filter, self.random.choice([0, 1]))
            reading.listen_on(self.random.choice([0.0, 0.1, 0.5, 1.5]))
            self.leave(client)


class Reading:
    """One fresh subscription: its snapshot, and what comes live behind it.

    A live message may come instead of a retained copy, because it replaced it while the snapshot ran; it is what the
    topic was at some moment since the SUBSCRIBE as well. A version 5 client is told by the marker that no more copies
    come, so the topics that did not come were absent; to others their silence says nothing.
    """

    def __init__(self, actor: Actor, client: Connection, stream: str, topics: Sequence[str]) -> None:
        self.actor = actor
        self.client = client
        self.stream = stream
        self.missing = set(topics)
        self.began = 0.0
        self.values: dict[str, str] = {}
        self.finished = False

    def subscribe(self, topic_filter: str, qos: int) -> None:
        client, packet_id = self.client, self.client.next_id()
        self.began = self.actor.now()
        client.send(subscribe(packet_id, [(topic_filter, options(qos))], version=client.version))
        deadline = time.monotonic() + PATIENCE_S
        granted = False
        while not granted or (client.version == 5 and not self.finished):
            packet = self.actor.receive(client, deadline - time.monotonic())
            if isinstance(packet, SubAck):
                granted = True
                if packet.codes[0] >= 0x80:
                    raise Gone("subscription refused")
            else:
                self.on_packet(packet)

    def listen_on(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self.actor.over.is_set():
            try:
                packet = self.client.recv(min(left, 0.1))
            except TimeoutError:
                continue
            if isinstance(packet, Disconnect):
                raise Gone("sent away")
            self.on_packet(packet)

    def on_packet(self, packet: Packet) -> None:
        at = self.actor.now()
        if not isinstance(packet, Publish):
            raise AssertionError(f"expected messages only, got {packet}")
        if packet.qos == 1 and packet.packet_id is not None:
            self.client.send(puback(packet.packet_id))
        if packet.topic == MARKER:
            self.finished = True
            for topic in sorted(self.missing):
                self.found(topic, None, at)
            return
        value = packet.payload.decode() or None
        self.actor.history.sights.append(Sight(self.stream, packet.topic, value, at, node=self.client.node))
        if packet.topic in self.missing:
            self.found(packet.topic, value, at)

    def found(self, topic: str, value: str | None, at: float) -> None:
        self.missing.discard(topic)
        if value is not None:
            self.values[topic] = value
        self.actor.history.reads.append(Read(topic, value, self.began, at, self.actor.name, self.client.node))


class Lasting(Actor):
    """A client whose session outlives its connections, and which moves between nodes: it leaves, is cut off, stays away
    for a while, or is there before it has left.
    """

    def __init__(self, world: World, name: str, version: int) -> None:
        super().__init__(world, name)
        self.version = version
        self.expects_session = False
        self.last: Connection | None = None

    def turn(self) -> None:
        old = self.last
        if old is not None and self.random.random() < 0.7:
            self.leave(old)
            if self.random.random() < 0.3:
                self.rest(3.0)
        properties = [(P.SESSION_EXPIRY, FOR_EVER)] if self.version == 5 else []
        try:
            client = self.connect(self.name, version=self.version, clean=False, properties=properties)
        finally:
            if old is not None:
                old.cut()
            self.last = None
        assert client.connack is not None
        present = client.connack.session_present
        self.history.sessions.append(SessionSeen(self.name, self.now(), present, self.expects_session, client.node))
        self.last = client
        if not present:
            self.forget()
        self.expects_session = True
        self.use(client, self.random.uniform(0.1, 4.0))

    def forget(self) -> None:
        """There is no session: nothing is under way any more."""

    def use(self, client: Connection, seconds: float) -> None:
        raise NotImplementedError

    def close(self) -> None:
        if self.last is not None:
            self.last.cut()


class Subscriber(Lasting):
    """Receives in a persistent session, and finishes every handshake sooner or later."""

    def __init__(self, world: World, name: str, version: int, filters: Sequence[str], qos: int) -> None:
        super().__init__(world, name, version)
        self.filters = filters
        self.qos = qos
        self.subscribed = threading.Event()
        self.unreleased: set[int] = set()
        self.got: set[str] = set()
        self.over = threading.Event()  # of its own: it goes on receiving when nobody sends any more

    def forget(self) -> None:
        self.subscribed.clear()
        self.unreleased.clear()

    def use(self, client: Connection, seconds: float) -> None:
        if not self.subscribed.is_set():
            packet_id = client.next_id()
            wanted = [(topic_filter, options(self.qos)) for topic_filter in self.filters]
            client.send(subscribe(packet_id, wanted, version=self.version))
            answer = self.wait_for(client, SubAck, packet_id)
            if any(code >= 0x80 for code in answer.codes):
                raise Gone("subscription refused")
            for topic_filter in self.filters:
                prefix = topic_filter.removesuffix("#")
                self.history.subscriptions.append(Subscription(self.name, prefix, self.qos, self.now()))
            self.subscribed.set()
        self.listen(client, seconds)

    def on_packet(self, client: Connection, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self.on_message(client, packet)
        elif isinstance(packet, PubRel):
            self.unreleased.discard(packet.packet_id)
            client.send(pubcomp(packet.packet_id))
        else:
            super().on_packet(client, packet)

    def on_message(self, client: Connection, message: Publish) -> None:
        if message.qos < 2 or message.packet_id not in self.unreleased:
            self.note(client, message)
        if message.packet_id is None:
            return
        if message.qos == 2:
            self.unreleased.add(message.packet_id)
            client.send(pubrec(message.packet_id))
        else:
            client.send(puback(message.packet_id))

    def note(self, client: Connection, message: Publish) -> None:
        at, text = self.now(), message.payload.decode()
        self.got.add(text)
        if message.topic.startswith("r/"):
            again = message.qos == 1
            self.history.sights.append(Sight(self.name, message.topic, text or None, at, again, client.node))
        else:
            self.history.received.append(Received(self.name, text, message.topic, message.qos, at, client.node))


@dataclass
class UnderWay:
    message: str
    topic: str
    number: int
    began: float
    times: int = 1
    taken: bool = False  # PUBREC came


class Publisher(Lasting):
    """Sends numbered messages from a persistent session, a few at a time, and again what was not answered."""

    WINDOW = 6

    def __init__(self, world: World, name: str, version: int, qos: int) -> None:
        super().__init__(world, name, version)
        self.qos = qos
        self.count = 0
        self.last_id = 0
        self.under_way: dict[int, UnderWay] = {}
        self.acknowledged: list[str] = []
        self.give_up = threading.Event()
        self.over = self.give_up  # it ends when everything is answered: see `use`

    @property
    def is_finished(self) -> bool:
        return self.world.stop.is_set() and not self.under_way

    def use(self, client: Connection, seconds: float) -> None:
        self.resume(client)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline or self.world.stop.is_set():
            if self.is_finished:
                self.give_up.set()
                return
            burst = self.random.randrange(1, self.WINDOW + 1)
            while len(self.under_way) < burst and not self.world.stop.is_set():
                self.publish(client)
            if self.under_way:
                self.on_packet(client, self.receive(client, PATIENCE_S))
            self.over.wait(self.random.uniform(0.0, 0.01))

    def publish(self, client: Connection) -> None:
        self.count += 1
        self.last_id = self.last_id % 65535 + 1
        topic = f"q/{self.name}/{self.count % 2}"
        message = UnderWay(f"{self.name}:{self.count}", topic, self.count, self.now())
        self.under_way[self.last_id] = message
        client.send(self.packet(self.last_id, message))

    def packet(self, packet_id: int, message: UnderWay) -> bytes:
        return publish(
            message.topic,
            message.message,
            qos=self.qos,
            packet_id=packet_id,
            dup=message.times > 1,
            version=self.version,
        )

    def resume(self, client: Connection) -> None:
        for packet_id, message in list(self.under_way.items()):
            message.times += 1
            client.send(pubrel(packet_id) if message.taken else self.packet(packet_id, message))

    def on_packet(self, client: Connection, packet: Packet) -> None:
        if not isinstance(packet, PubAck | PubRec | PubComp):
            return super().on_packet(client, packet)
        message = self.under_way.get(packet.packet_id)
        if message is None:
            if isinstance(packet, PubRec):
                client.send(pubrel(packet.packet_id))
            return None
        if isinstance(packet, PubRec) and packet.reason < 0x80:
            message.taken = True
            client.send(pubrel(packet.packet_id))
            return None
        # A server that has forgotten a packet id answers PUBREL with 0x92; whether the message came is another matter.
        outcome = Outcome.OK if isinstance(packet, PubComp) else outcome_of(packet)
        if outcome is Outcome.REFUSED and message.times > 1:
            outcome = Outcome.UNKNOWN
        self.close_account(self.under_way.pop(packet.packet_id), outcome)
        return None

    def forget(self) -> None:
        for message in self.under_way.values():
            self.close_account(message, Outcome.OK if message.taken else Outcome.UNKNOWN)
        self.under_way.clear()

    def close_account(self, message: UnderWay, outcome: Outcome) -> None:
        if outcome is Outcome.OK:
            self.acknowledged.append(message.message)
        ended = None if outcome is Outcome.UNKNOWN else self.now()
        self.history.sent.append(
            Sent(message.message, self.name, message.topic, message.number, self.qos, message.began, ended, outcome)
        )


class WithWill(Actor):
    """Connects with a will, under a new client id each time, and ends in one of several ways."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.expected: list[str] = []

    def turn(self) -> None:
        client_id = self.world.clock.unique(self.name)
        text = self.world.clock.unique("will")
        version = self.random.choice([4, 5])
        lasting = not self.world.system.keeps_every_will or self.random.random() < 0.5
        delay = [(P.WILL_DELAY, 1)] if version == 5 and lasting and self.random.random() < 0.3 else []
        will = Will(f"w/{client_id}", text.encode(), qos=2, properties=delay)
        properties = [(P.SESSION_EXPIRY, 3600)] if version == 5 and lasting else []
        node = self.any_node()
        disturbed = self.world.system.disturbed[node]
        began, accepted, ending = self.now(), None, Ending.CUT
        try:
            client = self.connect(
                client_id, node=node, version=version, clean=not lasting, will=will, properties=properties
            )
            accepted = self.now()
            try:
                self.stay(client, self.random.choice([0.0, 0.1, 0.3, 1.0, 4.0]))
                if self.random.random() < 0.5:
                    ending = Ending.LEFT
                    if self.goes_cleanly(client) and self.world.system.disturbed[node] == disturbed:
                        ending = Ending.CLEAN
            finally:
                client.cut()
        finally:
            self.history.wills.append(
                WillConnection(text, will.topic, client_id, node, began, accepted, self.now(), ending)  # type: ignore[arg-type]
            )
            if accepted is not None and ending is Ending.CUT:
                self.expected.append(text)
        self.rest(0.3)

    def stay(self, client: Connection, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.over.is_set():
            client.send(pingreq())
            self.wait_for(client, PingResp)
            self.over.wait(0.1)

    def goes_cleanly(self, client: Connection) -> bool:
        """Whether the node has surely taken the DISCONNECT in, if nothing happened to it meanwhile."""
        try:
            client.send(pingreq())
            self.wait_for(client, PingResp)
        except (Closed, Gone, OSError):
            return False  # the node had sent it away before, and 3.1.1 has no word for that
        client.send(disconnect())
        try:
            self.wait_for(client, ConnAck)  # which never comes
        except Closed:
            pass
        except (Gone, OSError):
            return False
        witness = self.world.clock.unique(self.name)
        with self.connection(witness, node=client.node) as other:
            packet_id = other.next_id()
            other.send(publish(f"x/{self.name}", witness, qos=1, retain=True, packet_id=packet_id))
            return outcome_of(self.wait_for(other, PubAck, packet_id)) is Outcome.OK


class Rival(Actor):
    """One of several that use the same client id, each thinking that it is theirs alone."""

    def __init__(self, world: World, name: str, client_id: str) -> None:
        super().__init__(world, name)
        self.client_id = client_id

    def turn(self) -> None:
        version = self.random.choice([4, 5])
        clean = self.random.random() < 0.5
        name = self.world.clock.unique(self.name)
        properties = [(P.SESSION_EXPIRY, 60)] if version == 5 and not clean else []
        began = self.now()
        with self.connection(self.client_id, version=version, clean=clean, properties=properties) as client:
            self.history.attached.append(Attached(self.client_id, name, began, self.now(), client.node))
            for _ in range(self.random.randrange(1, 30)):
                packet_id, sent = client.next_id(), self.now()
                client.send(publish(f"c/{self.client_id}", name, qos=1, packet_id=packet_id, version=version))
                answer = self.wait_for(client, PubAck, packet_id)
                if outcome_of(answer) is Outcome.OK:
                    self.history.served.append(Served(self.client_id, name, sent, self.now(), client.node))
                self.rest(0.05)
        self.rest(0.5)


class Looker(Actor):
    """Looks at a node when all is over, and sees whether it still does its work."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "looker")
        self.over = threading.Event()

    def acknowledged(self, node: str) -> bool:
        """Whether the node takes a write now."""
        try:
            with self.connection(self.world.clock.unique(self.name), node=node, version=5) as client:
                packet_id = client.next_id()
                client.send(publish(f"x/{node}", "there?", qos=1, retain=True, packet_id=packet_id, version=5))
                return outcome_of(self.wait_for(client, PubAck, packet_id)) is Outcome.OK
        except (Gone, Closed, OSError):
            return False

    def look(self, node: str, digest: str) -> Final | None:
        """What the node has, or None when it does not answer."""
        try:
            return self.read(node, digest)
        except (Gone, Closed, OSError):
            return None

    def read(self, node: str, digest: str) -> Final:
        mark = [(P.USER_PROPERTY, ("holdfast-snapshot", "mark"))]
        stream = self.world.clock.unique(self.name)
        with self.connection(stream, node=node, version=5, properties=mark) as client:
            reading = Reading(self, client, stream, TOPICS)
            reading.subscribe("r/#", 0)
            return Final(node, digest, reading.values)
