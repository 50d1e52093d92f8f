"""Matrix section R: a snapshot is complete and in order, whatever the client's speed, window and queue."""

import random
import time
from collections.abc import Callable

import pytest

from seeds import seed_of
from stage import BOTH, ONLY_5, Copy, P, Stage
from wire import Publish, SubAck, publish, subscribe

MANY = 20_000
SMALL_WINDOW = {"limits__max_inflight": 1}


def numbered(count: int) -> dict[str, str]:
    return {f"site/{number % 20}/dev{number}/temp": str(number) for number in range(count)}


@BOTH
@pytest.mark.matrix("R1", "R3")
def test_slow_reader_gets_every_one_of_20_000_messages(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(limits__max_queued_messages=10, limits__max_queued_bytes="4KB")
    messages = numbered(MANY)
    stage.client(version).fill(messages)
    slow = stage.client(version, receive_buffer=4096)
    slow.wire.send(subscribe(1, [(slow.full("#"), 0)], version=version))
    slow.wire.expect(SubAck)
    found: dict[str, bytes] = {}
    while len(found) < MANY:
        if len(found) % 1000 == 0 and len(found) < 10_000:
            time.sleep(0.02)
        packet = slow.wire.recv()
        assert isinstance(packet, Publish)
        assert packet.retain
        topic = slow.short(packet.topic)
        assert topic not in found, f"{topic} came twice"
        found[topic] = packet.payload
    assert found == {topic: payload.encode() for topic, payload in messages.items()}
    slow.receives()


@ONLY_5
@pytest.mark.matrix("R2", "R3")
@pytest.mark.parametrize("window", [1, 2, 3, 4, 5])
def test_snapshot_is_complete_for_any_receive_maximum(staged: Callable[..., Stage], version: int, window: int) -> None:
    stage = staged(limits__max_queued_messages=1, limits__max_queued_bytes="1KB")
    messages = numbered(300)
    publisher = stage.client(version)
    publisher.fill(dict(list(messages.items())[:150]), qos=1)
    publisher.fill(dict(list(messages.items())[150:]), qos=0)
    subscriber = stage.client(version, properties=[(P.RECEIVE_MAXIMUM, window)])
    subscriber.subscribe("#", qos=1)
    copies = subscriber.take(300)
    assert {copy.topic: copy.payload for copy in copies} == {t: p.encode() for t, p in messages.items()}
    subscriber.receives()


@ONLY_5
@pytest.mark.matrix("R2", "R3")
def test_snapshot_at_qos_2_is_complete_with_a_window_of_one(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(limits__max_queued_messages=1, limits__max_queued_bytes="1KB")
    publisher = stage.client(version)
    for number in range(60):
        publisher.publish(f"t{number}", str(number), qos=2, retain=True)
    subscriber = stage.client(version, properties=[(P.RECEIVE_MAXIMUM, 1)])
    subscriber.subscribe("#", qos=2)
    subscriber.receives(*(Copy(f"t{number}", str(number), qos=2, retain=True) for number in range(60)))


@BOTH
@pytest.mark.matrix("R4")
@pytest.mark.parametrize("qos", [0, 1])
def test_live_and_snapshot_copies_never_go_back(staged: Callable[..., Stage], version: int, qos: int) -> None:
    """Topics change all the time, by retained and by plain messages, while a slow client is sent the set."""
    stage = staged(limits__max_inflight=5)
    seed = seed_of(12)
    chance = random.Random(seed)
    count = 3000
    publisher = stage.client(version)
    publisher.fill({f"t{number}": "0 " + "x" * 200 for number in range(count)}, qos=qos)
    reader = stage.client(version, receive_buffer=4096)
    reader.wire.send(subscribe(1, [(reader.full("#"), qos)], version=version))
    reader.wire.expect(SubAck)
    latest = dict.fromkeys(range(count), 0)
    values: dict[int, list[int]] = {number: [] for number in range(count)}

    def note(copy: Copy) -> None:
        values[int(copy.topic[1:])].append(int(copy.packet.payload.split()[0]))

    for step in range(1, 301):
        for _ in range(3):
            number = chance.randrange(count)
            latest[number] = step * 10 + len(values[number]) % 7
            publisher.send_publish(f"t{number}", str(latest[number]), qos=qos, retain=chance.random() < 0.6)
        for copy in reader.take(chance.randrange(8), 0.05):
            note(copy)
        if qos:
            publisher.wire.barrier()
    publisher.wire.ping()
    deadline = time.monotonic() + 120
    while any(not seen or seen[-1] != latest[number] for number, seen in values.items()):
        assert time.monotonic() < deadline, f"seed {seed}: {unseen(values, latest)}"
        for copy in reader.take(500, 0.3):
            note(copy)
    for number, seen in values.items():
        assert seen == sorted(seen), f"seed {seed}: t{number} went back: {seen}"


def unseen(values: dict[int, list[int]], latest: dict[int, int]) -> str:
    wrong = {n: (seen, latest[n]) for n, seen in values.items() if not seen or seen[-1] != latest[n]}
    shown = ", ".join(f"t{n} saw {seen}, last was {last}" for n, (seen, last) in list(wrong.items())[:5])
    return f"{len(wrong)} topics lack their last value: {shown}"


@BOTH
@pytest.mark.told_clock
@pytest.mark.matrix("R5")
def test_topic_deleted_or_expired_before_its_turn_is_not_sent(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(**SMALL_WINDOW)
    writer = stage.client(5)
    for number in range(10):
        writer.publish(f"deleted{number}", "1", qos=1, retain=True)
        writer.publish(f"kept{number}", "1", qos=1, retain=True)
        writer.publish(f"expired{number}", "1", qos=1, retain=True, properties=[(P.MESSAGE_EXPIRY, 1)])
    reader = stage.client(version)
    reader.subscribe("+", qos=1)
    first = reader.take(1, ack=False)
    for number in range(10):
        writer.publish(f"deleted{number}", "", qos=1, retain=True)
    stage.pass_time(1.2)
    reader.wire.ack(first[0].packet)
    copies = first + reader.rest()
    retained = [copy.topic for copy in copies if copy.retain]
    assert {topic for topic in retained if topic.startswith("kept")} == {f"kept{number}" for number in range(10)}
    assert set(retained) <= {f"kept{number}" for number in range(10)} | {first[0].topic}
    emptied = [copy for copy in copies if not copy.retain]
    assert sorted(copy.topic for copy in emptied) == sorted(f"deleted{number}" for number in range(10))
    assert all(copy.payload == b"" for copy in emptied)


@BOTH
@pytest.mark.matrix("R6")
def test_topic_changed_before_its_turn_is_sent_once(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(**SMALL_WINDOW)
    topics = [f"t{number}" for number in range(30)]
    writer, reader = stage.client(version), stage.client(version)
    writer.fill(dict.fromkeys(topics, "old"), qos=1)
    reader.subscribe("+", qos=1)
    first = reader.take(1, ack=False)
    writer.fill(dict.fromkeys(topics, "new"), qos=1)
    reader.wire.ack(first[0].packet)
    copies = first + reader.rest()
    assert [copy.payload for copy in copies if copy.topic == first[0].topic] == [b"old", b"new"]
    others = [(copy.topic, copy.payload) for copy in copies if copy.topic != first[0].topic]
    assert sorted(others) == sorted((topic, b"new") for topic in topics if topic != first[0].topic)


@BOTH
@pytest.mark.matrix("R7")
def test_unsubscribe_ends_a_running_snapshot(staged: Callable[..., Stage], version: int) -> None:
    stage = staged()
    count = 5000
    stage.client(version).fill({f"t{number}": "x" * 4000 for number in range(count)})
    reader = stage.client(version, receive_buffer=4096)
    reader.wire.send(subscribe(1, [(reader.full("#"), 0)], version=version))
    assert len(reader.take(10)) == 10
    reader.unsubscribe("#")  # on return the answer has come, and everything before it
    before = len(reader.wire.barrier())
    assert 0 < before < count - 10
    reader.receives()
    reader.subscribe("t1")
    reader.receives(Copy("t1", "x" * 4000, retain=True))


@BOTH
@pytest.mark.matrix("R8")
@pytest.mark.parametrize("ending", ["disconnect", "cut", "take-over"])
def test_a_kept_session_goes_on_with_its_snapshot_on_the_next_connection(
    staged: Callable[..., Stage], version: int, ending: str
) -> None:
    stage = staged(**SMALL_WINDOW)
    topics = [f"t{number}" for number in range(40)]
    stage.client(version).fill(dict.fromkeys(topics, "1"), qos=1)
    reader = stage.client(version, "s", keep=True)
    reader.subscribe("+", qos=1)
    (first,) = reader.take(1, ack=False)
    if ending == "disconnect":
        reader.disconnect()
    elif ending == "cut":
        reader.cut()
    again = stage.client(version, "s", keep=True)
    assert again.wire.connack is not None
    assert again.wire.connack.session_present
    assert first.topic == topics[0]
    again.receives(*(Copy(topic, "1", qos=1, retain=True) for topic in topics))
    again.disconnect()
    stage.client(version, "s", clean=True).receives()


@BOTH
@pytest.mark.matrix("R9")
def test_many_snapshots_advance_side_by_side(staged: Callable[..., Stage], version: int) -> None:
    """Eight clients read in step, each only after the one before it has got something: nobody's snapshot waits for the
    end of another's, which would not come. What is sent is more than the buffers of the system can hold.
    """
    stage = staged()
    count = 5000
    publisher = stage.client(version)
    publisher.fill({f"t{number:05}": "x" * 2000 for number in range(count)})
    size = count * len(publish(publisher.full("t00000"), b"x" * 2000, retain=True, version=version))
    readers = [stage.client(version, receive_buffer=16384) for _ in range(8)]
    for reader in readers:
        reader.wire.send(subscribe(1, [(reader.full("+"), 0)], version=version))
    received = dict.fromkeys(readers, 0)
    while min(received.values()) < size:
        for reader in readers:
            if received[reader] < size:
                reader.wire.sock.settimeout(60)
                received[reader] += len(reader.wire.sock.recv(65536))


@BOTH
@pytest.mark.matrix("R4", "R6")
def test_plain_message_in_mid_snapshot_comes_after_the_retained_one(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(**SMALL_WINDOW)
    topics = [f"t{number}" for number in range(30)]
    writer, reader = stage.client(version), stage.client(version)
    writer.fill(dict.fromkeys(topics, "kept"), qos=1)
    reader.subscribe("+", qos=1)
    first = reader.take(1, ack=False)
    for topic in topics:
        writer.publish(topic, "event", qos=1)
    reader.wire.ack(first[0].packet)
    seen: dict[str, list[bytes]] = {topic: [] for topic in topics}
    for copy in first + reader.rest():
        seen[copy.topic].append(copy.packet.payload)
    assert seen == {topic: [b"kept", b"event"] for topic in topics}
