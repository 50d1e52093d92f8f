"""What is remembered of those who were denied."""

from holdfast.identity.denials import KEPT_MOST, TEXT_MOST, Denials

FAILED = "login failed"


def test_who_fails_again_is_one_entry_with_a_count() -> None:
    denials = Denials()
    for port in range(3):
        denials.add(1000 + port, FAILED, "c", "bob", f"192.0.2.1:{port}", {"reason": "not authorized"})
    denials.add(2000, FAILED, "c", "bob", "192.0.2.2:1", {"reason": "not authorized"})
    assert [(one.host, one.count, one.first_ms, one.last_ms) for one in denials.newest_first()] == [
        ("192.0.2.2", 1, 2000, 2000),
        ("192.0.2.1", 3, 1000, 1002),
    ]
    assert denials.total == 4


def test_the_one_that_was_seen_last_is_first() -> None:
    denials = Denials()
    for at_ms, topic in enumerate((b"a", b"b", b"a")):
        denials.add(at_ms, "publish denied", "c", "", "[2001:db8::1]:5", {"topic": topic})
    assert [(one.topic, one.host) for one in denials.newest_first()] == [("a", "2001:db8::1"), ("b", "2001:db8::1")]


def test_what_is_remembered_has_a_bound() -> None:
    denials = Denials()
    for number in range(KEPT_MOST + 5):
        denials.add(number, FAILED, f"{number}" + "c" * 300, "u" * 1000, "h", {"filter": b"\xff" * 1000})
    kept = denials.newest_first()
    assert (len(kept), denials.total) == (KEPT_MOST, KEPT_MOST + 5)
    assert all(len(text) <= TEXT_MOST for text in (kept[0].client_id, kept[0].username, kept[0].topic))
