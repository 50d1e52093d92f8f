"""MQTT-SN 2.0: sleep and waking, PINGREQ, DISCONNECT, encapsulations."""

import pytest

from conformance.sn2_rows import CONNECT, KEPT, RESUMED, WILL, clause, rows
from sn_world import World

SUBSCRIBE = "08 08 23 00 02 61 2F 62 -> 08 09 04 00 02 00 01 01"
SLEEP = "09 13 01 00 0A 00 00 01 2C -> 06 14 00 00 0A 00"  # 300 s, aliases kept
MOVABLE = "0C 01 21 00 01 02 00 3C 00 00 63 31 -> 06 02 00 00 01 00"


@rows(
    ("ping", "3.11.3-1", f"{CONNECT}\n04 0C 00 09 -> 05 0D 00 09 00"),
    ("ping without a connection", "3.11.3-2 3.11.3-3", "04 0C 00 09 -> 04 0E 04 F4"),
    (
        "sleep",
        "3.15.5-2 3.16.2-1 3.16.2.1-1 3.16.2.1-3 3.16.5-1 3.1.2.7-3 3.15.5-6",
        f"{CONNECT}\n{SLEEP}\n04 0C 00 09 -> 05 0D 00 09 00",
    ),
    ("sleep without a connection", "3.15.5-3", "09 13 01 00 0A 00 00 01 2C -> 04 0E 04 F4"),
    ("sleep with reserved flags", "3.15.2-1 3.15.2-2", f"{CONNECT}\n09 13 03 00 0A 00 00 01 2C -> 04 0E 04 81"),
    ("sleep for no time", "3.15.4-1", f"{CONNECT}\n09 13 01 00 0A 00 00 00 00 -> 04 0E 04 82"),
    ("the keep alive rests", "3.15.5-4 3.15.5-5 3.16.4-2", f"{CONNECT}\n{SLEEP}\n~ 449\n04 0C 00 09 -> 05 0D 00 09 00"),
    ("overslept", "4.14.2-1 3.15.5-5", f"{CONNECT}\n{SLEEP}\n~ 451\n< 04 0E 04 8D\n04 0C 00 09 -> 04 0E 04 F4"),
    (
        "each waking begins the sleep anew",
        "4.14.2-7 3.11.3-4",
        f"{CONNECT}\n{SLEEP}\n~ 440\n04 0C 00 09 -> 05 0D 00 09 00\n~ 440\n04 0C 00 0A -> 05 0D 00 0A 00",
    ),
    (
        "another duration",
        "3.15.5-7",
        f"""
        {CONNECT}
        {SLEEP}
        ~ 400
        09 13 01 00 0B 00 00 02 58 -> 06 14 00 00 0B 00
        ~ 890
        04 0C 00 09 -> 05 0D 00 09 00
        """,
    ),
    (
        "the same duration again begins the sleep anew",
        "3.15.5-7",
        f"{CONNECT}\n{SLEEP}\n~ 440\n{SLEEP}\n~ 440\n04 0C 00 09 -> 05 0D 00 09 00",
    ),
    (
        "the same CONNECT again wakes a client that sleeps",
        "4.14-4",
        f"{CONNECT}\n{SLEEP}\n{CONNECT}\n{SUBSCRIBE}",
    ),
    ("publish while asleep", "4.14-2", f"{CONNECT}\n{SLEEP}\n0A 03 03 00 03 61 2F 62 6F 6E -> 04 0E 04 82"),
    (
        "connect while asleep",
        "4.14-2 4.14-4",
        f"{CONNECT}\n{SLEEP}\n0C 01 01 00 02 02 00 3C 00 00 63 31 -> 06 02 00 00 02 00\n{SUBSCRIBE}",
    ),
    ("goodbye", "3.13.2.1-1 3.13.2.2-1 3.13.2.3-1 3.13.7-4", f"{CONNECT}\n03 0E 00 -> -\n04 0C 00 09 -> 04 0E 04 F4"),
    ("goodbye with a packet id", "3.13.2.1-2", f"{CONNECT}\n05 0E 01 00 05 -> -\n04 0C 00 09 -> 04 0E 04 F4"),
    ("goodbye with a reason", "3.13.2.3-2", f"{CONNECT}\n04 0E 04 00 -> -\n04 0C 00 09 -> 04 0E 04 F4"),
    ("goodbye with reserved flags", "3.13.2-1 3.13.2-2", f"{CONNECT}\n03 0E 08 -> 04 0E 04 81"),
    ("goodbye without its packet id", "3.13.2.1-2", f"{CONNECT}\n03 0E 01 -> 04 0E 04 81"),
    (
        "goodbye with a session expiry",
        "3.13.2.2-2 4.1.1-3",
        f"{KEPT} -> 06 02 00 00 01 00\n07 0E 02 00 00 00 0A -> -\n~ 11\n{RESUMED} -> 06 02 00 00 01 00",
    ),
    (
        "goodbye that brings an expiry where there was none",
        "3.13.2.2-2 3.13.5-1 3.13.4-1",
        f"{CONNECT}\n07 0E 02 00 00 00 0A -> 04 0E 04 82",
    ),
    (
        "after the server's goodbye nothing follows",
        "3.13.7-1 3.13.7-2 4.12.2-1",
        f"{CONNECT}\n{SUBSCRIBE}\n03 0E 80 -> 04 0E 04 81\n~ 200\n< -\n04 0C 00 09 -> 04 0E 04 F4",
    ),
    (
        "forwarder",
        "4.2.1-1",
        """
        11 FC 02 AA BB 0C 01 01 00 01 02 00 3C 00 00 63 31 -> 0B FC 02 AA BB 06 02 00 00 01 00
        09 FC 02 AA BB 04 0C 00 09 -> 0A FC 02 AA BB 05 0D 00 09 00
        09 FC 02 AA CC 04 0C 00 09 -> 09 FC 02 AA CC 04 0E 04 F4
        04 0C 00 09 -> 04 0E 04 F4
        """,
    ),
    (
        "connection encapsulation from the same address",
        "3.18-4 3.18-2",
        f"{MOVABLE}\n0A FE 00 02 63 31 04 0C 00 09 -> 05 0D 00 09 00",
    ),
    (
        "connection encapsulation that CONNECT did not ask for",
        "3.1.2.6-1 3.18-1",
        f"{CONNECT}\n0A FE 00 02 63 31 04 0C 00 09 -> 04 0E 04 82\n04 0C 00 09 -> 04 0E 04 F4",
    ),
    (
        "connection encapsulation around what may not be in it",
        "3.18-3",
        f"{MOVABLE}\n0B FE 00 02 63 31 05 04 00 05 00 -> 04 0E 04 82",
    ),
    ("connection encapsulation of nobody", "4.2.1-1", "0A FE 00 02 7A 7A 04 0C 00 09 -> 04 0E 04 F4"),
    (
        "protection is not supported",
        "4.2.1-1",
        f"14 FF 10 40 {'00 ' * 16}-> 04 0E 04 F2",
    ),
)
def test_exchange(script: str) -> None:
    World().play("peer", script)


@clause("3.18-4", "3.1.18-2")
def test_a_client_that_may_move_is_found_at_its_new_address() -> None:
    world = World()
    world.play("here", f"{MOVABLE}\n{SUBSCRIBE}")
    world.play("there", "0A FE 00 02 63 31 04 0C 00 09 -> 05 0D 00 09 00")
    world.publish("a/b", "on")
    world.play("there", "< 07 03 00 00 01 6F 6E\n04 0C 00 0A -> 05 0D 00 0A 00")
    world.play("here", "04 0C 00 09 -> 04 0E 04 F4")


@clause("4.14.2-2", "4.14.2-5", "4.14.2-7", "3.15.5-1")
def test_messages_wait_for_a_sleeping_client() -> None:
    world = World()
    world.play("peer", f"{CONNECT}\n{SUBSCRIBE}\n{SLEEP}")
    world.publish("a/b", "1", qos=1)
    world.publish("a/b", "2", qos=1)
    world.play(
        "peer",
        """
        < -
        04 0C 00 0B -> 08 03 20 00 01 00 01 31
        04 0C 00 0B -> -                        ; the same again while it is being answered
        05 04 00 01 00 -> 08 03 20 00 02 00 01 32
        05 04 00 02 00 -> 05 0D 00 0B 00
        04 0C 00 0C -> 05 0D 00 0C 00
        """,
    )


@clause("4.14.2-3", "4.14.2-4")
def test_a_client_is_sent_as_many_messages_as_it_asked_for() -> None:
    world = World()
    world.play("peer", f"0D 01 11 00 01 02 00 3C 00 00 02 63 31 -> 06 02 00 00 01 00\n{SUBSCRIBE}\n{SLEEP}")
    for number in "123":
        world.publish("a/b", number, qos=1)
    world.play(
        "peer",
        """
        04 0C 00 0B -> 08 03 20 00 01 00 01 31
        05 04 00 01 00 -> 08 03 20 00 02 00 01 32
        05 04 00 02 00 -> 05 0D 00 0B 01
        04 0C 00 0C -> 08 03 20 00 03 00 01 33
        05 04 00 03 00 -> 05 0D 00 0C 00
        """,
    )


@clause("4.14.2-5", "4.14.2-6", "3.11.3-4")
def test_a_client_that_is_awake_and_does_not_answer_is_gone() -> None:
    world = World(response_ms=1_000, backoff_ms=500, retries=2)
    hears = world.listener("w/#")
    world.play("peer", f"{WILL}\n{SUBSCRIBE}\n{SLEEP}")
    world.publish("a/b", "1", qos=1)
    world.play("peer", "04 0C 00 0B -> 08 03 20 00 01 00 01 31\n~ 20")
    assert world.taken("peer") == [bytes.fromhex("08 03 20 00 01 00 01 31")] * 2 + [bytes.fromhex("04 0E 04 80")]
    assert hears.heard() == [("w/1", b"dead", 1, False)]


@clause("4.14-3")
def test_a_client_that_is_awake_may_not_ask_for_more() -> None:
    world = World()
    world.play("peer", f"{CONNECT}\n{SUBSCRIBE}\n{SLEEP}")
    world.publish("a/b", "1", qos=1)
    world.play("peer", "04 0C 00 0B -> 08 03 20 00 01 00 01 31\n08 08 23 00 03 61 2F 63 -> 04 0E 04 82")


@clause("3.15.2.1-1")
@pytest.mark.parametrize(("flag", "kept"), [("01", True), ("00", False)], ids=["kept", "forgotten"])
def test_session_aliases_may_be_forgotten_for_a_sleep_and_predefined_ones_never(flag: str, kept: bool) -> None:
    world = World(predefined={7: b"pre/x"})
    world.play(
        "peer",
        f"""
        {CONNECT}
        {SUBSCRIBE}
        07 08 21 00 03 00 07 -> 06 09 01 00 03 01
        09 13 {flag} 00 0A 00 00 01 2C -> 06 14 00 00 0A 00
        """,
    )
    world.publish("a/b", "1", qos=1)
    world.publish("pre/x", "2", qos=1)
    topic = "20 00 01 00 01 31" if kept else "23 00 01 00 03 61 2F 62 31"
    size = "08" if kept else "0B"
    world.play("peer", f"04 0C 00 0B -> {size} 03 {topic}\n05 04 00 01 00 -> 08 03 21 00 02 00 07 32")


@clause("4.14.2-2")
def test_retained_copies_that_were_not_sent_wait_for_the_client_to_wake() -> None:
    world = World()
    for number in range(3):
        world.publish(f"a/{number}", "on", qos=1, retain=True)
    copy = "0C 03 33 00 0{} 00 03 61 2F 3{} 6F 6E"
    world.play(
        "peer",
        f"""
        {CONNECT}
        08 08 23 00 02 61 2F 23 -> 06 09 01 00 02 01, {copy.format(1, 0)}
        {SLEEP}
        ~ 60
        < -
        04 0C 00 0B -> {copy.format(1, 0)}
        05 04 00 01 00 -> {copy.format(2, 1)}
        05 04 00 02 00 -> {copy.format(3, 2)}
        05 04 00 03 00 -> 05 0D 00 0B 00
        """,
    )


@clause("4.14.2-2")
def test_retained_copies_at_qos_0_wait_as_well() -> None:
    world = World()
    world.play("peer", f"{CONNECT}\n08 08 03 00 02 61 2F 23 -> 06 09 01 00 02 00\n{SLEEP}")
    world.publish("a/1", "on")
    world.play("peer", "< -\n04 0C 00 0B -> 0A 03 03 00 03 61 2F 31 6F 6E, 05 0D 00 0B 00")


@clause("3.13.4-1", "3.13.5-1", "3.13.7-1")
def test_a_server_that_shuts_down_says_so() -> None:
    world = World()
    world.play("peer", CONNECT)
    world.carry_out(world.broker.shut_down(world.now_ms))
    world.play("peer", "< 04 0E 04 8B")
