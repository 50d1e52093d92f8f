"""MQTT-SN 1.2, exact datagrams in and out. See `sn_world.py` for how a script reads."""

import pytest

from sn_world import World

CONNECT = "08 04 04 01 00 3C 63 31 -> 03 05 00"  # clean, 60 s, "c1"
CONNECT_KEPT = "08 04 00 01 00 3C 63 31 -> 03 05 00"
SUBSCRIBE_ALL = "08 12 20 00 03 61 2F 23 -> 08 13 20 00 00 00 03 00"  # a/# at QoS 1


def rows(*table: tuple[str, list[int], str]) -> pytest.MarkDecorator:
    """Rows of name, labels and script, each a test of its own that names its labels."""
    return pytest.mark.parametrize(
        "script",
        [
            pytest.param(script, id=name, marks=pytest.mark.clause("SN1.2", *(f"SN12-{label:02}" for label in labels)))
            for name, labels, script in table
        ],
    )


@rows(
    ("short length", [1, 2], CONNECT),
    ("long length", [1, 2], "01 00 0A 04 04 01 00 3C 63 31 -> 03 05 00"),
    ("another protocol id", [2, 20], "08 04 04 07 00 3C 63 31 -> 03 05 03"),
    (
        "will prompt",
        [3],
        """
        08 04 0C 01 00 3C 63 31 -> 02 06
        04 07 30 77 -> 02 08
        06 09 64 65 61 64 -> 03 05 00
        """,
    ),
    ("empty will topic", [3, 5], "08 04 0C 01 00 3C 63 31 -> 02 06\n02 07 -> 03 05 00"),
    (
        "a CONNECT that comes twice during the prompt starts it again",
        [3],
        """
        08 04 0C 01 00 3C 63 31 -> 02 06
        08 04 0C 01 00 3C 63 31 -> 02 06
        04 07 30 77 -> 02 08
        06 09 64 65 61 64 -> 03 05 00
        """,
    ),
    (
        "will updates",
        [5],
        f"""
        {CONNECT}
        04 1C 78 79 -> 03 1D 03      ; a message without a topic
        05 1A 00 77 31 -> 03 1B 00
        04 1C 78 79 -> 03 1D 00
        02 1A -> 03 1B 00
        04 1C 78 79 -> 03 1D 03
        """,
    ),
    (
        "register",
        [6],
        f"""
        {CONNECT}
        09 0A 00 00 00 01 61 2F 62 -> 07 0B 00 01 00 01 00
        09 0A 00 00 00 02 61 2F 63 -> 07 0B 00 02 00 02 00
        09 0A 00 00 00 03 61 2F 62 -> 07 0B 00 01 00 03 00
        """,
    ),
    ("subscribe by name", [7], f"{CONNECT}\n08 12 20 00 03 61 2F 62 -> 08 13 20 00 01 00 03 00"),
    ("subscribe with a wildcard", [7], f"{CONNECT}\n08 12 20 00 04 61 2F 23 -> 08 13 20 00 00 00 04 00"),
    ("subscribe to a short name", [7], f"{CONNECT}\n07 12 42 00 05 61 62 -> 08 13 40 00 00 00 05 00"),
    ("subscribe to a predefined id", [7], f"{CONNECT}\n07 12 21 00 05 00 07 -> 08 13 20 00 07 00 05 00"),
    ("subscribe to an unknown predefined id", [7], f"{CONNECT}\n07 12 21 00 05 00 08 -> 08 13 00 00 08 00 05 02"),
    ("subscribe to a filter that is none", [7], f"{CONNECT}\n08 12 20 00 04 61 23 62 -> 08 13 00 00 00 00 04 03"),
    (
        "shared subscriptions are not supported",
        [7],
        f"{CONNECT}\n0F 12 20 00 04 24 73 68 61 72 65 2F 67 2F 61 -> 08 13 00 00 00 00 04 03",
    ),
    ("unknown id at QoS 1", [8], f"{CONNECT}\n09 0C 20 00 09 00 02 6F 6E -> 07 0D 00 09 00 02 02"),
    ("unknown id at QoS 0", [8], f"{CONNECT}\n09 0C 00 00 09 00 00 6F 6E -> 07 0D 00 09 00 00 02"),
    ("unknown predefined id", [8], f"{CONNECT}\n09 0C 21 00 08 00 02 6F 6E -> 07 0D 00 08 00 02 02"),
    ("QoS 1 to a short topic", [9], f"{CONNECT}\n09 0C 22 61 62 00 02 6F 6E -> 07 0D 61 62 00 02 00"),
    (
        "QoS 2",
        [9],
        f"""
        {CONNECT}
        09 0C 42 61 62 00 02 6F 6E -> 04 0F 00 02
        09 0C C2 61 62 00 02 6F 6E -> 04 0F 00 02
        04 10 00 02 -> 04 0E 00 02
        04 10 00 02 -> 04 0E 00 02
        """,
    ),
    ("unsubscribe", [7], f"{CONNECT}\n{SUBSCRIBE_ALL}\n08 14 00 00 04 61 2F 23 -> 04 15 00 04"),
    ("ping", [12], f"{CONNECT}\n02 16 -> 02 17"),
    ("sleep and wake with nothing waiting", [12], f"{CONNECT}\n04 18 01 2C -> 02 18\n04 16 63 31 -> 02 17"),
    ("wake with an id that nobody has", [12], "04 16 7A 7A -> 02 18"),
    ("goodbye", [14], f"{CONNECT}\n02 18 -> 02 18\n02 16 -> 02 18"),
    (
        "strangers",
        [15, 20],
        """
        09 0C 20 00 01 00 02 6F 6E -> 02 18
        08 12 20 00 03 61 2F 62 -> 02 18
        02 16 -> 02 18
        02 18 -> -                  ; or two gateways would go on answering each other
        04 18 00 3C -> -
        """,
    ),
    (
        "strangers with anything else but discovery",
        [15, 20],
        """
        03 05 00 -> 02 18                            ; CONNACK
        02 06 -> 02 18                               ; WILLTOPICREQ
        04 07 30 77 -> 02 18                         ; WILLTOPIC
        02 07 -> 02 18
        02 08 -> 02 18                               ; WILLMSGREQ
        06 09 64 65 61 64 -> 02 18                   ; WILLMSG
        09 0A 00 00 00 01 61 2F 62 -> 02 18          ; REGISTER
        01 00 0B 0A 00 00 00 01 61 2F 62 -> 02 18
        07 0B 00 01 00 01 00 -> 02 18                ; REGACK
        07 0D 00 01 00 02 00 -> 02 18                ; PUBACK
        04 0E 00 01 -> 02 18                         ; PUBCOMP
        ~ 1                                          ; so many answers a second and no more
        04 0F 00 01 -> 02 18                         ; PUBREC
        04 10 00 01 -> 02 18                         ; PUBREL
        08 13 20 00 01 00 03 00 -> 02 18             ; SUBACK
        08 14 00 00 04 61 2F 23 -> 02 18             ; UNSUBSCRIBE
        04 15 00 04 -> 02 18                         ; UNSUBACK
        05 1A 00 77 31 -> 02 18                      ; WILLTOPICUPD
        02 1A -> 02 18
        03 1B 00 -> 02 18                            ; WILLTOPICRESP
        04 1C 78 79 -> 02 18                         ; WILLMSGUPD
        03 1D 00 -> 02 18                            ; WILLMSGRESP
        05 00 01 00 3C -> -                          ; ADVERTISE
        03 02 05 -> -                                ; GWINFO
        """,
    ),
    (
        "a stranger behind a forwarder",
        [15, 19],
        "05 FE 00 AA BB 09 0A 00 00 00 01 61 2F 62 -> 05 FE 00 AA BB 02 18",
    ),
    (
        "an empty or malformed filter",
        [7],
        f"""
        {CONNECT}
        05 12 20 00 03 -> -                          ; SUBSCRIBE to nothing: 1.2 has no answer
        05 14 00 00 04 -> -                          ; UNSUBSCRIBE likewise
        07 12 20 00 03 61 23 -> 08 13 00 00 00 00 03 03
        07 14 00 00 04 61 23 -> 04 15 00 04          ; UNSUBACK has no code
        0C 12 20 00 05 24 73 68 61 72 65 2F -> 08 13 00 00 00 00 05 03
        05 12 21 00 03 -> -                          ; a predefined id that is cut short
        02 16 -> 02 17
        """,
    ),
    ("search", [18, 20], "03 01 00 -> 03 02 05\n03 01 01 -> 03 02 05"),
    (
        "forwarder",
        [19],
        """
        05 FE 00 AA BB 08 04 04 01 00 3C 63 31 -> 05 FE 00 AA BB 03 05 00
        05 FE 00 AA BB 02 16 -> 05 FE 00 AA BB 02 17
        05 FE 00 AA CC 02 16 -> 05 FE 00 AA CC 02 18
        02 16 -> 02 18
        """,
    ),
    (
        "either version from one address, one after the other",
        [20],
        f"""
        {CONNECT}
        0C 01 01 00 01 02 00 3C 00 00 63 31 -> 06 02 00 00 01 00
        04 0C 00 09 -> 05 0D 00 09 00
        {CONNECT}
        02 16 -> 02 17
        """,
    ),
    (
        "what can be no packet of either version is dropped",
        [20],
        """
        -> -
        00 -> -
        01 -> -
        05 00 01 00 3C -> -
        FF -> -
        03 18 05 -> -
        09 0A 00 00 -> -
        04 19 00 00 -> -
        02 1E -> -
        """,
    ),
    (
        "packets of 2.0 without a connection",
        [20],
        """
        09 03 23 00 05 00 01 61 31 -> 04 0E 04 F4    ; PUBLISH
        05 04 00 05 00 -> 04 0E 04 F4                ; PUBACK
        04 05 00 05 -> 04 0E 04 F4                   ; PUBREC
        05 06 00 05 00 -> 04 0E 04 F4                ; PUBREL
        08 08 23 00 02 61 2F 62 -> 04 0E 04 F4       ; SUBSCRIBE
        08 0A 03 00 03 61 2F 62 -> 04 0E 04 F4       ; UNSUBSCRIBE
        07 0A 01 00 03 00 07 -> 04 0E 04 F4
        04 0C 00 09 -> 04 0E 04 F4                   ; PINGREQ
        0A 0F 00 05 18 04 50 4C 41 4E -> 04 0E 04 F4 ; AUTH
        08 10 00 00 04 78 2F 79 -> 04 0E 04 F4       ; REGISTER
        06 11 00 00 03 00 -> 04 0E 04 F4             ; REGACK
        09 13 01 00 0A 00 00 01 2C -> 04 0E 04 F4    ; SLEEPREQ
        03 0E 00 -> -                                ; DISCONNECT is never answered
        04 0E 04 F4 -> -
        05 0E 01 00 05 -> -
        02 17 -> 03 18 05
        """,
    ),
    ("a foreign version byte", [20], "0C 01 01 00 01 03 00 3C 00 00 63 31 -> 06 02 00 00 01 84"),
)
def test_exchange(script: str) -> None:
    World(gateway_id=5, predefined={7: b"pre/defined"}).play("peer", script)


@pytest.mark.clause("SN1.2", "SN12-04")
@pytest.mark.parametrize(
    ("flags", "subscribed", "will"),
    [("04", False, None), ("0C", False, b"new"), ("00", True, b"old"), ("08", True, b"new")],
    ids=["clean", "clean with will", "kept", "kept with will"],
)
def test_clean_session_and_will_decide_what_remains(flags: str, subscribed: bool, will: bytes | None) -> None:
    world = World()
    world.play(
        "peer",
        f"""
        08 04 08 01 00 3C 63 31 -> 02 06
        03 07 00 -> -
        04 07 00 77 -> 02 08
        05 09 6F 6C 64 -> 03 05 00
        {SUBSCRIBE_ALL}
        02 18 -> 02 18
        """,
    )
    asks = "02 06" if flags in ("0C", "08") else "03 05 00"
    world.play("peer", f"08 04 {flags} 01 00 3C 63 31 -> {asks}")
    if asks == "02 06":
        world.play("peer", "04 07 00 77 -> 02 08\n05 09 6E 65 77 -> 03 05 00")
    world.publish("a/b", "x", qos=1)
    assert bool(world.taken("peer")) is subscribed
    hears = world.listener("w")
    world.pass_time(100)  # the client is lost
    assert [payload for _, payload, _, _ in hears.heard()] == ([will] if will else [])


@pytest.mark.clause("SN1.2", "SN12-13")
@pytest.mark.parametrize(
    ("script", "seconds", "sent"),
    [
        ("", 89, False),
        ("", 91, True),
        ("04 18 00 78 -> 02 18", 131, False),
        ("04 18 00 78 -> 02 18", 133, True),
        ("02 18 -> 02 18", 200, False),
    ],
    ids=["alive", "keep alive over", "asleep", "overslept", "said goodbye"],
)
def test_only_a_lost_client_sends_its_will(script: str, seconds: float, sent: bool) -> None:
    world = World()
    hears = world.listener("w")
    world.play(
        "peer", f"08 04 0C 01 00 3C 63 31 -> 02 06\n04 07 30 77 -> 02 08\n06 09 64 65 61 64 -> 03 05 00\n{script}"
    )
    world.pass_time(seconds)
    assert hears.heard() == ([("w", b"dead", 1, False)] if sent else [])
    assert world.retained("w") == (b"dead" if sent else None)


@pytest.mark.clause("SN1.2", "SN12-05")
def test_updates_replace_the_will_that_is_sent() -> None:
    world = World()
    hears = world.listener("#")
    world.play("peer", f"{CONNECT}\n05 1A 20 77 31 -> 03 1B 00\n04 1C 78 79 -> 03 1D 00")
    world.pass_time(100)
    assert hears.heard() == [("w1", b"xy", 1, False)]


@pytest.mark.clause("SN1.2", "SN12-05")
def test_a_will_that_was_deleted_is_not_sent() -> None:
    world = World()
    hears = world.listener("#")
    world.play("peer", f"{CONNECT}\n05 1A 20 77 31 -> 03 1B 00\n02 1A -> 03 1B 00")
    world.pass_time(100)
    assert hears.heard() == []


@pytest.mark.clause("SN1.2", "SN12-06")
def test_topic_ids_belong_to_one_client() -> None:
    world = World()
    world.play("one", f"{CONNECT}\n09 0A 00 00 00 01 61 2F 62 -> 07 0B 00 01 00 01 00")
    world.play("two", "08 04 04 01 00 3C 63 32 -> 03 05 00\n09 0A 00 00 00 01 78 2F 79 -> 07 0B 00 01 00 01 00")
    hears = world.listener("#")
    world.play("one", "08 0C 00 00 01 00 00 31 -> -")
    world.play("two", "08 0C 00 00 01 00 00 32 -> -")
    assert hears.heard() == [("a/b", b"1", 0, False), ("x/y", b"2", 0, False)]


@pytest.mark.clause("SN1.2", "SN12-06")
def test_a_table_that_is_full_is_congestion() -> None:
    world = World(max_topics=2)
    world.play(
        "peer",
        f"""
        {CONNECT}
        07 0A 00 00 00 01 61 -> 07 0B 00 01 00 01 00
        07 0A 00 00 00 02 62 -> 07 0B 00 02 00 02 00
        07 0A 00 00 00 03 63 -> 07 0B 00 00 00 03 01
        07 0A 00 00 00 04 61 -> 07 0B 00 01 00 04 00
        """,
    )


@pytest.mark.clause("SN1.2", "SN12-09")
def test_a_resent_qos_2_publish_is_delivered_once() -> None:
    world = World()
    hears = world.listener("ab")
    world.play(
        "peer",
        f"{CONNECT}\n09 0C 42 61 62 00 02 6F 6E -> 04 0F 00 02\n09 0C C2 61 62 00 02 6F 6E -> 04 0F 00 02",
    )
    assert hears.heard() == [("ab", b"on", 2, False)]


@pytest.mark.clause("SN1.2", "SN12-09")
def test_deliveries_are_resent_with_dup_until_acknowledged() -> None:
    world = World(retry_ms=10_000, retries=3)
    world.play("peer", f"{CONNECT}\n07 12 42 00 05 61 62 -> 08 13 40 00 00 00 05 00")
    world.publish("ab", "on", qos=2)
    world.play(
        "peer",
        """
        < 09 0C 42 61 62 00 01 6F 6E
        ~ 9
        < -
        ~ 2
        < 09 0C C2 61 62 00 01 6F 6E
        04 0F 00 01 -> 04 10 00 01
        ~ 11
        < 04 10 00 01
        04 0F 00 01 -> 04 10 00 01
        04 0E 00 01 -> -
        ~ 20
        < -
        """,
    )


@pytest.mark.clause("SN1.2", "SN12-09", "SN12-13")
def test_a_client_that_never_acknowledges_is_lost() -> None:
    world = World(retry_ms=1_000, retries=3)
    hears = world.listener("w")
    world.play("peer", "08 04 0C 01 00 3C 63 31 -> 02 06\n04 07 00 77 -> 02 08\n06 09 64 65 61 64 -> 03 05 00")
    world.play("peer", "07 12 22 00 05 61 62 -> 08 13 20 00 00 00 05 00")
    world.publish("ab", "on", qos=1)
    world.pass_time(3.5)
    assert hears.heard() == []
    world.pass_time(1)
    assert hears.heard() == [("w", b"dead", 0, False)]
    world.play("peer", "< 09 0C 22 61 62 00 01 6F 6E" + ", 09 0C A2 61 62 00 01 6F 6E" * 3 + ", 02 18")


@pytest.mark.clause("SN1.2", "SN12-10")
@pytest.mark.parametrize(
    ("packet", "stored"),
    [
        ("09 0C 71 00 07 00 00 6F 6E", {"pre/defined": b"on"}),
        ("09 0C 72 61 62 00 00 6F 6E", {"ab": b"on"}),
        ("09 0C 72 7A 7A 00 00 6F 6E", {"zz": None}),  # not among the topics that are open
        ("09 0C 70 00 01 00 00 6F 6E", {}),  # a normal id means nothing without a connection
        ("09 0C 71 00 08 00 00 6F 6E", {}),
    ],
    ids=["predefined", "short", "not open", "normal id", "unknown id"],
)
def test_publishing_without_a_connection(packet: str, stored: dict[str, bytes]) -> None:
    world = World(predefined={7: b"pre/defined"}, open_filters=[b"pre/#", b"ab"], open_retain=True)
    world.play("peer", f"{packet} -> -")
    assert world.broker.retained.count == sum(value is not None for value in stored.values())
    for topic, payload in stored.items():
        assert world.retained(topic) == payload


@pytest.mark.clause("SN1.2", "SN12-10")
def test_publishing_without_a_connection_is_off_unless_topics_are_named() -> None:
    world = World(predefined={7: b"pre/defined"})
    hears = world.listener("#")
    world.play("peer", "09 0C 71 00 07 00 00 6F 6E -> -\n09 0C 72 61 62 00 00 6F 6E -> -")
    assert hears.heard() == []
    assert world.broker.retained.count == 0


@pytest.mark.clause("SN1.2", "SN12-10")
def test_publishing_without_a_connection_cannot_retain_unless_allowed() -> None:
    world = World(open_filters=[b"ab"])
    hears = world.listener("#")
    world.play("peer", "09 0C 72 61 62 00 00 6F 6E -> -")
    assert hears.heard() == [("ab", b"on", 0, False)]
    assert world.retained("ab") is None


@pytest.mark.clause("SN1.2", "SN12-11")
def test_topics_of_a_wildcard_are_registered_one_by_one() -> None:
    world = World(predefined={7: b"a/pre"})
    for topic in ("a/1", "a/2", "a/pre"):
        world.publish(topic, "on", retain=True)
    world.play(
        "peer",
        f"""
        {CONNECT}
        08 12 00 00 03 61 2F 23 -> 08 13 00 00 00 00 03 00, 09 0A 00 01 00 01 61 2F 31
        07 0B 00 01 00 01 00 -> 09 0C 10 00 01 00 00 6F 6E, 09 0A 00 02 00 02 61 2F 32
        07 0B 00 02 00 02 00 -> 09 0C 10 00 02 00 00 6F 6E, 09 0C 11 00 07 00 00 6F 6E
        """,
    )
    world.publish("a/1", "off")
    world.play("peer", "< 0A 0C 00 00 01 00 00 6F 66 66")


@pytest.mark.clause("SN1.2", "SN12-11")
def test_short_topics_need_no_registration() -> None:
    world = World()
    world.publish("ab", "on", retain=True)
    world.play("peer", f"{CONNECT}\n06 12 00 00 03 23 -> 08 13 00 00 00 00 03 00, 09 0C 12 61 62 00 00 6F 6E")


@pytest.mark.clause("SN1.2", "SN12-11")
def test_a_topic_that_the_client_refuses_is_skipped() -> None:
    world = World()
    world.publish("a/1", "on", qos=1, retain=True)
    world.publish("a/2", "on", qos=1, retain=True)
    world.play(
        "peer",
        f"""
        {CONNECT}
        08 12 20 00 03 61 2F 23 -> 08 13 20 00 00 00 03 00, 09 0A 00 01 00 02 61 2F 31
        07 0B 00 01 00 02 03 -> 09 0A 00 02 00 04 61 2F 32
        07 0B 00 02 00 04 00 -> 09 0C 30 00 02 00 03 6F 6E
        07 0D 00 02 00 03 00 -> -
        """,
    )


@pytest.mark.clause("SN1.2", "SN12-11")
def test_a_client_that_lost_an_id_is_told_it_again() -> None:
    world = World()
    world.play("peer", f"{CONNECT}\n08 12 20 00 03 61 2F 62 -> 08 13 20 00 01 00 03 00")
    world.publish("a/b", "on", qos=1)
    world.play(
        "peer",
        """
        < 09 0C 20 00 01 00 01 6F 6E
        07 0D 00 01 00 01 02 -> 09 0A 00 01 00 02 61 2F 62
        07 0B 00 01 00 02 00 -> 09 0C 20 00 01 00 01 6F 6E
        07 0D 00 01 00 01 00 -> -
        """,
    )


@pytest.mark.clause("SN1.2", "SN12-12")
def test_a_sleeping_client_gets_what_came_when_it_wakes() -> None:
    world = World()
    world.play("peer", f"{CONNECT}\n07 12 22 00 05 61 62 -> 08 13 20 00 00 00 05 00\n04 18 01 2C -> 02 18")
    for number, qos in (("1", 1), ("2", 1), ("3", 0)):
        world.publish("ab", number, qos=qos)
    world.play(
        "peer",
        """
        < -
        04 16 63 31 -> 08 0C 22 61 62 00 01 31
        07 0D 61 62 00 01 00 -> 08 0C 22 61 62 00 02 32
        07 0D 61 62 00 02 00 -> 08 0C 02 61 62 00 00 33, 02 17
        """,
    )
    world.publish("ab", "4", qos=1)
    world.play("peer", "< -\n04 16 63 31 -> 08 0C 22 61 62 00 03 34\n07 0D 61 62 00 03 00 -> 02 17")


@pytest.mark.clause("SN1.2", "SN12-12")
def test_a_sleeping_client_at_another_address_has_to_connect() -> None:
    world = World()
    world.play("here", f"{CONNECT}\n07 12 22 00 05 61 62 -> 08 13 20 00 00 00 05 00\n04 18 01 2C -> 02 18")
    world.publish("ab", "1", qos=1)
    world.play("there", "04 16 63 31 -> 02 18")
    world.play("there", "08 04 00 01 00 3C 63 31 -> 03 05 00, 08 0C 22 61 62 00 01 31\n07 0D 61 62 00 01 00 -> -")
    world.play("here", "02 16 -> 02 18")


@pytest.mark.clause("SN1.2", "SN12-12")
def test_connect_brings_a_sleeping_client_back_with_all_it_had() -> None:
    world = World()
    world.play("peer", f"{CONNECT}\n07 12 22 00 05 61 62 -> 08 13 20 00 00 00 05 00\n04 18 01 2C -> 02 18")
    world.publish("ab", "1", qos=1)
    world.play("peer", "08 04 00 01 00 3C 63 31 -> 03 05 00, 08 0C 22 61 62 00 01 31\n07 0D 61 62 00 01 00 -> -")
    world.publish("ab", "2")
    world.play("peer", "< 08 0C 02 61 62 00 00 32")


@pytest.mark.clause("SN1.2", "SN12-12")
def test_a_new_duration_changes_the_sleep() -> None:
    world = World()
    world.play("peer", f"{CONNECT}\n04 18 00 3C -> 02 18\n~ 80\n04 18 00 78 -> 02 18\n~ 131\n04 16 63 31 -> 02 17")


@pytest.mark.clause("SN1.2", "SN12-12")
def test_messages_at_qos_0_for_a_sleeper_are_bounded() -> None:
    world = World(max_buffered=3)
    world.play("peer", f"{CONNECT}\n07 12 02 00 05 61 62 -> 08 13 00 00 00 00 05 00\n04 18 01 2C -> 02 18")
    for number in range(5):
        world.publish("ab", str(number))
    assert len(world.send("peer", "04 16 63 31")) == 4  # three messages and PINGRESP
    assert world.broker.counters.dropped_slow == 2


@pytest.mark.clause("SN1.2", "SN12-16")
def test_retained_messages_are_set_replaced_and_deleted() -> None:
    world = World()
    hears = world.listener("ab")
    world.play("peer", f"{CONNECT}\n08 0C 12 61 62 00 00 31 -> -\n08 0C 12 61 62 00 00 32 -> -")
    assert world.retained("ab") == b"2"
    world.play("peer", "08 0C 02 61 62 00 00 33 -> -")
    assert world.retained("ab") == b"2"
    world.play("peer", "07 12 22 00 05 61 62 -> 08 13 20 00 00 00 05 00, 08 0C 12 61 62 00 00 32")
    world.play("peer", "07 0C 12 61 62 00 00 -> 07 0C 02 61 62 00 00")
    assert world.retained("ab") is None
    assert [(payload, retain) for _, payload, _, retain in hears.heard()] == [
        (b"1", False),
        (b"2", False),
        (b"3", False),
        (b"", False),
    ]


@pytest.mark.clause("SN1.2", "SN12-17")
def test_every_new_subscribe_brings_the_retained_messages() -> None:
    world = World()
    world.publish("ab", "on", retain=True)
    world.play(
        "peer",
        f"""
        {CONNECT}
        07 12 02 00 05 61 62 -> 08 13 00 00 00 00 05 00, 09 0C 12 61 62 00 00 6F 6E
        07 12 02 00 06 61 62 -> 08 13 00 00 00 00 06 00, 09 0C 12 61 62 00 00 6F 6E
        07 12 02 00 06 61 62 -> 08 13 00 00 00 00 06 00 ; the same request again: only its answer was lost
        07 12 82 00 06 61 62 -> 08 13 00 00 00 00 06 00 ; even when it says so
        """,
    )


@pytest.mark.clause("SN1.2", "SN12-18")
def test_advertisements_name_the_gateway_and_the_interval() -> None:
    assert [packet.hex(" ") for packet in World(gateway_id=5).gateway.advertisements(900)] == [
        "05 00 05 03 84",
        "05 16 05 03 84",
    ]


@pytest.mark.clause("SN1.2", "SN12-09")
def test_a_session_that_is_kept_resends_what_was_not_acknowledged() -> None:
    world = World()
    world.play("peer", f"{CONNECT_KEPT}\n07 12 22 00 05 61 62 -> 08 13 20 00 00 00 05 00")
    world.publish("ab", "1", qos=1)
    world.play("peer", "< 08 0C 22 61 62 00 01 31\n02 18 -> 02 18")
    world.publish("ab", "2", qos=1)
    world.play(
        "peer",
        """
        08 04 00 01 00 3C 63 31 -> 03 05 00, 08 0C A2 61 62 00 01 31
        07 0D 61 62 00 01 00 -> 08 0C 22 61 62 00 02 32
        07 0D 61 62 00 02 00 -> -
        """,
    )


@pytest.mark.clause("SN1.2", "SN12-11")
def test_ids_are_registered_again_in_a_new_connection() -> None:
    world = World()
    world.play("peer", f"{CONNECT_KEPT}\n08 12 00 00 03 61 2F 62 -> 08 13 00 00 01 00 03 00\n02 18 -> 02 18")
    world.play("peer", "08 04 00 01 00 3C 63 31 -> 03 05 00")
    world.publish("a/b", "on")
    world.play("peer", "< 09 0A 00 01 00 01 61 2F 62\n07 0B 00 01 00 01 00 -> 09 0C 00 00 01 00 00 6F 6E")
