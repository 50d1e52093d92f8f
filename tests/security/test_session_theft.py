"""A session belongs to the user that made it: a client id is a name, not a key."""

from collections.abc import Callable

import pytest

import wire
from guarded import Guarded, login
from v5_client import KEEP
from wire import ConnAck, Publish

Start = Callable[..., Guarded]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("clean", [False, True], ids=["resume", "clean"])
def test_another_user_cannot_take_over_a_connected_session(guarded: Start, version: int, clean: bool) -> None:
    site = guarded()
    victim = site.enter("ann", "meter", version=version, clean=False)
    victim.subscribe("a", qos=1)
    thief = site.open(version)
    thief.send(wire.connect("meter", version=version, clean=clean, **login("bob")))
    assert thief.expect(ConnAck).code == (2 if version == 4 else 0x85)
    thief.expect_closed()
    site.enter("owner").publish("a", b"still mine", qos=1)
    victim.expect(Publish, payload=b"still mine")


def test_another_user_cannot_read_the_queue_of_an_absent_session(guarded: Start) -> None:
    site = guarded()
    victim = site.enter("ann", "meter", clean=False, properties=KEEP)
    victim.subscribe("a", qos=1)
    victim.disconnect()
    site.enter("owner").publish("a", b"secret", qos=1)
    thief = site.open(5)
    thief.send(wire.connect("meter", version=5, clean=False, properties=KEEP, **login("bob")))
    assert thief.expect(ConnAck).code == 0x85
    thief.expect_closed()
    back = site.enter("ann", "meter", clean=False, properties=KEEP)
    assert back.connack is not None
    assert back.connack.session_present
    back.expect(Publish, payload=b"secret")


def test_another_user_cannot_read_it_after_a_restart_either(guarded: Start) -> None:
    site = guarded()
    victim = site.enter("ann", "meter", clean=False, properties=[(wire.P.SESSION_EXPIRY, 3600)])
    victim.subscribe("a", qos=1)
    victim.disconnect()
    site.enter("owner").publish("a", b"secret", qos=1)
    site.stop()
    again = Guarded(site.folder, None)
    thief = again.open(5)
    thief.send(wire.connect("meter", version=5, clean=False, properties=KEEP, **login("bob")))
    assert thief.expect(ConnAck).code == 0x85
    back = again.enter("ann", "meter", clean=False, properties=KEEP)
    back.expect(Publish, payload=b"secret")
    again.stop()


def test_a_failed_login_does_not_disturb_the_session_of_that_name(guarded: Start) -> None:
    site = guarded()
    victim = site.enter("ann", "meter", will=wire.Will("w", b"died"))
    watcher = site.enter("owner")
    watcher.subscribe("w")
    thief = site.open(5)
    thief.send(wire.connect("meter", version=5, username="ann", password=b"wrong"))
    assert thief.expect(ConnAck).code == 0x86
    victim.ping()
    watcher.expect_no_message()


def test_a_name_is_not_taken_unproven_where_anonymous_clients_are_allowed_too(guarded: Start) -> None:
    site = guarded(None, "allow_anonymous = true\n")
    site.enter("ann", "meter", clean=False, properties=KEEP)
    for fields in ({"username": "ann", "password": b"wrong"}, {"username": "ann"}, {"username": "nobody"}):
        thief = site.open(5)
        thief.send(wire.connect("meter", version=5, clean=False, **fields))
        assert thief.expect(ConnAck).code == 0x86
        thief.expect_closed()
    stranger = site.open(5)
    assert stranger.connect("stranger").code == 0
    stranger.cut()
    nobody = site.open(5)
    nobody.send(wire.connect("meter", version=5, clean=False))
    assert nobody.expect(ConnAck).code == 0x85
