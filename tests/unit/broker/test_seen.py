"""Who came, left, was refused and denied: noted by the core for operators, and counted."""

from collections.abc import Callable
from typing import Any

from core_broker import CoreBroker
from wire import P

Start = Callable[..., CoreBroker]

ONLY_OWN: list[dict[str, Any]] = [{"permission": "allow", "action": "all", "filter": "own/#"}]


def notes(broker: CoreBroker) -> list[tuple[str, str, str, dict[str, object]]]:
    """What there is to say since the last time."""
    effects = broker.world.broker.effects
    found = [(seen.event, seen.client_id, seen.username, seen.detail) for seen in effects.seen]
    effects.seen.clear()
    return found


def test_coming_and_leaving_is_noted_with_the_reason(broker: CoreBroker) -> None:
    client = broker.join("c", username="ann")
    assert notes(broker) == [("client connected", "c", "ann", {"protocol": "5.0"})]
    client.disconnect()
    assert notes(broker) == [("client disconnected", "c", "ann", {"reason": "client disconnected"})]
    broker.join("c").cut()
    assert notes(broker)[-1][3] == {"reason": "connection lost"}
    counters = broker.world.broker.counters
    assert (counters.connects_accepted, counters.disconnects) == (2, 2)


def test_a_take_over_is_noted_as_one_who_left_and_one_who_came(broker: CoreBroker) -> None:
    broker.join("c")
    broker.join("c")
    assert [(event, detail.get("reason")) for event, _, _, detail in notes(broker)] == [
        ("client connected", None),
        ("client disconnected", "session taken over by another connection"),
        ("client connected", None),
    ]


def test_a_refused_connect_is_noted_with_the_reason(start: Start) -> None:
    broker = start(bans__users="mallory", limits__max_client_id_length=23)
    broker.client(5).connect("c", username="mallory", check=False)
    broker.client(5).connect("c" * 30, username="ann", check=False)
    assert notes(broker) == [
        ("login failed", "c", "mallory", {"reason": "banned"}),
        ("connect refused", "c" * 30, "", {"reason": "client identifier not valid"}),
    ]
    counters = broker.world.broker.counters
    assert (counters.logins_failed, counters.connects_refused) == (1, 2)


def test_denied_publishes_and_subscriptions_are_noted(start: Start) -> None:
    broker = start(access=ONLY_OWN)
    client = broker.join("c", username="ann")
    notes(broker)
    client.publish("other/x", b"1", qos=1, retain=True, check=False)
    client.publish("own/x", b"1", qos=1)
    client.subscribe("other/#", check=False)
    client.subscribe("own/#")
    assert notes(broker) == [
        ("publish denied", "c", "ann", {"topic": b"other/x", "qos": 1, "retain": True}),
        ("subscribe denied", "c", "ann", {"filter": b"other/#", "qos": 0}),
    ]
    counters = broker.world.broker.counters
    assert (counters.publishes_denied, counters.subscribes_denied) == (1, 1)


def test_a_flood_of_denials_is_counted_and_not_kept(start: Start) -> None:
    broker = start(access=ONLY_OWN)
    client = broker.join("c")
    notes(broker)
    for _ in range(500):
        client.send_publish("other/x", b"1")
    effects = broker.world.broker.effects
    assert len(effects.seen) + effects.unseen == 500
    assert len(effects.seen) <= 64


def test_a_session_that_expires_is_no_connection_that_ends(broker: CoreBroker) -> None:
    broker.join("c", clean=False, properties=[(P.SESSION_EXPIRY, 5)]).disconnect()
    notes(broker)
    broker.pass_time(10)
    assert notes(broker) == []
