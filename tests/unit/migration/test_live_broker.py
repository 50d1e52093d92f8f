"""How a live broker is asked: which filters make up a pass, and which ones look beside what is known."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.topics import matches
from holdfast.migration.live_broker import around, by_level, deepest

levels = st.sampled_from([b"a", b"b", b"", b"c"])
topics = st.lists(levels, min_size=1, max_size=5).map(b"/".join).filter(bool)


def test_levels_are_asked_for_one_by_one_and_what_is_below_them_together() -> None:
    assert by_level(b"#", 3) == [b"+", b"+/+", b"+/+/+", b"+/+/+/#"]
    assert by_level(b"#", 0) == [b"#"]
    assert by_level(b"home/#", 3) == [b"home", b"home/+", b"home/+/+", b"home/+/+/#"]
    assert by_level(b"home/kitchen", 2) == [b"home/kitchen"]


@given(topic=topics, known=st.integers(0, 4), top=st.sampled_from([b"#", b"a/#", b"a/b/#"]))
def test_level_by_level_matches_what_the_filter_does(topic: bytes, known: int, top: bytes) -> None:
    parts = topic.split(b"/")
    whole = matches(top.split(b"/"), parts)
    assert any(matches(one.split(b"/"), parts) for one in by_level(top, known)) == whole


def test_each_level_of_a_topic_is_left_open_in_turn() -> None:
    assert around([b"site/1/temp"]) == {b"+/1/temp", b"site/+/temp", b"site/1/+"}


def test_the_deepest_topic_counts() -> None:
    assert deepest([b"a", b"a/b/c", b"x/y"]) == 3
    assert deepest([]) == 0
