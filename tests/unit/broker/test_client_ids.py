"""Whose client id it is: bound to the user's name, and so many sessions for each user."""

from collections.abc import Callable
from typing import Any

import pytest

from core_broker import CoreBroker
from holdfast.broker.lifecycle import is_bound
from wire import P

Start = Callable[..., CoreBroker]

KEPT = [(P.SESSION_EXPIRY, 600)]


def code(broker: CoreBroker, client_id: str, username: str | None, version: int = 5, **fields: Any) -> int:
    return broker.client(version).connect(client_id, username=username, check=False, **fields).code


@pytest.mark.parametrize(
    ("pattern", "username", "client_id", "fits"),
    [
        ("%u-*", "alice", "alice-1", True),
        ("%u-*", "alice", "alice-", True),
        ("%u-*", "alice", "alice", False),
        ("%u-*", "alice", "plc-7", False),
        ("%u-*", "", "-1", False),
        ("%u-*", "*", "alice-1", False),
        ("%u-*", "*", "*-1", True),
        ("%u", "alice", "alice", True),
        ("%u", "alice", "alice2", False),
        ("*/%u", "alice", "site/alice", True),
        ("*/%u", "alice", "site/bob", False),
        ("a*%u*b", "x", "a-x-b", True),
        ("a*%u*b", "x", "axb", True),
        ("a*%u*b", "x", "a-y-b", False),
        ("%u*%u", "aa", "aaa", False),
        ("*%u", "%u", "x%u", True),
    ],
)
def test_which_ids_a_user_may_have(pattern: str, username: str, client_id: str, fits: bool) -> None:
    assert is_bound(pattern, username, client_id) is fits


def test_nobody_takes_an_id_that_is_bound_to_another_user(start: Start) -> None:
    broker = start(auth__client_id="%u-*")
    assert code(broker, "alice-plc7", "mallory", clean=False, properties=KEPT) == 0x85
    assert code(broker, "alice-plc7", None) == 0x85
    assert code(broker, "alice-plc7", "mallory", 4) == 2
    assert code(broker, "alice-plc7", "alice") == 0
    assert code(broker, "", "mallory") == 0, "an id that the broker gives is nobody else's"
    assert code(broker, "", None) == 0


def test_a_user_cannot_have_sessions_without_end(start: Start) -> None:
    broker = start(limits__max_sessions_per_user=2)
    for number in range(2):
        broker.join(f"m{number}", username="mallory", keep=True).cut()
    assert code(broker, "m2", "mallory", clean=False, properties=KEPT) == 0x97
    assert code(broker, "m3", "mallory", 4, clean=False) == 3
    assert code(broker, "m4", "mallory") == 0, "a session that ends with its connection is not counted"
    assert code(broker, "m0", "mallory", clean=False, properties=KEPT) == 0, "nor one twice"
    assert code(broker, "a0", "alice", clean=False, properties=KEPT) == 0
    broker.client(5).connect("m1", username="mallory")  # takes it over and ends it
    assert code(broker, "m2", "mallory", clean=False, properties=KEPT) == 0


def test_sessions_end_by_themselves_with_the_defaults(broker: CoreBroker) -> None:
    """A client that asks for ever is told what it gets; one that cannot be told gets no more."""
    days = 30 * 86400
    answer = broker.client(5).connect("five", clean=False, properties=[(P.SESSION_EXPIRY, 0xFFFFFFFF)])
    assert answer.prop(P.SESSION_EXPIRY) == days
    broker.client(4).connect("four", clean=False)
    assert [broker.world.broker.sessions[name].expiry_s for name in ("five", "four")] == [days, days]
