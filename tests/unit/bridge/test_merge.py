"""Which side is right about a retained topic after the link was down."""

import pytest

from holdfast.bridge.merge import LOSES, SAME, STAYS, TAKEN, merge

OLD, NEW, OTHER = b"old", b"new", b"other"


@pytest.mark.parametrize(
    ("here", "there", "both", "one_way", "both_ways"),
    [
        (OLD, OLD, None, SAME, SAME),
        (None, None, OLD, SAME, SAME),
        (NEW, OLD, OLD, STAYS, STAYS),
        (None, OLD, OLD, STAYS, STAYS),
        (OLD, NEW, OLD, TAKEN, TAKEN),
        (OLD, None, OLD, TAKEN, TAKEN),
        (None, NEW, None, TAKEN, TAKEN),
        (NEW, OTHER, OLD, TAKEN, LOSES),
        (NEW, OTHER, None, TAKEN, LOSES),
        (NEW, None, OLD, TAKEN, STAYS),
        (None, NEW, OLD, TAKEN, TAKEN),
    ],
)
def test_what_both_had_last_decides(
    here: bytes | None, there: bytes | None, both: bytes | None, one_way: str, both_ways: str
) -> None:
    assert merge(here, there, both, False, "newest", None) == one_way
    assert merge(here, there, both, True, "newest", None) == both_ways


@pytest.mark.parametrize(
    ("conflict", "newer_there", "expected"),
    [
        ("newest", True, TAKEN),
        ("newest", False, LOSES),
        ("newest", None, LOSES),
        ("local", True, LOSES),
        ("remote", False, TAKEN),
        ("remote", None, TAKEN),
    ],
)
def test_a_conflict_is_settled_as_told(conflict: str, newer_there: bool | None, expected: str) -> None:
    assert merge(NEW, OTHER, OLD, True, conflict, newer_there) == expected
