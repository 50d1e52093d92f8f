"""MQTT-SN 2.0: CONNECT, CONNACK, AUTH, and whose session it is."""

import pytest

from conformance.sn2_rows import CONNECT, KEPT, RESUMED, WILL, clause, rows
from holdfast.broker.ports import Authenticator, Peer
from sn_world import World


@rows(
    ("clean start", "3.1.19-5 3.2.2.1-1 3.2.2-1 3.2.2.2-1 3.2.2.3-1 3.2.2.4-1 4.11.1-6 4.4.2-3 2.2-4", CONNECT),
    ("long length", "2.1.2-1", "01 00 0E 01 01 00 01 02 00 3C 00 00 63 31 -> 06 02 00 00 01 00"),
    ("reserved flag", "3.1.2-1 3.1.19-1 3.2.4-1", "0C 01 81 00 01 02 00 3C 00 00 63 31 -> 06 02 00 00 01 81"),
    ("another version", "3.1.5-1 3.1.5-2", "0C 01 01 00 01 05 00 3C 00 00 63 31 -> 06 02 00 00 01 84"),
    ("keep alive 0", "3.1.6-4 3.2.2.1-5", "0C 01 01 00 01 02 00 00 00 00 63 31 -> 06 02 00 00 01 82"),
    ("packet size 9", "3.1.7-1", "0C 01 01 00 01 02 00 3C 00 09 63 31 -> 06 02 00 00 01 82"),
    ("packet size 10", "3.1.7-1", "0C 01 01 00 01 02 00 3C 00 0A 63 31 -> 06 02 00 00 01 00"),
    ("packet id 0", "2.2-1", "0C 01 01 00 00 02 00 3C 00 00 63 31 -> 06 02 00 00 00 82"),
    ("client id that is not UTF-8", "3.1.18-1 1.8.4-1", "0C 01 01 00 01 02 00 3C 00 00 C3 31 -> 06 02 00 00 01 81"),
    ("client id with U+0000", "1.8.4-2", "0C 01 01 00 01 02 00 3C 00 00 63 00 -> 06 02 00 00 01 81"),
    ("will flag without will", "3.1.2.2-1 3.1.3-2", "0D 01 03 17 00 01 02 00 3C 00 00 63 31 -> 06 02 00 00 01 81"),
    ("will flags are there only with a will", "3.1.3-1", CONNECT),
    ("will with QoS 3", "3.1.2.2-1", WILL.partition("->")[0].replace("03 17", "03 1F") + "-> 06 02 00 00 01 81"),
    (
        "will topic that is not UTF-8",
        "3.1.11-1",
        WILL.partition("->")[0].replace("77 2F 31", "77 2F C3") + "-> 06 02 00 00 01 81",
    ),
    ("session expiry flag without it", "3.1.2.4-1", "0A 01 09 00 01 02 00 3C 00 00 -> 06 02 00 00 01 81"),
    ("awake flag without the byte", "3.1.2.5-1", "0A 01 11 00 01 02 00 3C 00 00 -> 06 02 00 00 01 81"),
    ("awake byte", "3.1.2.5-1", "0D 01 11 00 01 02 00 3C 00 00 05 63 31 -> 06 02 00 00 01 00"),
    ("authentication flag without fields", "3.1.2.3-1", "0A 01 05 00 01 02 00 3C 00 00 -> 06 02 00 00 01 81"),
    (
        "no optional field is read without its flag",
        "3.1.2.3-2 3.1.2.4-2 3.1.2.5-2 3.1.18-4",
        # what could be fields is all client id
        "14 01 01 00 01 02 00 3C 00 00 31 31 31 31 31 31 31 31 31 31 -> 06 02 00 00 01 00",
    ),
    (
        "unknown authentication method",
        "4.11.1-1 3.1.19-2 3.2.4-2 4.12.2-1",
        """
        12 01 05 00 01 02 00 3C 00 00 03 58 2D 59 00 00 63 31 -> 06 02 00 00 01 8C
        04 0C 00 09 -> 04 0E 04 F4
        """,
    ),
    (
        "the same CONNECT twice is answered twice",
        "3.1.19-4",
        f"{CONNECT}\n{CONNECT}\n08 08 23 00 02 61 2F 62 -> 08 09 04 00 02 00 01 01",
    ),
    ("no session to resume", "3.1.2.1-3 3.2.2.1-2", f"{RESUMED} -> 06 02 00 00 01 00"),
    (
        "a session resumed",
        "3.1.2.1-2 3.2.2.1-2 3.1.9-1 4.1.1-1",
        f"{KEPT} -> 06 02 00 00 01 00\n03 0E 00 -> -\n~ 3590\n{RESUMED} -> 06 02 01 00 01 00",
    ),
    (
        "a session that has expired",
        "4.1.1-3",
        f"{KEPT} -> 06 02 00 00 01 00\n03 0E 00 -> -\n~ 3610\n{RESUMED} -> 06 02 00 00 01 00",
    ),
    (
        "a session without expiry ends with its connection",
        "4.1.1-3",
        f"{CONNECT}\n03 0E 00 -> -\n{RESUMED} -> 06 02 00 00 01 00",
    ),
    (
        "clean start throws the session away",
        "3.1.2.1-1 3.2.2.1-1 3.1.19-4",
        f"""
        {KEPT} -> 06 02 00 00 01 00
        08 08 23 00 02 61 2F 62 -> 08 09 04 00 02 00 01 01
        03 0E 00 -> -
        {KEPT} -> 06 02 00 00 01 00
        08 0A 03 00 03 61 2F 62 -> 05 0B 00 03 11
        """,
    ),
    (
        "a client without id",
        "3.2.11-1 3.2.11-2 4.1.2-1",
        "0A 01 01 00 01 02 00 3C 00 00 -> 0C 02 00 00 01 00 61 75 74 6F 2D 31",
    ),
    ("AUTH without a method in CONNECT", "4.11.1-7", f"{CONNECT}\n07 0F 00 05 18 01 58 -> 04 0E 04 82"),
    ("keep alive", "3.1.6-2 3.2.6-2", f"{CONNECT}\n~ 89\n< -\n~ 2\n< 04 0E 04 8D\n04 0C 00 09 -> 04 0E 04 F4"),
    ("packets keep it alive", "3.1.6-2", f"{CONNECT}\n~ 60\n04 0C 00 09 -> 05 0D 00 09 00\n~ 89\n< -"),
)
def test_exchange(script: str) -> None:
    World().play("peer", script)


@clause("3.1.18-3", "3.1.18-4")
@pytest.mark.parametrize("client_id", ["a", "0123456789abcdefghijABC", "x" * 200])
def test_client_ids_of_any_usual_length_are_accepted(client_id: str) -> None:
    packet = bytes.fromhex("01 01 00 01 02 00 3C 00 00") + client_id.encode()
    assert World().send("peer", bytes([len(packet) + 1]) + packet) == [bytes.fromhex("06 02 00 00 01 00")]


@clause("3.1.18-2", "1.8.4-3")
def test_the_client_id_names_the_session_byte_for_byte() -> None:
    world = World()
    world.play("one", f"{KEPT.replace('10 01', '13 01')} EF BB BF -> 06 02 00 00 01 00\n03 0E 00 -> -")
    world.play("two", f"{RESUMED} -> 06 02 00 00 01 00")
    world.play("one", f"{RESUMED.replace('10 01', '13 01')} EF BB BF -> 06 02 01 00 01 00")


@clause("3.2.11-3", "4.1.2-2")
def test_assigned_client_ids_differ_from_all_others() -> None:
    world = World()
    world.play("one", "10 01 01 00 01 02 00 3C 00 00 61 75 74 6F 2D 31 -> 06 02 00 00 01 00")
    world.play("two", "0A 01 01 00 01 02 00 3C 00 00 -> 0C 02 00 00 01 00 61 75 74 6F 2D 32")


@clause("3.1.2.7-1", "3.1.2.7-2", "3.2.2.2-2", "3.2.2.3-2")
def test_limits_are_suggested_only_to_who_takes_suggestions() -> None:
    world = World(broker_keep_alive_max=30, broker_session_expiry_max=60)
    world.play("one", f"{KEPT} -> 06 02 00 00 01 00")
    world.play("two", "10 01 49 00 01 02 00 3C 00 00 00 00 0E 10 63 32 -> 0C 02 06 00 01 00 00 00 00 3C 00 1E")
    world.pass_time(46)
    assert world.taken("one") == []
    assert world.taken("two") == [bytes.fromhex("04 0E 04 8D")]


@clause("3.1.19-3", "4.14-4")
def test_a_second_connection_of_a_client_ends_the_first() -> None:
    world = World()
    world.play("one", CONNECT)
    world.play("two", CONNECT)
    world.play("one", "< 04 0E 04 8E\n04 0C 00 09 -> 04 0E 04 F4")
    world.play("two", "04 0C 00 09 -> 05 0D 00 09 00")


@clause("4.14-4", "3.1.2.2-3")
def test_a_client_that_connects_again_sends_its_own_will() -> None:
    world = World()
    world.play("peer", f"{WILL}\n04 0C 00 09 -> 05 0D 00 09 00")
    world.pass_time(3)
    world.play("peer", WILL.replace("00 01 02", "00 02 02").replace("00 00 01 00", "00 00 02 00"))
    assert world.retained("w/1") == b"dead"


@clause("3.1.2.2-2", "3.1.2.2-3", "3.1.3.3-2", "3.1.2.2-4")
@pytest.mark.parametrize(
    "ending",
    ["~ 100", "04 0E 04 04 -> -", "04 0E 04 80 -> -", "04 03 0C 00 -> 04 0E 04 81"],
    ids=["silence", "disconnect with will", "disconnect for an error", "malformed packet"],
)
def test_the_will_goes_out_once_however_the_connection_ends(ending: str) -> None:
    world = World()
    hears = world.listener("#")
    world.play("peer", f"{WILL}\n{ending}")
    assert hears.heard() == [("w/1", b"dead", 1, False)]
    assert world.retained("w/1") == b"dead"
    world.pass_time(100)
    assert hears.heard() == []


@clause("3.1.3.3-1")
def test_a_will_without_retain_is_an_ordinary_message() -> None:
    world = World()
    hears = world.listener("#")
    world.play("peer", WILL.replace("03 17", "03 07") + "\n04 0E 04 04 -> -")
    assert hears.heard() == [("w/1", b"dead", 1, False)]
    assert world.retained("w/1") is None


@clause("3.13.7-3", "3.1.2.2-4", "3.1.2.2-3")
def test_a_normal_goodbye_discards_the_will() -> None:
    world = World()
    hears = world.listener("#")
    world.play("peer", f"{WILL}\n03 0E 00 -> -\n~ 200")
    assert hears.heard() == []


@clause("4.1.1-3", "3.1.2.2-3")
def test_the_will_of_a_kept_session_goes_out_when_the_connection_ends() -> None:
    world = World()
    hears = world.listener("#")
    kept = "1C 01 0B 03 00 01 02 00 3C 00 00 00 00 0E 10 00 03 77 2F 31 00 04 64 65 61 64 63 31"
    world.play("peer", f"{kept} -> 06 02 00 00 01 00\n~ 91")
    assert hears.heard() == [("w/1", b"dead", 0, False)]


def test_a_will_by_predefined_alias_is_published_to_its_topic() -> None:
    world = World(predefined={7: b"pre/defined"})
    hears = world.listener("#")
    world.play("peer", "11 01 03 01 00 01 02 00 3C 00 00 00 07 00 01 78 31 -> 06 02 00 00 01 00\n04 0E 04 04 -> -")
    assert hears.heard() == [("pre/defined", b"x", 0, False)]


def test_a_will_by_an_alias_that_nobody_knows_is_refused() -> None:
    world = World()
    world.play("peer", "11 01 03 01 00 01 02 00 3C 00 00 00 07 00 01 78 31 -> 06 02 00 00 01 82")
    world.play("peer", "11 01 03 00 00 01 02 00 3C 00 00 00 07 00 01 78 31 -> 06 02 00 00 01 82")


BASIC = "05 00 01 02 00 3C 00 00 0A 4D 51 54 54 2D 42 41 53 49 43 00 06 00 01 75 00 01 70 63 31"


@clause("3.2.2.4-2", "4.11.1-5", "3.1.2.3-1", "4.4.2-1", "4.4.2-2")
def test_basic_authentication_is_answered_with_its_method() -> None:
    World().play("peer", f"1F 01 {BASIC} -> 13 02 08 00 01 00 0A 4D 51 54 54 2D 42 41 53 49 43 00 00")


@clause("4.11.1.1-1", "4.11.1.1-2")
def test_authentication_cannot_be_renewed_with_a_method_that_ends_with_connack() -> None:
    world = World()
    world.send("peer", f"1F 01 {BASIC}")
    world.play("peer", "10 0F 00 05 19 0A 4D 51 54 54 2D 42 41 53 49 43 -> 04 0E 04 8C\n04 0C 00 09 -> 04 0E 04 F4")


class Doorkeeper(Authenticator):
    """Remembers who asked; the test answers."""

    def __init__(self, world: World) -> None:
        self.tickets: list[tuple[int, str | None, bytes | None]] = []
        world.broker.authenticator = self

    def begin(self, ticket: int, client_id: str, username: str | None, password: bytes | None, peer: Peer) -> None:
        self.tickets.append((ticket, username, password))


@clause("3.1.19-7", "3.1.19-2", "4.11.1-4", "3.2.4-2")
def test_until_the_client_is_known_nothing_of_it_is_processed() -> None:
    world = World()
    door = Doorkeeper(world)
    world.play("peer", f"1F 01 {BASIC} -> -\n0A 03 03 00 03 61 2F 62 6F 6E -> -\n08 08 23 00 02 61 2F 62 -> -")
    ticket, username, password = door.tickets[0]
    assert (username, password) == ("u", b"p")
    world.carry_out(world.broker.on_authenticated(ticket, 0x86, "", world.now_ms))
    world.play("peer", "< 06 02 00 00 01 86\n04 0C 00 09 -> 04 0E 04 F4")
    assert world.broker.sessions == {}


def test_a_forged_connect_does_not_touch_a_client_that_has_logged_in() -> None:
    world = World()
    door = Doorkeeper(world)
    world.send("real", f"1F 01 {BASIC}")
    world.carry_out(world.broker.on_authenticated(door.tickets[0][0], 0, "u", world.now_ms))
    world.taken("real")
    world.play("forged", "0C 01 01 00 01 02 00 3C 00 00 63 31 -> -")
    world.carry_out(
        world.broker.on_authenticated(door.tickets[1][0], 0, "", world.now_ms)
    )  # let in as nobody in particular
    world.play("forged", "< 06 02 00 00 01 85\n03 0E 00 -> -")
    # the same from the client's own address, which anyone can claim to have
    world.send("real", "0C 01 01 00 01 02 00 3C 00 00 63 31")
    world.carry_out(world.broker.on_authenticated(door.tickets[2][0], 0x87, "", world.now_ms))
    world.play("real", "< 06 02 00 00 01 87\n04 0C 00 09 -> 05 0D 00 09 00")
    # nor does its name in a Connection Encapsulation
    world.play("forged", "09 FE 00 02 63 31 03 0E 00 -> 04 0E 04 F4")
    world.play("real", "04 0C 00 0A -> 05 0D 00 0A 00")
