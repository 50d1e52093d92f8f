"""MQTT-SN 2.0: PUBLISH and its acknowledgements in both directions, PUBWOS, and what is resent."""

from typing import Any

import pytest

from conformance.sn2_rows import CONNECT, KEPT, RESUMED, clause, rows
from holdfast.broker.access import ALL, Access, Rule
from sn_world import World

SUBSCRIBE = "08 08 43 00 02 61 2F 62 -> 08 09 04 00 02 00 01 02"  # a/b at QoS 2: alias 1


@rows(
    ("QoS 0", "3.6.2.7-1 2.2-2 3.6.2.3-1", f"{CONNECT}\n0A 03 03 00 03 61 2F 62 6F 6E -> -"),
    (
        "QoS 1",
        "3.6.2.7-1 3.6.2.3-2 4.3.3-5 2.2-4 3.6.3.3-1",
        f"{CONNECT}\n0C 03 23 00 05 00 03 61 2F 62 6F 6E -> 05 04 00 05 00",
    ),
    (
        "QoS 2",
        "3.6.2.7-1 4.3.4-9 4.3.4-12 3.6.4.3-1 3.6.6.3-1 2.2-4",
        f"""
        {CONNECT}
        0C 03 43 00 05 00 03 61 2F 62 6F 6E -> 05 05 00 05 00
        04 06 00 05 -> 05 07 00 05 00
        05 06 00 05 00 -> 05 07 00 05 92
        """,
    ),
    ("reserved flags", "3.6.2.2-1 3.6.2.2-2 4.12.1-2", f"{CONNECT}\n07 03 04 00 01 6F 6E -> 04 0E 04 81"),
    ("QoS 3", "3.6.2.2-2", f"{CONNECT}\n09 03 60 00 05 00 01 6F 6E -> 04 0E 04 81"),
    ("reserved topic type", "3.6.2.2.1-1", f"{CONNECT}\n07 03 02 00 01 6F 6E -> 04 0E 04 81"),
    ("DUP at QoS 1", "3.6.2.2.3-1", f"{CONNECT}\n0C 03 A3 00 05 00 03 61 2F 62 6F 6E -> 04 0E 04 82"),
    ("DUP at QoS 0", "3.6.2.2.3-1", f"{CONNECT}\n0A 03 83 00 03 61 2F 62 6F 6E -> 04 0E 04 82"),
    ("packet id 0", "2.2-1 3.6.2.3-2", f"{CONNECT}\n0C 03 23 00 00 00 03 61 2F 62 6F 6E -> 04 0E 04 82"),
    ("a name that does not fit", "3.6.2.5-1", f"{CONNECT}\n0A 03 03 00 09 61 2F 62 6F 6E -> 04 0E 04 81"),
    ("an empty name", "4.7.1.3-1", f"{CONNECT}\n07 03 03 00 00 6F 6E -> 04 0E 04 82"),
    ("a name with U+0000", "4.7.1.3-2 1.8.4-2", f"{CONNECT}\n0A 03 03 00 03 61 00 62 6F 6E -> 04 0E 04 81"),
    ("a name with a wildcard", "4.7.1.1-1", f"{CONNECT}\n0A 03 03 00 03 61 2F 23 6F 6E -> 04 0E 04 90"),
    ("unknown predefined alias", "4.7.2.1-2", f"{CONNECT}\n07 03 01 00 08 6F 6E -> 04 0E 04 82"),
    ("unknown session alias at QoS 1", "3.6.3.3-1", f"{CONNECT}\n09 03 20 00 05 00 09 6F 6E -> 05 04 00 05 F0"),
    ("unknown session alias at QoS 2", "3.6.4.3-1", f"{CONNECT}\n09 03 40 00 05 00 09 6F 6E -> 05 05 00 05 F0"),
    (
        "unknown session alias at QoS 0",
        "3.6.2.7-1",
        f"{CONNECT}\n07 03 00 00 09 6F 6E -> -\n04 0C 00 01 -> 05 0D 00 01 00",
    ),
    (
        "after a refusal the id is free",
        "4.3.4-10",
        f"""
        {CONNECT}
        09 03 40 00 05 00 09 6F 6E -> 05 05 00 05 F0
        0C 03 43 00 05 00 03 61 2F 62 6F 6E -> 05 05 00 05 00
        """,
    ),
    (
        "without a connection",
        "3.6.2-1 4.2.1-1 4.14-1",
        "0C 03 23 00 05 00 03 61 2F 62 6F 6E -> 04 0E 04 F4\n08 08 23 00 02 61 2F 62 -> 04 0E 04 F4",
    ),
    (
        "a second request before the release",
        "4.9-1",
        f"""
        {CONNECT}
        0C 03 43 00 05 00 03 61 2F 62 6F 6E -> 05 05 00 05 00
        0C 03 23 00 06 00 03 61 2F 62 6F 6E -> 04 0E 04 93
        04 0C 00 09 -> 04 0E 04 F4
        """,
    ),
    (
        "a SUBSCRIBE before the release",
        "4.9-1",
        f"""
        {CONNECT}
        0C 03 43 00 05 00 03 61 2F 62 6F 6E -> 05 05 00 05 00
        08 08 23 00 06 61 2F 62 -> 04 0E 04 93
        """,
    ),
    (
        "a packet that no client sends",
        "4.12.1-2",
        f"{CONNECT}\n06 02 00 00 01 00 -> 04 0E 04 82\n04 0C 00 09 -> 04 0E 04 F4",
    ),
)
def test_exchange(script: str) -> None:
    World(predefined={7: b"pre/defined"}).play("peer", script)


@clause("3.6.2.2.1-1", "3.6.2.5-1", "3.6.2.5-2", "4.5-1", "4.7.2.1-1")
def test_a_topic_may_be_named_in_three_ways() -> None:
    world = World(predefined={7: b"pre/defined"})
    hears = world.listener("#")
    world.play(
        "peer",
        f"""
        {CONNECT}
        08 10 00 00 04 78 2F 79 -> 08 11 04 00 04 00 01 00
        06 03 00 00 01 31 -> -
        06 03 01 00 07 32 -> -
        09 03 03 00 03 61 2F 62 33 -> -
        """,
    )
    assert [(topic, payload) for topic, payload, _, _ in hears.heard()] == [
        ("x/y", b"1"),
        ("pre/defined", b"2"),
        ("a/b", b"3"),
    ]


@clause("4.3.4-11", "4.3.4-13")
def test_a_qos_2_message_is_delivered_once_until_it_is_released() -> None:
    world = World()
    hears = world.listener("#")
    publish = "0C 03 {} 00 05 00 03 61 2F 62 6F 6E -> 05 05 00 05 00"
    world.play("peer", f"{CONNECT}\n{publish.format('43')}\n{publish.format('C3')}\n{publish.format('43')}")
    assert len(hears.heard()) == 1
    world.play("peer", f"04 06 00 05 -> 05 07 00 05 00\n{publish.format('C3')}")
    assert len(hears.heard()) == 1


@clause("4.3.3-6")
def test_after_puback_the_same_id_is_a_new_message() -> None:
    world = World()
    hears = world.listener("#")
    publish = "0C 03 23 00 05 00 03 61 2F 62 6F 6E -> 05 04 00 05 00"
    world.play("peer", f"{CONNECT}\n{publish}\n{publish}")
    assert len(hears.heard()) == 2


@clause("4.6-1", "4.6-2")
def test_messages_of_one_client_stay_in_order() -> None:
    world = World()
    world.play("reader", f"{CONNECT}\n{SUBSCRIBE}")
    world.play("writer", CONNECT.replace("63 31", "63 32"))
    for number in range(5):
        world.send("writer", f"0B 03 23 00 0{number + 1} 00 03 61 2F 62 3{number}")
    got = []
    packets = world.taken("reader")
    while packets:
        got += [packet[-1:] for packet in packets]
        packets = world.send("reader", bytes.fromhex("05 04") + packets[-1][3:5] + b"\0")
    assert got == [b"0", b"1", b"2", b"3", b"4"]


# Deliveries.


@clause("4.3.2-1", "4.7.2-1", "3.8.4-1")
def test_a_qos_0_message_has_no_id_and_uses_the_alias() -> None:
    world = World()
    world.play("peer", f"{CONNECT}\n{SUBSCRIBE}")
    world.publish("a/b", "on")
    world.play("peer", "< 07 03 00 00 01 6F 6E")


@clause("2.2-3", "4.3.3-1", "4.3.3-2", "4.3.3-3", "4.3.3-4", "4.9-2")
def test_qos_1_messages_go_one_at_a_time_each_with_an_id() -> None:
    world = World()
    world.play("peer", f"{CONNECT}\n{SUBSCRIBE}")
    for number in "123":
        world.publish("a/b", number, qos=1)
    world.play(
        "peer",
        """
        < 08 03 20 00 01 00 01 31
        05 04 00 01 00 -> 08 03 20 00 02 00 01 32
        05 04 00 01 00 -> -
        05 04 00 02 00 -> 08 03 20 00 03 00 01 33
        04 04 00 03 -> -
        """,
    )


@clause("4.3.4-1", "4.3.4-2", "4.3.4-3", "4.3.4-5", "4.3.4-6", "4.3.4-7", "3.6.5.3-1", "2.2-4")
def test_a_qos_2_delivery_runs_its_exchange() -> None:
    world = World()
    world.play("peer", f"{CONNECT}\n{SUBSCRIBE}")
    world.publish("a/b", "1", qos=2)
    world.publish("a/b", "2", qos=2)
    world.play(
        "peer",
        """
        < 08 03 40 00 01 00 01 31
        05 05 00 01 00 -> 05 06 00 01 00
        05 07 00 01 00 -> 08 03 40 00 02 00 01 32
        05 05 00 07 00 -> 05 06 00 07 92 ; about nothing that is known
        05 05 00 07 87 -> -              ; a refusal of it has no answer
        """,
    )


@clause("4.4.1-2", "4.3.4-6")
@pytest.mark.parametrize(("qos", "answer"), [(1, "05 04 00 01 80"), (2, "05 05 00 01 83")], ids=["PUBACK", "PUBREC"])
def test_a_refusal_ends_the_exchange(qos: int, answer: str) -> None:
    world = World()
    world.play("peer", f"{CONNECT}\n{SUBSCRIBE}")
    world.publish("a/b", "1", qos=qos)
    world.taken("peer")
    world.play("peer", f"{answer} -> -\n~ 60\n04 0C 00 09 -> 05 0D 00 09 00")


@clause("4.4.2-7", "4.3.4-4", "4.3.4-8", "3.6.2.2.3-1")
def test_resends_are_the_same_packet_with_dup_at_qos_2_alone() -> None:
    world = World(response_ms=5_000, backoff_ms=1_000)
    world.play("peer", f"{CONNECT}\n{SUBSCRIBE}")
    world.publish("a/b", "1", qos=1)
    world.play("peer", "< 08 03 20 00 01 00 01 31\n~ 5\n< -\n~ 2.5\n< 08 03 20 00 01 00 01 31\n05 04 00 01 00 -> -")
    world.publish("a/b", "2", qos=2)
    world.play(
        "peer",
        """
        < 08 03 40 00 02 00 01 32
        ~ 8
        < 08 03 C0 00 02 00 01 32
        05 05 00 02 00 -> 05 06 00 02 00
        ~ 8
        < 05 06 00 02 00
        05 05 00 02 00 -> 05 06 00 02 00
        05 07 00 02 00 -> -
        ~ 20
        < -
        """,
    )


@clause("4.4.2-5")
def test_who_never_answers_loses_the_connection() -> None:
    world = World(response_ms=1_000, backoff_ms=500, retries=3)
    hears = world.listener("w/#")
    will = "18 01 03 17 00 01 02 00 3C 00 00 00 03 77 2F 31 00 04 64 65 61 64 63 31"
    world.play("peer", f"{will} -> 06 02 00 00 01 00\n{SUBSCRIBE}")
    world.publish("a/b", "1", qos=1)
    world.pass_time(20)
    packets = world.taken("peer")
    assert packets == [bytes.fromhex("08 03 20 00 01 00 01 31")] * 4 + [bytes.fromhex("04 0E 04 80")]
    assert hears.heard() == [("w/1", b"dead", 1, False)]
    world.play("peer", "04 0C 00 09 -> 04 0E 04 F4")


@clause("4.4.1-1", "4.4.1-3")
def test_a_resumed_session_resends_with_the_old_ids() -> None:
    world = World()
    world.play("peer", f"{KEPT} -> 06 02 00 00 01 00\n{SUBSCRIBE}")
    world.publish("a/b", "1", qos=2)
    world.play("peer", "< 08 03 40 00 01 00 01 31\n03 0E 00 -> -")
    world.play(
        "peer",
        f"""
        {RESUMED} -> 06 02 01 00 01 00, 08 03 C0 00 01 00 01 31
        05 05 00 01 00 -> 05 06 00 01 00
        03 0E 00 -> -
        {RESUMED} -> 06 02 01 00 01 00, 05 06 00 01 00
        05 07 00 01 00 -> -
        """,
    )
    world.publish("a/b", "2", qos=1)
    world.play(
        "peer", f"< 08 03 20 00 02 00 01 32\n03 0E 00 -> -\n{RESUMED} -> 06 02 01 00 01 00, 08 03 20 00 02 00 01 32"
    )


@clause("3.6.2.7-2", "3.7.6-7")
def test_overlapping_subscriptions_deliver_once_at_the_highest_qos() -> None:
    world = World()
    world.play(
        "peer",
        f"{CONNECT}\n08 08 03 00 02 61 2F 23 -> 06 09 01 00 02 00\n08 08 23 00 03 61 2F 62 -> 08 09 04 00 03 00 01 01",
    )
    world.publish("a/b", "1", qos=2)
    world.play("peer", "< 08 03 20 00 01 00 01 31")


@clause("3.1.7-2", "3.1.7-3")
@pytest.mark.parametrize(("payload", "fits"), [(13, True), (14, False)])
def test_nothing_larger_than_the_client_takes_is_sent(payload: int, fits: bool) -> None:
    world = World()
    world.play("peer", f"0C 01 01 00 01 02 00 3C 00 14 63 31 -> 06 02 00 00 01 00\n{SUBSCRIBE}")
    world.publish("a/b", "x" * payload, qos=1)
    world.publish("a/b", "y", qos=1)
    first = world.taken("peer")[0]
    assert first[7:] == (b"x" * payload if fits else b"y")
    assert len(first) <= 20


@clause("3.1.7-2", "3.4-2", "3.4.2.1-2", "3.4.2-1")
def test_an_alias_is_made_where_only_that_fits() -> None:
    world = World()
    world.publish("a/long/topic", "x" * 10, retain=True)
    register = "13 10 01 00 01 00 01" + " " + b"a/long/topic".hex(" ")
    world.play(
        "peer",
        f"""
        0C 01 01 00 01 02 00 3C 00 14 63 31 -> 06 02 00 00 01 00
        08 08 03 00 02 61 2F 23 -> 06 09 01 00 02 00, {register}
        06 11 00 00 01 00 -> 0F 03 10 00 01 {"78 " * 10}
        """,
    )


def test_a_message_that_fits_in_no_way_is_skipped_for_this_client_alone() -> None:
    world = World()
    world.publish("a/b", "x" * 100, retain=True)
    world.publish("a/c", "y", retain=True)
    small = "0C 01 01 00 01 02 00 3C 00 14 63 31 -> 06 02 00 00 01 00"
    world.play("small", f"{small}\n08 08 03 00 02 61 2F 23 -> 06 09 01 00 02 00, 09 03 13 00 03 61 2F 63 79")
    world.send("large", CONNECT.partition("->")[0].replace("63 31", "63 32"))
    world.play("large", "08 08 03 00 02 61 2F 23 -> 06 09 01 00 02 00, 08 10 01 70 01 FF FE 24")  # is it there?
    world.play("large", "06 11 00 70 01 00 -> 08 10 01 70 02 FF FE 24")
    assert len(world.send("large", "06 11 00 70 02 00")) == 2


def test_a_message_that_no_datagram_can_hold_is_skipped_for_sensors_alone() -> None:
    world = World()
    world.publish("a/b", b"x" * 70_000, retain=True)
    world.publish("a/c", b"y", retain=True)
    world.play("peer", f"{CONNECT}\n08 08 03 00 02 61 2F 23 -> 06 09 01 00 02 00, 09 03 13 00 03 61 2F 63 79")
    assert len(world.retained("a/b") or b"") == 70_000


def test_a_publish_that_is_not_allowed_is_refused_and_stores_nothing() -> None:
    world = World(access=Access([Rule(False, ALL, b"a/#", None, None)], True))
    world.play("peer", f"{CONNECT}\n0C 03 33 00 05 00 03 61 2F 62 6F 6E -> 05 04 00 05 87")
    assert world.retained("a/b") is None


def test_too_many_messages_are_congestion() -> None:
    world = World(message_rate=2.0)
    publish = "0C 03 23 00 05 00 03 61 2F 62 6F 6E -> 05 04 00 05"
    world.play("peer", f"{CONNECT}\n{publish} 00\n{publish} 00\n{publish} F1\n~ 1\n{publish} 00")


@pytest.mark.parametrize("setting", [{"broker_user_message_rate": 2.0}, {"broker_user_byte_rate": 4.0}])
def test_sensors_share_the_rates_of_their_user(setting: dict[str, float]) -> None:
    world = World(open_filters=[b"a/#"], open_retain=True, **setting)  # type: ignore[arg-type]
    publish = "0C 03 23 00 05 00 03 61 2F 62 6F 6E -> 05 04 00 05"
    world.play("one", f"{CONNECT}\n{publish} 00")
    world.play("two", f"{CONNECT.replace('63 31', '63 32')}\n{publish} 00\n{publish} F1")
    world.play("stranger", "0A 12 13 00 03 61 2F 63 6F 6E -> -")
    assert world.retained("a/c") is None, "a publish without a connection counts too"
    world.play("one", f"~ 1\n{publish} 00")


# Without a session.


@clause("3.6-1", "3.6.1.4-1", "3.6.1.6-1", "4.3.1-1", "4.3.1-2", "3.6.1.2-1", "4.13-1", "4.13-2", "4.13-4")
def test_pubwos_by_name_is_an_ordinary_publish_at_qos_0() -> None:
    world = World(open_filters=[b"a/#"], open_retain=True)
    hears = world.listener("#")
    world.play("stranger", "0A 12 13 00 03 61 2F 62 6F 6E -> -")
    assert world.retained("a/b") == b"on"
    world.play("stranger", "09 12 03 00 03 61 2F 62 78 -> -")
    assert world.retained("a/b") == b"on"
    world.play("stranger", "08 12 13 00 03 61 2F 62 -> -")
    assert world.retained("a/b") is None
    assert hears.heard() == [("a/b", b"on", 0, False), ("a/b", b"x", 0, False), ("a/b", b"", 0, False)]


@clause("3.6.1.2.1-1", "3.6.1.4-2")
def test_pubwos_by_predefined_alias() -> None:
    world = World(predefined={7: b"a/b"}, open_filters=[b"a/#"], open_retain=True)
    world.play("stranger", "07 12 11 00 07 6F 6E -> -")
    assert world.retained("a/b") == b"on"
    world.play("stranger", "05 12 11 00 07 -> -")
    assert world.retained("a/b") is None


@clause("3.6.1.2-2", "3.6.1.2.1-1")
@pytest.mark.parametrize("flags", ["33", "93", "1B", "17", "10", "12"])
def test_a_malformed_pubwos_is_dropped(flags: str) -> None:
    world = World(open_filters=[b"#"], open_retain=True)
    assert world.send("stranger", f"0A 12 {flags} 00 03 61 2F 62 6F 6E") in ([], [bytes.fromhex("02 18")])
    assert world.broker.retained.count == 0


@clause("4.3.1-1")
@pytest.mark.parametrize("settings", [{}, {"open_filters": [b"b/#"], "open_retain": True}], ids=["off", "other topics"])
def test_pubwos_is_ignored_unless_its_topic_is_named(settings: dict[str, Any]) -> None:
    world = World(**settings)
    hears = world.listener("#")
    world.send("stranger", "0A 12 13 00 03 61 2F 62 6F 6E")
    assert hears.heard() == []
    assert world.retained("a/b") is None


def test_pubwos_has_a_rate_of_its_own() -> None:
    world = World(open_filters=[b"a/#"], open_rate=3.0)
    hears = world.listener("#")
    for _ in range(5):
        world.send("stranger", "0A 12 03 00 03 61 2F 62 6F 6E")
    assert len(hears.heard()) == 3
