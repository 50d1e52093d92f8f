"""Addresses on datagrams are claims: what somebody can have sent to somebody else, or taken from a client that sleeps.

Bytes are counted in a world without sockets, where every address can be forged.
"""

from collections.abc import Callable

import pytest

from broker_process import BrokerProcess
from sn_client import SnClient
from sn_world import World

CONNECT_12 = "08 04 04 01 00 3C 63 31"
CONNECT_2 = "0C 01 01 00 01 02 00 3C 00 00 63 31"
KEPT_12 = "08 04 00 01 00 3C 63 31"


class Forger:
    """Sends in the name of a victim and sees nothing of what the victim gets."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sent = 0
        self.received = 0

    def send(self, packet: str) -> None:
        self.sent += len(bytes.fromhex(packet))
        self.received += sum(map(len, self.world.send("victim", packet)))

    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)
        self.received += sum(map(len, self.world.taken("victim")))

    def check(self) -> None:
        assert self.received <= 3 * self.sent, f"{self.sent} bytes in, {self.received} bytes to the victim"


def world_with_much() -> World:
    world = World()
    for number in range(100):
        world.publish(f"big/{number}", bytes(1000), retain=True)
    world.publish("zz", bytes(1000), retain=True)
    return world


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    ("connect", "subscribe"),
    [
        pytest.param(CONNECT_2, "06 08 {:02X} 00 02 23", id="2.0 by name"),
        pytest.param(CONNECT_12, "06 12 {:02X} 00 02 23", id="1.2 by number"),
        pytest.param(CONNECT_12, "07 12 {:02X} 00 02 7A 7A", id="1.2 by two letters"),
    ],
)
def test_a_forged_subscriber_is_sent_three_times_its_bytes_at_most(connect: str, subscribe: str, qos: int) -> None:
    world = world_with_much()
    forger = Forger(world)
    flags = qos << 5 | (3 if connect == CONNECT_2 else 2 if "7A" in subscribe else 0)
    forger.send(connect)
    forger.send(subscribe.format(flags))
    forger.check()
    for _ in range(20):  # live messages, resends, and what the forger says to keep the connection
        world.publish("zz", bytes(1000), qos=1)
        forger.wait(5)
        forger.send("04 0C 00 09" if connect == CONNECT_2 else "02 16")
        forger.check()
    forger.wait(600)
    forger.check()


def test_a_forged_subscriber_behind_a_forwarder_gains_nothing_by_the_envelope() -> None:
    world = world_with_much()
    forger = Forger(world)
    envelope = "FC FE 00" + " AA" * 249
    for packet in (CONNECT_12, "07 12 02 00 02 7A 7A"):
        forger.send(f"{envelope} {packet}")
    for _ in range(50):
        world.publish("zz", b"")
        forger.wait(1)
        forger.check()


def test_acknowledgements_that_can_be_guessed_prove_nothing() -> None:
    world = world_with_much()
    forger = Forger(world)
    forger.send(CONNECT_2)
    forger.send("06 08 23 00 02 23")
    for guess in range(1, 200):  # PUBACK and REGACK with ids that count up from 1
        forger.send(f"05 04 {guess:04X} 00")
        forger.send(f"06 11 00 {guess:04X} 00")
        forger.check()
    assert world.gateway.connections == {}, "who guesses so often is not the one who was asked"


@pytest.mark.parametrize("version", [1, 2])
def test_who_answers_is_sent_everything(version: int) -> None:
    world = world_with_much()
    if version == 2:
        world.send("peer", CONNECT_2)
        got = world.send("peer", "06 08 03 00 02 23")
    else:
        world.send("peer", CONNECT_12)
        got = world.send("peer", "06 12 00 00 02 23")
    messages = 0
    while got:
        packet = got.pop(0)
        head = 3 if packet[0] == 1 else 1
        kind, body = packet[head], packet[head + 1 :]
        if kind == 0x10 and version == 2:
            got += world.send("peer", b"\x06\x11\x00" + body[1:3] + b"\x00")
        elif kind == 0x0A and version == 1:
            got += world.send("peer", b"\x07\x0b" + body[:4] + b"\x00")
        elif kind == (0x03 if version == 2 else 0x0C):
            messages += 1
    assert messages == 101


@pytest.mark.parametrize("by", ["PINGREQ", "Connection Encapsulation", "PINGREQ beside a connection"])
def test_a_stranger_does_not_wake_a_client_that_sleeps(by: str) -> None:
    world = World()
    if by == "Connection Encapsulation":
        world.send("sensor", "0C 01 21 00 01 02 00 3C 00 00 63 31")
        world.send("sensor", "08 08 23 00 02 61 2F 23")
        world.send("sensor", "09 13 01 00 0A 00 00 01 2C")
        wake, wake_from_home = "0A FE 00 02 63 31 04 0C 00 09", "04 0C 00 09"
    else:
        world.send("sensor", CONNECT_12)
        world.send("sensor", "08 12 20 00 02 61 2F 23")
        world.send("sensor", "04 18 01 2C")
        wake = wake_from_home = "04 16 63 31"
    for number in range(20):
        world.publish("a/b", f"for sensor-1 only {number}", qos=1)
    if by == "PINGREQ beside a connection":
        world.send("stranger", "08 04 04 01 00 3C 7A 31")
    answers = world.send("stranger", wake)
    assert sum(map(len, answers)) <= len(bytes.fromhex(wake))
    assert world.taken("sensor") == []
    assert world.gateway.connections["sensor"].is_sleeping()
    assert world.send("sensor", wake_from_home), "its messages are still there"


def test_a_client_that_has_moved_proves_its_new_address() -> None:
    world = world_with_much()
    world.send("sensor", "0C 01 21 00 01 02 00 3C 00 00 63 31")
    world.gateway.connections["sensor"].proof.proven = True
    world.send("sensor", "06 08 03 00 02 23")
    forger = Forger(world)
    forger.send("0A FE 00 02 63 31 04 0C 00 09")
    for _ in range(20):
        world.publish("big/1", bytes(1000))
        forger.wait(1)
    forger.check()


@pytest.mark.parametrize(
    "connect",
    [
        pytest.param(KEPT_12, id="1.2"),
        pytest.param("10 01 08 00 01 02 00 3C 00 00 FF FF FF FF 63 31", id="2.0, takes no suggestions"),
        pytest.param("10 01 48 00 01 02 00 3C 00 00 FF FF FF FF 63 31", id="2.0, takes suggestions"),
    ],
)
def test_a_session_of_nobody_ends(connect: str) -> None:
    world = World(session_expiry_max=3600)
    for number in range(50):
        world.send(f"forged{number}", connect[:-2] + f"{0x30 + number:02X}")
    assert len(world.broker.sessions) == 50
    world.pass_time(91 + 3600)
    assert world.broker.sessions == {}


def test_a_forged_connection_without_a_keep_alive_ends() -> None:
    world = World(session_expiry_max=3600)
    world.send("forged", CONNECT_12.replace("00 3C", "00 00"))
    assert len(world.gateway.connections) == 1
    world.pass_time(3601)
    assert world.gateway.connections == {}


@pytest.mark.parametrize("first", ["02 18", "04 18 00 3C", "03 0E 00", "04 0E 04 F4", "14 FF 10 40" + " 00" * 16])
def test_two_gateways_do_not_go_on_answering_each_other(first: str) -> None:
    """Each has the other's address on a datagram that somebody forged."""
    one, two = World(answer_rate_per_host=0, answer_rate=0), World(answer_rate_per_host=0, answer_rate=0)
    on_the_way = [bytes.fromhex(first)]
    for turn in range(20):
        here = one if turn % 2 == 0 else two
        on_the_way = [answer for packet in on_the_way for answer in here.send("the other gateway", packet)]
    assert on_the_way == []


def test_two_gateways_that_both_had_a_client_at_the_other_come_to_an_end() -> None:
    one, two = World(answer_rate_per_host=0, answer_rate=0), World(answer_rate_per_host=0, answer_rate=0)
    for here in (one, two):
        here.send("the other gateway", CONNECT_12)
        assert here.send("the other gateway", "02 18") == [b"\x02\x18"]
    assert one.send("the other gateway", "02 18") == [b"\x02\x18"], "the first answer may have got lost"
    on_the_way = [b"\x02\x18"]
    for turn in range(40):
        here = one if turn % 2 == 0 else two
        on_the_way = [answer for packet in on_the_way for answer in here.send("the other gateway", packet)]
    assert on_the_way == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_real_sensor_notices_nothing_of_the_proof(start_broker: Callable[..., BrokerProcess], version: int) -> None:
    broker = start_broker(listen=["udp://127.0.0.1:0", "tcp://127.0.0.1:0"], history__enable=False)
    filler = broker.client(5)
    filler.connect("f")
    for number in range(50):
        filler.publish(f"big/{number}", bytes(1000), qos=1, retain=True)
    with SnClient(broker.ports["udp"], version, "s1") as sensor:
        sensor.connect()
        sensor.subscribe("#")
        sensor.wait_for(50)
        assert {topic for topic, _, _, _ in sensor.messages} == {f"big/{number}" for number in range(50)}
