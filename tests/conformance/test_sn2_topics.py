"""MQTT-SN 2.0: REGISTER, SUBSCRIBE, UNSUBSCRIBE, aliases, and retained messages."""

import pytest

from conformance.sn2_rows import CONNECT, KEPT, RESUMED, clause, rows
from sn_world import World

TO_AB = "08 08 23 00 02 61 2F 62"  # a/b at QoS 1
PING = "04 0C 00 09 -> 05 0D 00 09 00"


@rows(
    (
        "register",
        "3.4.2.1-1 3.5.2-1 3.5.2.2-2 3.5.5-1 4.7.2.2-1",
        f"""
        {CONNECT}
        08 10 00 00 04 78 2F 79 -> 08 11 04 00 04 00 01 00
        08 10 00 00 05 78 2F 7A -> 08 11 04 00 05 00 02 00
        08 10 00 00 06 78 2F 79 -> 08 11 04 00 06 00 01 1A
        08 10 00 00 05 78 2F 7A -> 08 11 04 00 05 00 02 00 ; resent: the same answer again
        """,
    ),
    (
        "register a predefined topic",
        "4.7.2.2-5 4.7.2.2-4 3.5.2.1-1 3.5.5-1",
        f"{CONNECT}\n10 10 00 00 04 70 72 65 2F 64 65 66 69 6E 65 64 -> 08 11 05 00 04 00 07 1A",
    ),
    ("register with reserved flags", "3.4.2-2", f"{CONNECT}\n08 10 02 00 04 78 2F 79 -> 04 0E 04 81"),
    ("register with an alias", "3.4-1", f"{CONNECT}\n0A 10 01 00 04 00 01 78 2F 79 -> 04 0E 04 82"),
    ("register nothing", "4.7.1.3-1", f"{CONNECT}\n05 10 00 00 04 -> 04 0E 04 82"),
    ("register a wildcard", "4.7.1.1-1", f"{CONNECT}\n06 10 00 00 04 23 -> 04 0E 04 90"),
    ("REGACK with reserved flags", "3.5.2-2", f"{CONNECT}\n06 11 08 00 03 00 -> 04 0E 04 81"),
    ("REGACK about a name", "3.5.2.1-1", f"{CONNECT}\n06 11 03 00 03 00 -> 04 0E 04 81"),
    ("REGACK of a client with an alias", "3.5.4-1", f"{CONNECT}\n08 11 04 00 03 00 01 00 -> 04 0E 04 82"),
    ("REGACK that nobody waits for", "3.5.2.2-1", f"{CONNECT}\n06 11 00 00 03 00 -> -\n{PING}"),
    (
        "subscribe to a topic",
        "3.7.6-1 3.7.6-2 3.7.6-5 3.7.6-6 3.8.2-1 3.8.2.1-1 3.8.2.2-2 4.7.2.2-2 3.7.4-2 3.7.5-1 3.8.5-1 2.2-4",
        f"{CONNECT}\n{TO_AB} -> 08 09 04 00 02 00 01 01",
    ),
    (
        "subscribe with a wildcard",
        "4.7.2.2-3 3.8.2.1-2 3.8.2.2-1 3.8.4-2",
        f"{CONNECT}\n08 08 43 00 03 61 2F 23 -> 06 09 01 00 03 02",
    ),
    (
        "subscribe by predefined alias",
        "3.8.4-3 3.7.2.1-1 3.7.4-1 3.7.5-2",
        f"{CONNECT}\n07 08 21 00 02 00 07 -> 06 09 01 00 02 01",
    ),
    (
        "subscribe to a predefined topic by name",
        "4.7.2.2-4 3.8.2.1-1",
        f"{CONNECT}\n10 08 23 00 02 70 72 65 2F 64 65 66 69 6E 65 64 -> 08 09 05 00 02 00 07 01",
    ),
    (
        "subscribe by session alias",
        "3.7.2.1-1 3.7.4-1",
        f"""
        {CONNECT}
        08 10 00 00 04 78 2F 79 -> 08 11 04 00 04 00 01 00
        07 08 20 00 05 00 01 -> 08 09 04 00 05 00 01 01
        07 08 20 00 06 00 09 -> 06 09 01 00 06 F0
        """,
    ),
    ("subscribe by unknown predefined alias", "4.7.2.1-2", f"{CONNECT}\n07 08 21 00 02 00 08 -> 04 0E 04 82"),
    ("subscribe with QoS 3", "4.12.1-2", f"{CONNECT}\n08 08 63 00 02 61 2F 62 -> 04 0E 04 82"),
    ("subscribe with Retain Handling 3", "4.12.1-2", f"{CONNECT}\n08 08 2F 00 02 61 2F 62 -> 04 0E 04 82"),
    ("subscribe with a reserved topic type", "3.7.2.1-1", f"{CONNECT}\n07 08 22 00 02 00 07 -> 04 0E 04 81"),
    ("subscribe to nothing", "4.7.1.3-1 3.7.5-1", f"{CONNECT}\n05 08 23 00 02 -> 04 0E 04 82"),
    ("# not last", "4.7.1.1.2-1 3.8.5-1", f"{CONNECT}\n08 08 23 00 02 23 2F 62 -> 06 09 01 00 02 8F"),
    ("# not alone", "4.7.1.1.2-1", f"{CONNECT}\n08 08 23 00 02 61 62 23 -> 06 09 01 00 02 8F"),
    ("+ not alone", "4.7.1.1.3-1", f"{CONNECT}\n08 08 23 00 02 61 62 2B -> 06 09 01 00 02 8F"),
    (
        "shared subscriptions",
        "3.8.5-1",
        f"{CONNECT}\n0F 08 23 00 02 24 73 68 61 72 65 2F 67 2F 61 -> 06 09 01 00 02 9E",
    ),
    (
        "unsubscribe",
        "3.9.6-5 3.9.6-6 3.9.5-1 3.9.4-2 3.10.3-1 2.2-4",
        f"""
        {CONNECT}
        {TO_AB} -> 08 09 04 00 02 00 01 01
        08 0A 03 00 03 61 2F 62 -> 05 0B 00 03 00
        08 0A 03 00 04 61 2F 62 -> 05 0B 00 04 11
        08 0A 03 00 03 61 2F 62 -> 05 0B 00 03 00 ; resent: the same answer again
        """,
    ),
    (
        "unsubscribe by alias",
        "3.9.6-1 3.9.4-1 3.9.5-2 3.10.3-1",
        f"""
        {CONNECT}
        {TO_AB} -> 08 09 04 00 02 00 01 01
        07 0A 00 00 03 00 09 -> 05 0B 00 03 F0
        07 0A 00 00 04 00 01 -> 05 0B 00 04 00
        08 0A 03 00 05 61 2F 62 -> 05 0B 00 05 11
        """,
    ),
    ("subscribe to nothing", "4.7.1.3-1 3.7.5-1", f"{CONNECT}\n05 08 03 00 02 -> 04 0E 04 82"),
    ("unsubscribe from nothing", "4.7.1.3-1 3.9.5-1", f"{CONNECT}\n05 0A 03 00 02 -> 04 0E 04 82"),
    ("subscribe to U+0000", "4.7.1.3-2", f"{CONNECT}\n06 08 03 00 02 00 -> 04 0E 04 81"),
    ("unsubscribe from U+0000", "4.7.1.3-2", f"{CONNECT}\n06 0A 03 00 02 00 -> 04 0E 04 81"),
    (
        "a malformed filter",
        "3.8.5-1 3.9.6-5 3.10.3-1",
        f"""
        {CONNECT}
        07 08 03 00 02 61 23 -> 06 09 01 00 02 8F
        07 0A 03 00 03 61 23 -> 05 0B 00 03 8F
        07 0A 03 00 04 2B 61 -> 05 0B 00 04 8F
        {PING}
        """,
    ),
    (
        "shared subscriptions do not exist, with a filter or without",
        "3.8.5-1 3.9.6-5 3.10.3-1",
        f"""
        {CONNECT}
        0F 08 03 00 02 24 73 68 61 72 65 2F 67 2F 61 -> 06 09 01 00 02 9E
        0D 08 03 00 03 24 73 68 61 72 65 2F 67 -> 06 09 01 00 03 9E
        0F 0A 03 00 04 24 73 68 61 72 65 2F 67 2F 61 -> 05 0B 00 04 11
        0D 0A 03 00 05 24 73 68 61 72 65 2F 67 -> 05 0B 00 05 8F
        {PING}
        """,
    ),
    ("unsubscribe with reserved flags", "3.9.2-1 3.9.2-2", f"{CONNECT}\n08 0A 23 00 03 61 2F 62 -> 04 0E 04 81"),
)
def test_exchange(script: str) -> None:
    World(predefined={7: b"pre/defined"}).play("peer", script)


@clause("4.7.2.2-6", "4.7.2.2-4")
def test_the_same_number_means_different_topics_in_both_spaces() -> None:
    world = World(predefined={1: b"pre/defined"})
    hears = world.listener("#")
    world.play(
        "peer",
        f"{CONNECT}\n08 10 00 00 04 78 2F 79 -> 08 11 04 00 04 00 01 00",
    )
    world.play(
        "peer",
        "06 03 00 00 01 31 -> -\n06 03 01 00 01 32 -> -",
    )
    assert [topic for topic, _, _, _ in hears.heard()] == ["x/y", "pre/defined"]


@clause("4.7.2.2-1")
def test_session_aliases_live_as_long_as_the_session() -> None:
    world = World()
    world.play(
        "peer", f"{KEPT} -> 06 02 00 00 01 00\n08 10 00 00 04 78 2F 79 -> 08 11 04 00 04 00 01 00\n03 0E 00 -> -"
    )
    world.play("peer", f"{RESUMED} -> 06 02 01 00 01 00\n08 03 20 00 05 00 01 31 -> 05 04 00 05 00\n03 0E 00 -> -")
    world.play("peer", f"{CONNECT}\n08 03 20 00 05 00 01 31 -> 05 04 00 05 F0")


@clause("4.7.2.2-1")
def test_session_aliases_belong_to_one_client() -> None:
    world = World()
    world.play("one", f"{CONNECT}\n08 10 00 00 04 78 2F 79 -> 08 11 04 00 04 00 01 00")
    world.play("two", f"{CONNECT.replace('63 31', '63 32')}\n08 03 20 00 05 00 01 31 -> 05 04 00 05 F0")


@clause("3.5.5-1")
def test_a_table_of_aliases_that_is_full_is_a_quota_exceeded() -> None:
    World(max_topics=1).play(
        "peer",
        f"{CONNECT}\n06 10 00 00 04 78 -> 08 11 04 00 04 00 01 00\n06 10 00 00 05 79 -> 06 11 00 00 05 97",
    )


@clause("3.7.6-3")
def test_the_same_filter_again_replaces_the_subscription() -> None:
    world = World()
    world.play(
        "peer", f"{CONNECT}\n{TO_AB} -> 08 09 04 00 02 00 01 01\n08 08 03 00 03 61 2F 62 -> 08 09 04 00 03 00 01 00"
    )
    world.publish("a/b", "1", qos=1)
    world.play("peer", "< 06 03 00 00 01 31")


@clause("3.9.6-2", "3.9.6-3")
def test_unsubscribe_removes_exactly_its_filter() -> None:
    world = World()
    world.play(
        "peer",
        f"""
        {CONNECT}
        08 08 03 00 02 61 2F 62 -> 08 09 04 00 02 00 01 00
        08 08 03 00 03 61 2F 2B -> 06 09 01 00 03 00
        08 0A 03 00 04 61 2F 62 -> 05 0B 00 04 00
        """,
    )
    world.publish("a/b", "1")
    assert len(world.taken("peer")) == 1
    world.play("peer", "08 0A 03 00 05 61 2F 2B -> 05 0B 00 05 00")
    world.publish("a/b", "2")
    assert world.taken("peer") == []


@clause("3.9.6-4")
def test_unsubscribe_lets_a_delivery_that_has_begun_finish() -> None:
    world = World()
    world.play("peer", f"{CONNECT}\n08 08 43 00 02 61 2F 62 -> 08 09 04 00 02 00 01 02")
    world.publish("a/b", "1", qos=2)
    world.play(
        "peer", "< 08 03 40 00 01 00 01 31\n08 0A 03 00 03 61 2F 62 -> 05 0B 00 03 00\n05 05 00 01 00 -> 05 06 00 01 00"
    )


def test_a_request_that_is_meant_again_is_carried_out_again() -> None:
    """A client that has only a few packet ids may well send the same bytes again and mean it."""
    world = World()
    world.play(
        "peer",
        f"""
        {CONNECT}
        08 08 03 00 02 61 2F 62 -> 08 09 04 00 02 00 01 00
        08 0A 03 00 03 61 2F 62 -> 05 0B 00 03 00
        08 08 03 00 02 61 2F 62 -> 08 09 04 00 02 00 01 00
        """,
    )
    world.publish("a/b", "1")
    world.play("peer", "< 06 03 00 00 01 31\n08 0A 03 00 03 61 2F 62 -> 05 0B 00 03 00")
    world.publish("a/b", "2")
    world.play("peer", "< -")


@clause("3.7.2.5-1")
def test_no_local_keeps_a_clients_own_messages_from_it() -> None:
    world = World()
    world.play("peer", f"{CONNECT}\n08 08 83 00 02 61 2F 62 -> 08 09 04 00 02 00 01 00\n06 03 00 00 01 31 -> -")
    world.publish("a/b", "2")
    world.play("peer", "< 06 03 00 00 01 32")


@clause("4.7.1.2-1", "4.7.1.3-4")
def test_topics_are_compared_as_they_are_and_wildcards_skip_dollar_topics() -> None:
    world = World()
    world.play(
        "peer", f"{CONNECT}\n06 08 03 00 02 23 -> 06 09 01 00 02 00\n08 08 03 00 03 2B 2F 78 -> 06 09 01 00 03 00"
    )
    world.publish("$priv/x", "1")
    assert world.taken("peer") == []
    world.play("other", f"{CONNECT.replace('63 31', '63 32')}\n06 08 03 00 02 41 -> 08 09 04 00 02 00 01 00")
    world.publish("a", "1")
    assert world.taken("other") == []


# Retained messages.


@clause("4.13-1", "4.13-2", "4.13-3", "4.13-4", "4.13-8")
def test_retained_messages_are_set_replaced_left_alone_and_deleted() -> None:
    world = World()
    hears = world.listener("a/b")
    retained = "09 03 {} 00 03 61 2F 62 {} -> -"
    world.play("peer", f"{CONNECT}\n{retained.format('13', '31')}")
    assert world.retained("a/b") == b"1"
    world.play("peer", retained.format("13", "32"))
    assert world.retained("a/b") == b"2"
    world.play("peer", f"{retained.format('03', '33')}\n08 03 03 00 03 61 2F 62 -> -")
    assert world.retained("a/b") == b"2"
    world.play("peer", "08 03 13 00 03 61 2F 62 -> -\n08 03 13 00 03 61 2F 63 -> -")
    assert world.broker.retained.count == 0
    assert [(payload, retain) for _, payload, _, retain in hears.heard()] == [
        (b"1", False),
        (b"2", False),
        (b"3", False),
        (b"", False),
        (b"", False),
    ]


@clause("4.13-5", "4.13-6", "4.13-7", "3.7.6-4")
@pytest.mark.parametrize(
    ("handling", "first", "again"),
    [(0, True, True), (1, True, False), (2, False, False)],
    ids=["always", "new subscriptions", "never"],
)
def test_retain_handling_decides_who_gets_the_retained_message(handling: int, first: bool, again: bool) -> None:
    world = World()
    world.publish("a/b", "on", retain=True)
    flags = f"{0x03 | handling << 2:02X}"
    copy = ", 07 03 10 00 01 6F 6E"
    world.play(
        "peer",
        f"""
        {CONNECT}
        08 08 {flags} 00 02 61 2F 62 -> 08 09 04 00 02 00 01 00{copy if first else ""}
        08 08 {flags} 00 02 61 2F 62 -> 08 09 04 00 02 00 01 00
        08 08 {flags} 00 03 61 2F 62 -> 08 09 04 00 03 00 01 00{copy if again else ""}
        08 0A 03 00 04 61 2F 62 -> 05 0B 00 04 00
        08 08 {flags} 00 05 61 2F 62 -> 08 09 04 00 05 00 01 00{copy if first else ""}
        """,
    )
    world.publish("a/b", "x")
    world.play("peer", "< 06 03 00 00 01 78")


@clause("4.13-8", "4.13-9")
@pytest.mark.parametrize(("flags", "retain"), [("03", "00"), ("13", "10")], ids=["off", "as published"])
def test_retain_as_published_decides_the_flag_of_live_copies(flags: str, retain: str) -> None:
    world = World()
    world.play("peer", f"{CONNECT}\n08 08 {flags} 00 02 61 2F 62 -> 08 09 04 00 02 00 01 00")
    world.publish("a/b", "1", retain=True)
    world.play("peer", f"< 06 03 {retain} 00 01 31")
    world.publish("a/b", "2")
    world.play("peer", "< 06 03 00 00 01 32")


@clause("3.7.6-7", "4.3.3-4")
def test_retained_messages_go_one_at_a_time_at_the_lower_qos() -> None:
    world = World()
    for number in range(3):
        world.publish(f"a/{number}", "on", qos=number, retain=True)
    world.play(
        "peer",
        f"""
        {CONNECT}
        08 08 23 00 02 61 2F 23 -> 06 09 01 00 02 01, 0A 03 13 00 03 61 2F 30 6F 6E, 0C 03 33 00 01 00 03 61 2F 31 6F 6E
        05 04 00 01 00 -> 0C 03 33 00 02 00 03 61 2F 32 6F 6E
        05 04 00 02 00 -> -
        """,
    )


@clause("3.8.4-1", "4.7.2-1")
def test_a_predefined_topic_is_delivered_by_its_alias() -> None:
    world = World(predefined={7: b"a/b"})
    world.publish("a/b", "on", retain=True)
    world.play("peer", f"{CONNECT}\n07 08 01 00 02 00 07 -> 06 09 01 00 02 00, 07 03 11 00 07 6F 6E")


def test_a_retained_message_keeps_its_properties_for_others() -> None:
    world = World()
    hears = world.listener("nothing", version=5)
    properties = bytes.fromhex("03 00 04 74 65 78 74")  # content type "text"
    field = bytes.fromhex("00 03 61 2F 62")
    body = field + bytes([len(properties)]) + properties + b"on"
    hears.give(bytes([0x31, len(body)]) + body)
    world.play("peer", f"{CONNECT}\n08 08 03 00 02 61 2F 62 -> 08 09 04 00 02 00 01 00, 07 03 10 00 01 6F 6E")
    hears.give(bytes.fromhex("82 09 00 05 00 00 03 61 2F 62 00"))
    assert properties + b"on" in hears.wire.data


def test_without_retained_support_a_retained_publish_or_will_is_refused() -> None:
    world = World(broker_retain_available=False)
    world.play("peer", f"{CONNECT}\n0A 03 13 00 03 61 2F 62 6F 6E -> 04 0E 04 9A")
    world.play("peer", "18 01 03 17 00 01 02 00 3C 00 00 00 03 77 2F 31 00 04 64 65 61 64 63 31 -> 06 02 00 00 01 9A")
