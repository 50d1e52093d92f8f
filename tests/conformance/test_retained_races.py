"""Matrix section Q: publishing and subscribing at the same time, on connections of their own."""

import random
import socket
import threading
import time
from collections.abc import Callable

import pytest

from seeds import seed_of
from stage import BOTH, Actor, Stage
from wire import PubComp, PubRec, publish, pubrel, subscribe, unsubscribe


def send_in_pieces(actor: Actor, packets: list[bytes], pieces: random.Random) -> None:
    """Hand the packets to the socket a few at a time, so that the broker meets them in batches of any size."""
    at = 0
    while at < len(packets):
        step = pieces.randint(1, 30)
        actor.wire.sock.sendall(b"".join(packets[at : at + step]))
        at += step
        if pieces.random() < 0.1:
            time.sleep(0)


@BOTH
@pytest.mark.matrix("Q1")
@pytest.mark.clause("3.1.1", "MQTT-4.6.0-6")
@pytest.mark.clause("5.0", "MQTT-3.8.4-4", "MQTT-4.6.0-5")
def test_publish_racing_with_subscribe_is_seen_and_never_goes_back(stage: Stage, version: int) -> None:
    """100 rounds of 100 topics, each written and subscribed to at the same time: 10 000 races."""
    seed = seed_of(11)
    chance = random.Random(seed)
    publisher, subscriber = stage.client(version), stage.client(version)
    topics = [f"t{number}" for number in range(100)]
    for topic in topics:
        publisher.note(topic, True)
    for number in range(1, 101):
        writes = [publish(publisher.full(t), str(number), retain=True, version=version) for t in topics]
        asks = [
            subscribe(1000 + at, [(subscriber.full(t), 0)], version=version) for at, t in enumerate(topics, start=1)
        ]
        chance.shuffle(writes)
        chance.shuffle(asks)
        writer = threading.Thread(
            target=send_in_pieces, args=(publisher, writes, random.Random(chance.random())), name="publisher"
        )
        writer.start()
        send_in_pieces(subscriber, asks, random.Random(chance.random()))
        writer.join()
        publisher.wire.ping()
        seen: dict[str, list[int]] = {topic: [] for topic in topics}
        for copy in subscriber.rest(quiet=0.002):
            seen[copy.topic].append(int(copy.payload))
        for topic, values in seen.items():
            assert values, f"seed {seed}, round {number}: {topic} was never seen"
            assert values == sorted(values), f"seed {seed}, round {number}: {topic} went back, {values}"
            assert values[-1] == number, f"seed {seed}, round {number}: {topic} ended with {values}"
        subscriber.wire.send(unsubscribe(2000, [subscriber.full(topic) for topic in topics], version=version))
        assert subscriber.rest(quiet=0.002) == []


@BOTH
@pytest.mark.matrix("Q2")
def test_replacing_never_leaves_a_gap(stage: Stage, version: int) -> None:
    publisher, reader = stage.client(version), stage.client(version)
    publisher.publish("a", "0", retain=True)
    writes = [publish(publisher.full("a"), str(number), retain=True, version=version) for number in range(1, 10_001)]
    writer = threading.Thread(target=send_in_pieces, args=(publisher, writes, random.Random(7)), name="publisher")
    writer.start()
    looks = 0
    newest = 0
    while writer.is_alive() or looks < 20:
        reader.subscribe("a")
        copies = reader.take(1)
        assert copies, f"look {looks} found nothing"
        assert copies[0].retain, f"look {looks} found only a live message"
        reader.unsubscribe("a")
        copies += [reader.copy(packet, ack=False) for packet in reader.wire.barrier()]
        values = [newest, *(int(copy.payload) for copy in copies)]
        assert values == sorted(values), f"look {looks} went back: {values}"
        newest = values[-1]
        looks += 1
    writer.join()
    publisher.wire.ping()
    assert stage.stored(version) == {"a": b"10000"}


@BOTH
@pytest.mark.matrix("Q3")
@pytest.mark.clause("3.1.1", "MQTT-4.6.0-6")
@pytest.mark.clause("5.0", "MQTT-4.6.0-5")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_store_ends_with_the_second_of_two_publishes(stage: Stage, version: int, qos: int) -> None:
    publisher = stage.client(version)
    for number in range(50):
        ids = [publisher.send_publish(f"t{number}", text, qos=qos, retain=True) for text in ("first", "second")]
        if qos == 2:
            for packet_id in ids:
                publisher.wire.expect(PubRec, packet_id=packet_id)
            for packet_id in ids:
                assert packet_id is not None
                publisher.wire.send(pubrel(packet_id))
                publisher.wire.expect(PubComp, packet_id=packet_id)
    publisher.wire.ping()
    assert stage.stored(version) == {f"t{number}": b"second" for number in range(50)}


@BOTH
@pytest.mark.matrix("Q5")
def test_large_snapshot_does_not_starve_other_clients(staged: Callable[..., Stage], version: int) -> None:
    stage = staged()
    publisher, greedy, other = (stage.client(version) for _ in range(3))
    count = 100_000
    payload = b"x" * 64
    for begin in range(0, count, 1000):
        packets = [
            publish(publisher.full(f"site/{n % 50}/dev{n}"), payload, retain=True, version=version)
            for n in range(begin, begin + 1000)
        ]
        publisher.wire.sock.settimeout(60)
        publisher.wire.sock.sendall(b"".join(packets))
    publisher.wire.ping()
    expected = sum(len(p) for p in packets) // 1000 * count
    received = threading.Event()
    reader = threading.Thread(
        target=read_bytes, args=(greedy.wire.sock, expected * 9 // 10, received), name="reader", daemon=True
    )
    greedy.wire.send(subscribe(1, [(greedy.full("#"), 0)], version=version))
    reader.start()
    pings = 0
    while not received.is_set():
        other.wire.ping()
        pings += not received.is_set()
        time.sleep(0.002)
    reader.join()
    assert pings > 1, "nobody else was answered before the snapshot was through"


def read_bytes(sock: socket.socket, count: int, done: threading.Event) -> None:
    try:
        sock.settimeout(60)
        while count > 0:
            data = sock.recv(1 << 20)
            if not data:
                break
            count -= len(data)
    finally:
        done.set()
