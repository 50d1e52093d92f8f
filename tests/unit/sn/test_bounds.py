"""Strangers are not trusted: how often, how much and how many is bounded, per address and overall."""

import pytest

from holdfast.broker.sn.gateway import HostRateLimit
from holdfast.broker.sn.ids import SensorState
from sn_world import World

CONNECT = "08 04 04 01 00 3C 63 {:02X}"


@pytest.mark.parametrize("packet", ["02 16", "09 0A 00 00 00 01 61 2F 62"], ids=["PINGREQ", "REGISTER"])
def test_answers_to_strangers_are_counted_per_host(packet: str) -> None:
    world = World(answer_rate_per_host=3, answer_rate=100)
    assert sum(len(world.send(f"port{n}", packet, "host")) for n in range(5)) == 3
    assert world.send("elsewhere", packet, "other") == [b"\x02\x18"]
    world.pass_time(1)
    assert world.send("port1", packet, "host") == [b"\x02\x18"]


def test_answers_to_strangers_are_counted_altogether() -> None:
    world = World(answer_rate_per_host=0, answer_rate=4)
    assert sum(len(world.send(f"peer{n}", "02 16", f"host{n}")) for n in range(9)) == 4


def test_the_limiter_remembers_no_more_hosts_than_it_allows_answers() -> None:
    limiter = HostRateLimit(1, 10)
    for number in range(1000):
        limiter.allow(f"host{number}", 0)
    assert len(limiter.hosts) == 10


def test_clients_are_bounded_per_host_and_altogether() -> None:
    world = World(max_clients=3, max_clients_per_host=2)
    codes = [world.send(f"peer{n}", CONNECT.format(0x30 + n), "one")[0][2] for n in range(3)]
    assert codes == [0, 0, 1]  # accepted, accepted, congestion
    codes = [world.send(f"more{n}", CONNECT.format(0x40 + n), f"host{n}")[0][2] for n in range(3)]
    assert codes == [0, 1, 1]
    two = world.send("two", "0C 01 01 00 01 02 00 3C 00 00 63 31", "elsewhere")
    assert two == [bytes.fromhex("06 02 00 00 01 F1")]
    world.send("peer0", "02 18", "one")
    assert world.send("more1", CONNECT.format(0x41), "host1") == [bytes.fromhex("03 05 00")]


def test_a_client_that_connects_again_needs_no_second_place() -> None:
    world = World(max_clients=1)
    for _ in range(3):
        world.pass_time(3)
        assert world.send("peer", CONNECT.format(0x30)) == [bytes.fromhex("03 05 00")]
        world.send("peer", "02 16")
    assert len(world.gateway.connections) == 1


def test_a_will_prompt_that_is_never_finished_is_given_up() -> None:
    world = World()
    world.send("peer", "08 04 0C 01 00 3C 63 31")
    assert len(world.gateway.pending) == 1
    world.pass_time(11)
    assert len(world.gateway.pending) == 0
    assert world.gateway.hosts == {}


def test_no_answer_to_a_stranger_is_larger_than_what_it_sent() -> None:
    world = World(answer_rate_per_host=0, answer_rate=0)
    for kind in range(256):
        for size in range(2, 20):
            request = bytes((size, kind)) + bytes(size - 2)
            answers = world.send("stranger", request)
            if kind == 0x17:  # GWINFO, which has one byte more than SEARCHGW
                assert sum(map(len, answers)) <= size + 1
            elif "stranger" not in world.gateway.connections:
                assert sum(map(len, answers)) <= size, request.hex(" ")


def test_a_stranger_changes_nothing() -> None:
    world = World()
    world.publish("a/b", "on", retain=True)
    world.send("real", "0C 01 01 00 01 02 00 3C 00 00 63 31")
    world.send("real", "08 08 03 00 02 61 2F 23")
    for packet in (
        "03 0E 00",
        "02 18",
        "09 13 01 00 0A 00 00 01 2C",
        "08 0A 03 00 03 61 2F 23",
        "0A 12 13 00 03 61 2F 62 78 79",
    ):
        world.send("forged", packet)
    assert world.retained("a/b") == b"on"
    world.publish("a/b", "live")
    assert len(world.taken("real")) == 1


def test_a_full_table_gives_up_the_oldest_ids_of_deliveries() -> None:
    state = SensorState()
    own = state.assign(b"\0\1a", 3, 1000)
    assigned = [state.assign_for_delivery(bytes((0, 1, 0x62 + n)), 3, 1000) for n in range(4)]
    assert own == 1
    assert state.by_id[own] == b"\0\1a"
    assert len(state.by_id) == 3
    assert list(state.by_field) == [b"\0\1a", b"\0\1d", b"\0\1e"]
    assert assigned == [2, 3, 4, 5]


def test_names_in_the_table_are_bounded_in_bytes() -> None:
    state = SensorState()
    assert state.assign(b"x" * 600, 100, 1000) == 1
    assert state.assign(b"y" * 600, 100, 1000) == 0
    state.forget_all()
    assert state.assign(b"y" * 600, 100, 1000) == 2
