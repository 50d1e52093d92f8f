"""How connections and sessions end, and what becomes of their wills."""

from collections.abc import Callable
from typing import Any

import pytest

import wire
from core_broker import CoreBroker, CoreClient
from wire import P, Property, Will

Start = Callable[..., CoreBroker]
BOTH = pytest.mark.parametrize("version", [4, 5], ids=["v311", "v5"])

DAY_S = 24 * 3600
TEN_YEARS_S = 10 * 365 * DAY_S
WILL = Will("w", b"dead")


def watcher(broker: CoreBroker) -> CoreClient:
    client = broker.join("watcher")
    client.subscribe("w", qos=2, retain_as_published=True)
    return client


def delayed(seconds: int) -> Will:
    return Will("w", b"dead", properties=[(P.WILL_DELAY, seconds)])


def lasting(seconds: int) -> list[Property]:
    return [(P.SESSION_EXPIRY, seconds)]


def leap(broker: CoreBroker, seconds: float) -> None:
    """A long time in one step, for ends that are years away."""
    broker.pass_ms(round(seconds * 1000))


# Wills


@pytest.mark.parametrize(
    ("end", "published"),
    [
        (lambda client: client.cut(), True),
        (lambda client: client.send(wire.disconnect()), False),
        (lambda client: client.send(wire.disconnect(0x00)), False),
        (lambda client: client.send(wire.disconnect(0x04)), True),
        (lambda client: client.send(wire.disconnect(0x80)), True),
        (lambda client: client.send(b"\x00\x00"), True),
        (lambda client: client.send(wire.connect("mortal", version=5)), True),
        (lambda client: client.send(wire.publish("a/#", "1", version=5)), True),
    ],
    ids=["lost", "disconnect", "disconnect 0x00", "with will", "with an error", "malformed", "twice", "wildcard topic"],
)
def test_a_will_is_published_on_every_end_but_a_normal_one(
    broker: CoreBroker, end: Callable[[CoreClient], None], published: bool
) -> None:
    seen = watcher(broker)
    end(broker.join("mortal", will=WILL))
    assert seen.payloads() == (["dead"] if published else [])


@BOTH
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_is_published_as_it_was_given(broker: CoreBroker, version: int, qos: int, retain: bool) -> None:
    seen = watcher(broker)
    broker.join("mortal", version, will=Will("w", b"dead", qos=qos, retain=retain)).cut()
    assert seen.copies() == [("w", "dead", qos, retain)]
    assert broker.world.stored(["w"]) == ({"w": b"dead"} if retain else {})


def test_a_will_is_published_once(broker: CoreBroker) -> None:
    seen = watcher(broker)
    broker.join("mortal", keep=True, will=WILL).cut()
    broker.join("mortal", keep=True).cut()
    assert seen.payloads() == ["dead"]


@pytest.mark.parametrize(("waited", "published"), [(9.999, False), (10, True)])
def test_a_delayed_will_waits_to_the_millisecond(broker: CoreBroker, waited: float, published: bool) -> None:
    seen = watcher(broker)
    broker.join("mortal", keep=True, will=delayed(10)).cut()
    broker.pass_time(waited)
    assert bool(seen.payloads()) is published


@pytest.mark.parametrize(("lives", "waited"), [(0, 0), (5, 5)])
def test_a_delayed_will_does_not_outwait_its_session(broker: CoreBroker, lives: int, waited: int) -> None:
    seen = watcher(broker)
    broker.join("mortal", properties=lasting(lives), will=delayed(60)).cut()
    broker.pass_time(waited)
    assert seen.payloads() == ["dead"]
    broker.pass_time(120)
    assert seen.payloads() == []


@pytest.mark.parametrize(("clean", "published"), [(False, False), (True, True)])
def test_who_is_back_in_time_calls_the_will_off_unless_it_starts_anew(
    broker: CoreBroker, clean: bool, published: bool
) -> None:
    seen = watcher(broker)
    broker.join("mortal", keep=True, will=delayed(10)).cut()
    broker.pass_time(9)
    broker.join("mortal", keep=True, clean=clean)
    broker.pass_time(60)
    assert bool(seen.payloads()) is published


@pytest.mark.parametrize(("delay", "published"), [(0, True), (10, False)])
def test_a_takeover_publishes_a_will_that_does_not_wait(broker: CoreBroker, delay: int, published: bool) -> None:
    seen = watcher(broker)
    broker.join("mortal", keep=True, will=delayed(delay))
    broker.join("mortal", keep=True)
    broker.pass_time(60)
    assert bool(seen.payloads()) is published


def test_a_will_of_a_clean_start_does_not_reach_the_new_session(broker: CoreBroker) -> None:
    first = broker.join("mortal", keep=True, will=delayed(60))
    first.subscribe("w", qos=1)
    first.cut()
    assert broker.join("mortal", clean=True).arrived() == []


def test_the_interval_of_a_will_counts_from_its_publication(broker: CoreBroker) -> None:
    will = Will("w", b"dead", retain=True, properties=[(P.WILL_DELAY, 10), (P.MESSAGE_EXPIRY, 10)])
    broker.join("mortal", keep=True, will=will).cut()
    broker.pass_time(19.9)
    assert broker.world.stored(["w"]) == {"w": b"dead"}
    broker.pass_time(0.2)
    assert broker.world.stored(["w"]) == {}


def test_a_will_is_not_published_where_its_client_has_lost_the_right(start: Start) -> None:
    broker = start(access=[{"permission": "allow", "action": "all", "filter": "#"}])
    seen = watcher(broker)
    mortal = broker.join("mortal", will=WILL)
    broker.set_rules([{"permission": "deny", "action": "publish", "filter": "w"}])
    mortal.cut()
    assert seen.payloads() == []


# Sessions


@pytest.mark.parametrize(("waited", "there"), [(9.999, True), (10, False)])
def test_a_session_ends_to_the_millisecond(broker: CoreBroker, waited: float, there: bool) -> None:
    broker.join("client", properties=lasting(10)).cut()
    broker.pass_time(waited)
    back = broker.join("client", clean=False)
    assert back.connack is not None
    assert back.connack.session_present is there


def test_an_expired_session_is_sent_and_kept_nothing_more(broker: CoreBroker) -> None:
    client = broker.join("client", properties=lasting(10))
    client.subscribe("a", qos=1)
    client.cut()
    broker.pass_time(10)
    answer = broker.join("writer").publish("a", b"1", qos=1)
    assert answer is not None
    assert answer.reason == 0x10, "nobody is subscribed any more"


def test_the_interval_begins_anew_with_each_end(broker: CoreBroker) -> None:
    for _ in range(3):
        broker.join("client", clean=False, properties=lasting(10)).cut()
        broker.pass_time(9)
    back = broker.join("client", clean=False)
    assert back.connack is not None
    assert back.connack.session_present


@pytest.mark.parametrize(
    ("version", "fields"),
    [(4, {"clean": False}), (5, {"clean": False, "properties": lasting(0xFFFFFFFF)})],
    ids=["v311", "v5"],
)
@pytest.mark.parametrize(("most", "stays"), [(0, True), (30 * DAY_S, False)])
def test_a_session_without_an_end_stays_as_long_as_the_broker_lets_it(
    start: Callable[..., CoreBroker], version: int, fields: dict[str, Any], most: int, stays: bool
) -> None:
    broker = start(limits__session_expiry_max=most)
    broker.join("client", version, **fields).cut()
    leap(broker, TEN_YEARS_S)
    back = broker.join("client", version, **fields)
    assert back.connack is not None
    assert back.connack.session_present is stays


@pytest.mark.parametrize(("version", "fields"), [(4, {}), (5, {"properties": lasting(1000)})], ids=["v311", "v5"])
@pytest.mark.parametrize(("waited", "there"), [(49, True), (50, False)])
def test_no_session_outlives_the_longest_allowed(
    start: Start, version: int, fields: dict[str, Any], waited: int, there: bool
) -> None:
    broker = start(limits__session_expiry_max=50)
    broker.join("client", version, clean=False, **fields).cut()
    broker.pass_time(waited)
    back = broker.join("client", version, clean=False, **fields)
    assert back.connack is not None
    assert back.connack.session_present is there


@pytest.mark.parametrize(("at_end", "lives"), [(20, 20), (5, 5), (None, 10), (1000, 50)])
@pytest.mark.parametrize(("before_its_end_ms", "there"), [(1, True), (0, False)])
def test_disconnect_may_change_how_long_the_session_lives(
    start: Start, at_end: int | None, lives: int, before_its_end_ms: int, there: bool
) -> None:
    broker = start(limits__session_expiry_max=50)
    client = broker.join("client", properties=lasting(10))
    client.disconnect(0, None if at_end is None else lasting(at_end))
    leap(broker, lives - before_its_end_ms / 1000)
    back = broker.join("client", clean=False)
    assert back.connack is not None
    assert back.connack.session_present is there


def test_disconnect_may_end_the_session_at_once(broker: CoreBroker) -> None:
    broker.join("client", keep=True).disconnect(0, lasting(0))
    back = broker.join("client", keep=True)
    assert back.connack is not None
    assert not back.connack.session_present


def test_disconnect_may_not_lengthen_a_session_that_was_to_end(broker: CoreBroker) -> None:
    client = broker.join("client")
    client.send(wire.disconnect(0, lasting(5)))
    client.expect_disconnect(0x82)


def test_what_was_retained_outlives_its_session(broker: CoreBroker) -> None:
    client = broker.join("client")
    client.publish("a", b"1", retain=True)
    client.disconnect()
    assert broker.world.stored(["a"]) == {"a": b"1"}


# By an operator's wish


@pytest.mark.parametrize(("version", "said"), [(4, []), (5, [0x98])])
def test_a_client_can_be_sent_away(broker: CoreBroker, version: int, said: list[int]) -> None:
    client = broker.join("client", version)
    assert broker.world.kick("client", 0x98)
    assert client.closed
    assert [packet.reason for packet in client.arrived() if isinstance(packet, wire.Disconnect)] == said
    assert not broker.world.kick("client", 0x98), "it is not there any more"


def test_only_the_session_of_an_absent_client_can_be_ended(broker: CoreBroker) -> None:
    client = broker.join("client", keep=True)
    assert not broker.world.end_session("client")
    client.disconnect()
    assert broker.world.end_session("client")
    back = broker.join("client", keep=True)
    assert back.connack is not None
    assert not back.connack.session_present


@pytest.mark.parametrize(("version", "said"), [(4, []), (5, [0x8B])])
def test_a_broker_that_stops_says_so_to_everyone(broker: CoreBroker, version: int, said: list[int]) -> None:
    clients = [broker.join(f"client{number}", version) for number in range(3)]
    broker.world.shut_down()
    for client in clients:
        assert client.closed
        assert [packet.reason for packet in client.arrived() if isinstance(packet, wire.Disconnect)] == said
