"""A client that had half of its snapshot gets the rest, whatever came between: its connection, or the broker, ended."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker_process import BrokerProcess, start_holdfast
from crash_actors import Subscriber
from wire import P, PubAck, PubComp, Publish, PubRec, PubRel, WireClient, pubrel

COUNT = 400
WINDOW = 20
NO_HISTORY = {"history.enable": False}  # its process takes longer to start than the broker


@dataclass
class Reader(Subscriber):
    """Reads as much as it is told to and keeps what it got as (topic, payload)."""

    seen: list[tuple[str, bytes]] = field(default_factory=list)

    def on_packet(self, client: WireClient, packet: object) -> None:
        before = len(self.received)
        super().on_packet(client, packet)
        if isinstance(packet, Publish) and (len(self.received) > before):
            self.seen.append((packet.topic, packet.payload))

    def take(self, client: WireClient, count: int) -> None:
        """Answer everything until so many messages came, and then only read: what follows stays unanswered."""
        goal = len(self.seen) + count
        while len(self.seen) < goal:
            self.on_packet(client, client.recv())
        unanswered = client.recv()
        if isinstance(unanswered, Publish) and unanswered.qos == 2:
            assert unanswered.packet_id is not None
            if unanswered.packet_id not in self.unreleased:
                self.unreleased.add(unanswered.packet_id)
                self.received.append(unanswered.payload)
                self.seen.append((unanswered.topic, unanswered.payload))
        elif isinstance(unanswered, PubRel):
            self.unreleased.discard(unanswered.packet_id)

    def topics(self) -> Counter[str]:
        return Counter(topic for topic, _ in self.seen)


def fill(broker: BrokerProcess) -> None:
    with WireClient(broker.port, 5) as client:
        client.connect("filler")
        for number in range(COUNT):
            client.send_publish(f"s/{number}", b"old", qos=2 if number % 2 else 1, retain=True)
        answers = [client.recv() for _ in range(COUNT)]
        for answer in answers:
            if isinstance(answer, PubRec):
                client.send(pubrel(answer.packet_id))
        answers += [client.recv() for _ in range(COUNT // 2)]
        kinds = Counter(type(answer) for answer in answers)
        assert kinds == {PubAck: COUNT // 2, PubRec: COUNT // 2, PubComp: COUNT // 2}


def begin(broker: BrokerProcess, reader: Reader) -> None:
    """Subscribe and read some, in a session with a window that is small beside the snapshot."""
    with WireClient(broker.port, 5) as client:
        client.connect(reader.name, clean=True, properties=[(P.SESSION_EXPIRY, 3600), (P.RECEIVE_MAXIMUM, WINDOW)])
        client.subscribe(reader.topic_filter, qos=reader.qos)
        reader.take(client, 50)
        client.disconnect()


def go_on(broker: BrokerProcess, reader: Reader, count: int) -> None:
    with WireClient(broker.port, 5) as client:
        properties = [(P.SESSION_EXPIRY, 3600), (P.RECEIVE_MAXIMUM, WINDOW)]
        assert client.connect(reader.name, clean=False, properties=properties).session_present
        reader.take(client, count)


def check_complete(reader: Reader) -> None:
    topics = reader.topics()
    missing = [number for number in range(COUNT) if f"s/{number}" not in topics]
    assert not missing, f"never came: {missing[:10]} of {len(missing)}"
    twice = [number for number in range(1, COUNT, 2) if topics[f"s/{number}"] > 1]
    assert not twice, f"came twice at QoS 2: {twice[:10]}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("storage_type", ["disc", "disc_only"])
def test_snapshot_goes_on_after_the_broker_was_killed_in_the_middle_of_it(tmp_path: Path, storage_type: str) -> None:
    settings = {"retainer.storage_type": storage_type, **NO_HISTORY}
    broker = start_holdfast(tmp_path, settings)
    fill(broker)
    reader = Reader("reader", "s/#", 2, 5)
    begin(broker, reader)
    for _ in range(2):
        broker.kill()
        broker = start_holdfast(tmp_path, settings)
        go_on(broker, reader, 40)
    broker.kill()
    broker = start_holdfast(tmp_path, settings)
    with WireClient(broker.port, 5) as client:
        reader.drain(client, lambda: len(reader.topics()) == COUNT)
    check_complete(reader)
    sent_again = sum(reader.topics().values()) - COUNT
    assert sent_again <= 4 * WINDOW, f"{sent_again} messages came again, expected no more than were under way"
    assert broker.stop() == 0


@pytest.mark.timeout(600)
def test_nothing_old_follows_something_new_when_a_killed_broker_goes_on_with_a_snapshot(tmp_path: Path) -> None:
    broker = start_holdfast(tmp_path, NO_HISTORY)
    fill(broker)
    reader = Reader("reader", "s/#", 2, 5)
    begin(broker, reader)
    with WireClient(broker.port, 5) as client:
        client.connect("talker")
        for number in range(COUNT):  # plain messages, which leave the retained ones as they are
            client.send_publish(f"s/{number}", b"new", qos=1)
        for _ in range(COUNT):
            client.expect(PubAck)
    for count in (100, 300):
        broker.kill()
        broker = start_holdfast(tmp_path, NO_HISTORY)
        go_on(broker, reader, count)
    broker.kill()
    broker = start_holdfast(tmp_path, NO_HISTORY)
    with WireClient(broker.port, 5) as client:
        reader.drain(client, lambda: len(set(reader.seen)) == 2 * COUNT)
    assert broker.stop() == 0
    for number in range(COUNT):
        first = list(dict.fromkeys(payload for topic, payload in reader.seen if topic == f"s/{number}"))
        assert first == [b"old", b"new"], f"s/{number} brought {first}"
        last = [payload for topic, payload in reader.seen if topic == f"s/{number}"][-1]
        assert last == b"new", f"s/{number} went back to {last!r}"


def test_snapshot_goes_on_after_its_connection_broke(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    fill(broker)
    reader = Reader("reader", "s/#", 2, 5)
    begin(broker, reader)
    with WireClient(broker.port, 5) as client:  # replaced meanwhile: at QoS 0, which nobody keeps for an absent client
        client.connect("talker")
        client.publish(f"s/{COUNT - 1}", b"newest", qos=0, retain=True)
        client.ping()
    go_on(broker, reader, 100)
    with WireClient(broker.port, 5) as client:
        reader.drain(client, lambda: len(reader.topics()) == COUNT and reader.seen[-1][1] == b"newest")
    check_complete(reader)
    assert sum(reader.topics().values()) <= COUNT + 2 * WINDOW
    assert reader.seen[-1] == (f"s/{COUNT - 1}", b"newest")
