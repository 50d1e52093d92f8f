"""The clients of the crash story. Each runs in a thread of its own against a broker that will be killed, remembers
across connections what MQTT makes it remember, and knows what it was promised.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from wire import P, PubAck, PubComp, Publish, PubRec, PubRel, WireClient, puback, pubcomp, publish, pubrec, pubrel

WINDOW = 20
FOR_EVER = 0xFFFFFFFF
TOO_MUCH_S = 0.3  # how long to look for what should not come


class Actor(Protocol):
    name: str

    def session(self, client: WireClient) -> None:
        """Act until the connection breaks or `stop` is set."""

    stop: threading.Event


@dataclass
class RetainedWriter:
    """Sets, replaces and deletes retained messages at QoS 1, on topics that nobody else writes.

    An operation is (topic, payload); an empty payload deletes. `acknowledged` holds, for each topic, the number of the
    last operation that the broker took responsibility for.
    """

    name: str
    topics: list[str]
    version: int
    operations: dict[str, list[bytes]] = field(default_factory=dict)
    acknowledged: dict[str, int] = field(default_factory=dict)
    count: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def session(self, client: WireClient) -> None:
        client.connect(self.name, clean=True)
        under_way: dict[int, tuple[str, int]] = {}
        while not self.stop.is_set() or under_way:
            while len(under_way) < WINDOW and not self.stop.is_set():
                topic, number = self.next_operation()
                payload = self.operations[topic][number]
                packet_id = client.send_publish(topic, payload, qos=1, retain=True)
                assert packet_id is not None
                under_way[packet_id] = (topic, number)
            answer = client.recv()
            if isinstance(answer, PubAck):
                topic, number = under_way.pop(answer.packet_id)
                if answer.reason < 0x80:
                    self.acknowledged[topic] = max(number, self.acknowledged.get(topic, -1))

    def next_operation(self) -> tuple[str, int]:
        self.count += 1
        topic = self.topics[self.count * 7 % len(self.topics)]
        operations = self.operations.setdefault(topic, [])
        operations.append(b"" if self.count % 4 == 0 else f"{self.name}:{self.count}".encode())
        return topic, len(operations) - 1

    def allowed(self, topic: str) -> set[bytes]:
        """What the topic may hold after a crash: what was acknowledged last, or anything sent since."""
        first = self.acknowledged.get(topic, -1)
        allowed = set(self.operations.get(topic, [])[max(first, 0) :])
        return allowed | {b""} if first < 0 else allowed


@dataclass
class QueueWriter:
    """Publishes numbered messages at QoS 1 or 2 from a session that lasts, and sends again what was not answered."""

    name: str
    topic: str
    qos: int
    version: int
    acknowledged: set[int] = field(default_factory=set)  # the broker took responsibility (PUBACK, PUBREC)
    under_way: dict[int, int] = field(default_factory=dict)  # packet id to number, in order
    releasing: dict[int, int] = field(default_factory=dict)  # PUBREC came, PUBCOMP did not
    count: int = 0
    last_id: int = 0
    started: bool = False
    stop: threading.Event = field(default_factory=threading.Event)

    def session(self, client: WireClient) -> None:
        answer = connect_lasting(client, self.name, self.version)
        if self.started and not answer:
            raise AssertionError(f"session of {self.name} is gone")
        self.started = True
        self.resume(client)
        while not self.stop.is_set() or self.under_way or self.releasing:
            while len(self.under_way) + len(self.releasing) < WINDOW and not self.stop.is_set():
                self.publish(client)
            self.on_answer(client, client.recv())

    def resume(self, client: WireClient) -> None:
        """Send again what was not answered before the connection broke."""
        for packet_id in self.releasing:
            client.send(pubrel(packet_id))
        for packet_id, number in self.under_way.items():
            client.send(self.packet(packet_id, number, dup=True))

    def publish(self, client: WireClient) -> None:
        self.count += 1
        self.last_id = self.last_id % 65535 + 1
        self.under_way[self.last_id] = self.count
        client.send(self.packet(self.last_id, self.count))

    def on_answer(self, client: WireClient, answer: object) -> None:
        if isinstance(answer, PubAck):
            self.acknowledged.add(self.under_way.pop(answer.packet_id))
        elif isinstance(answer, PubRec):
            if answer.packet_id in self.under_way:
                number = self.under_way.pop(answer.packet_id)
                self.acknowledged.add(number)
                self.releasing[answer.packet_id] = number
            client.send(pubrel(answer.packet_id))
        elif isinstance(answer, PubComp):
            self.releasing.pop(answer.packet_id, None)

    def packet(self, packet_id: int, number: int, dup: bool = False) -> bytes:
        payload = f"{self.name}:{number}".encode()
        return publish(self.topic, payload, qos=self.qos, packet_id=packet_id, dup=dup, version=self.version)


@dataclass
class Subscriber:
    """Receives what the queue writers send, in a session that lasts, and finishes every handshake.

    `received` is in the order of first sight. At QoS 2 a message is seen once however often it is sent.
    """

    name: str
    topic_filter: str
    qos: int
    version: int
    received: list[bytes] = field(default_factory=list)
    unreleased: set[int] = field(default_factory=set)
    started: bool = False
    stop: threading.Event = field(default_factory=threading.Event)

    def session(self, client: WireClient) -> None:
        present = connect_lasting(client, self.name, self.version)
        if self.started and not present:
            raise AssertionError(f"session of {self.name} is gone")
        if not self.started:
            client.subscribe(self.topic_filter, qos=self.qos)
            self.started = True
        while not self.stop.is_set():
            try:
                self.on_packet(client, client.recv(0.3))
            except TimeoutError:
                continue

    def drain(self, client: WireClient, enough: Callable[[], bool]) -> None:
        """Receive until that is enough and every handshake is through, and then what comes although it was enough."""
        present = connect_lasting(client, self.name, self.version)
        assert present, f"session of {self.name} is gone"
        while True:
            try:
                self.on_packet(client, client.recv(TOO_MUCH_S if enough() and not self.unreleased else None))
            except TimeoutError:
                return

    def has_all(self, writers: Iterable[QueueWriter]) -> Callable[[], bool]:
        """Asked again and again: whether everything has come that the broker took responsibility for."""
        missing = {f"{writer.name}:{number}".encode() for writer in writers for number in writer.acknowledged}
        looked_at = 0

        def enough() -> bool:
            nonlocal looked_at
            missing.difference_update(self.received[looked_at:])
            looked_at = len(self.received)
            return not missing

        return enough

    def on_packet(self, client: WireClient, packet: object) -> None:
        if isinstance(packet, Publish):
            if packet.qos == 2:
                assert packet.packet_id is not None
                if packet.packet_id not in self.unreleased:
                    self.unreleased.add(packet.packet_id)
                    self.received.append(packet.payload)
                client.send(pubrec(packet.packet_id))
            else:
                self.received.append(packet.payload)
                if packet.packet_id is not None:
                    client.send(puback(packet.packet_id))
        elif isinstance(packet, PubRel):
            self.unreleased.discard(packet.packet_id)
            client.send(pubcomp(packet.packet_id))

    def check_received(self, writers: Iterable[QueueWriter]) -> None:
        """What the broker took responsibility for has come, in order, and once where both ends asked for that."""
        for writer in writers:
            prefix = f"{writer.name}:".encode()
            numbers = [int(payload[len(prefix) :]) for payload in self.received if payload.startswith(prefix)]
            missing = writer.acknowledged - set(numbers)
            assert not missing, f"{self.name} never got {sorted(missing)[:10]} of {writer.name}"
            if self.qos == 2 and writer.qos == 2:
                twice = [number for number, count in Counter(numbers).items() if count > 1]
                assert not twice, f"{self.name} got {twice[:10]} of {writer.name} more than once"
            first_seen = list(dict.fromkeys(numbers))
            assert first_seen == sorted(first_seen), f"{self.name} got {writer.name} out of order"


def connect_lasting(client: WireClient, name: str, version: int) -> bool:
    """Connect to a session that outlives its connections; whether it was there."""
    properties = [(P.SESSION_EXPIRY, FOR_EVER)] if version == 5 else []
    answer = client.connect(name, clean=False, properties=properties)
    return bool(answer.session_present)
