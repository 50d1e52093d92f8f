"""`holdfast retained rm --publisher NAME`: what a user has left behind goes, wherever it lies, and nothing else."""

from collections.abc import Callable

import pytest

from command_line import Done, holdfast, holdfast_process
from guarded import USERS, Guarded
from wire import Publish

pytest.importorskip("fastapi", reason="the API comes with holdfast-mqtt[ui], which is not installed")

LISTEN = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")
RULES = "".join(f"user {user}\ntopic readwrite #\ntopic readwrite $left/#\n" for user in USERS)
WITHOUT_GUEST = "".join(f"user {user}\ntopic readwrite #\n" for user in USERS if user != "guest")
MINE = {"a/guest", "b/deep/guest", "$left/guest"}


def retained(site: Guarded, *words: str, user: str = "owner", data: bool = False) -> Done:
    if data:
        return holdfast_process("retained", *words, "--data", str(site.folder / "data"))
    where = ("--url", f"http://127.0.0.1:{site.broker.ports['http']}", "--key", f"{user}:{USERS[user]}")
    return holdfast("retained", *words, *where)


def left_behind(guarded: Callable[..., Guarded], storage: str = "disc") -> Guarded:
    """Guest, and a client of Bob's that calls itself guest, have each set messages."""
    extra = f'[api]\nadmins = ["owner"]\n[retainer]\nstorage_type = "{storage}"\n'
    site = guarded(RULES, extra, listen=LISTEN)
    guest, bob = site.enter("guest", "anything"), site.enter("bob", "guest")
    for topic in sorted(MINE):
        guest.publish(topic, b"left", qos=1, retain=True)
    for topic in ("a/bob", "$left/bob"):
        bob.publish(topic, b"kept", qos=1, retain=True)
    return site


def topics_in(site: Guarded) -> set[str]:
    reader = site.enter("bob")
    reader.subscribe("#", "$left/#")
    return {packet.topic for packet in reader.barrier() if isinstance(packet, Publish)}


@pytest.mark.parametrize("storage", ["ram", "disc", "disc_only"])
def test_what_a_user_published_is_removed_and_nothing_of_anybody_else(
    guarded: Callable[..., Guarded], storage: str
) -> None:
    site = left_behind(guarded, storage)
    listed = retained(site, "ls", "--publisher", "guest")
    assert {line.split()[0] for line in listed.stdout.splitlines()[1:]} == MINE
    shown = retained(site, "rm", "--publisher", "guest")
    assert "would delete 3 messages" in shown.stdout, shown.stderr
    assert topics_in(site) == {*MINE, "a/bob", "$left/bob"}
    done = retained(site, "rm", "--publisher", "guest", "--yes")
    assert "deleted 3 messages" in done.stdout, done.stderr
    assert topics_in(site) == {"a/bob", "$left/bob"}
    assert retained(site, "rm", "--publisher", "guest", "--yes").returncode == 1


def test_it_is_found_after_its_publisher_has_lost_the_right(guarded: Callable[..., Guarded]) -> None:
    """Nobody is sent it any more, but it is still there, and would be back with the right."""
    site = left_behind(guarded)
    site.change(WITHOUT_GUEST)
    assert "deleted 3 messages" in retained(site, "rm", "--publisher", "guest", "--yes").stdout
    site.change(RULES)
    assert topics_in(site) == {"a/bob", "$left/bob"}


def test_a_filter_narrows_what_is_removed(guarded: Callable[..., Guarded]) -> None:
    site = left_behind(guarded)
    assert "deleted 1 message;" in retained(site, "rm", "a/#", "--publisher", "guest", "--yes").stdout
    assert topics_in(site) == {*MINE, "a/bob", "$left/bob"} - {"a/guest"}


def test_a_message_that_somebody_else_has_replaced_is_theirs(guarded: Callable[..., Guarded]) -> None:
    site = left_behind(guarded)
    site.enter("ann").publish("a/guest", b"mine now", qos=1, retain=True)
    assert "deleted 2 messages" in retained(site, "rm", "--publisher", "guest", "--yes").stdout
    assert topics_in(site) == {"a/guest", "a/bob", "$left/bob"}


def test_nobody_removes_by_it_what_they_may_not_write(guarded: Callable[..., Guarded]) -> None:
    site = left_behind(guarded)
    site.change(RULES.replace("user guest\ntopic readwrite #", "user guest\ntopic read #\ntopic write a/#"))
    done = retained(site, "rm", "--publisher", "guest", "--yes", user="guest")
    assert "deleted 2 messages" in done.stdout, done.stderr
    site.change(RULES)
    assert topics_in(site) == {"b/deep/guest", "a/bob", "$left/bob"}


def test_what_others_published_is_searched_for_by_administrators_alone(guarded: Callable[..., Guarded]) -> None:
    site = left_behind(guarded)
    done = retained(site, "rm", "--publisher", "guest", "--yes", user="ann")
    assert (done.returncode, done.stdout) == (1, "")
    assert "may search by publisher for username='ann' only" in done.stderr
    assert topics_in(site) == {*MINE, "a/bob", "$left/bob"}


def test_it_works_on_the_folder_of_a_broker_that_is_down(guarded: Callable[..., Guarded]) -> None:
    site = left_behind(guarded)
    site.stop()
    shown = retained(site, "rm", "--publisher", "guest", data=True)
    assert "would delete 3 messages" in shown.stdout, shown.stderr
    done = retained(site, "rm", "--publisher", "guest", "--yes", data=True)
    assert "deleted 3 messages" in done.stdout, done.stderr
    again = Guarded(site.folder, RULES, listen=LISTEN)
    assert topics_in(again) == {"a/bob", "$left/bob"}
    again.stop()


@pytest.mark.parametrize("words", [("--publisher", ""), ("#", "--client-id", ""), ("#", "--contains", ""), ()])
def test_a_condition_without_a_value_is_no_condition_for_everything(
    guarded: Callable[..., Guarded], words: tuple[str, ...]
) -> None:
    """As in a script whose variable is not set."""
    site = left_behind(guarded)
    done = retained(site, "rm", *words, "--yes")
    assert done.returncode == 2, done.stdout
    assert "expected" in done.stderr
    assert topics_in(site) == {*MINE, "a/bob", "$left/bob"}
