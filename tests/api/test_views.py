"""The read views of the retained index, against ten lines that do the same slowly."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.index import Index
from holdfast.broker.message import Message, Publisher, topic_field
from holdfast.broker.views import Query, branch, child_count, child_names, collect, count_below

NOBODY = Publisher("", "", "5.0")
TOPICS = st.lists(st.sampled_from(["a", "b", "", "$x", "c"]), min_size=1, max_size=5).map("/".join).filter(bool)


def stored(topics: set[str], removed: set[str]) -> Index:
    index = Index()
    for offset, topic in enumerate(sorted(topics | removed), 1):
        message = Message(topic_field(topic.encode()), b"payload", 0, True, b"", NOBODY, offset, 0, 0, False)
        index.put(message, topic.encode().split(b"/"))
    for topic in removed:
        index.remove(topic.encode(), 10**6)
    return index


def names_below(topics: set[str], prefix: str | None) -> set[str]:
    if prefix is None:
        return {topic.split("/")[0] for topic in topics}
    return {topic[len(prefix) + 1 :].split("/")[0] for topic in topics if topic.startswith(f"{prefix}/")}


@given(topics=st.sets(TOPICS, max_size=25), removed=st.sets(TOPICS, max_size=10), prefix=st.none() | TOPICS)
def test_a_level_of_the_tree_is_what_the_topics_say(topics: set[str], removed: set[str], prefix: str | None) -> None:
    topics -= removed
    index = stored(topics, removed)
    levels = [] if prefix is None else prefix.encode().split(b"/")
    names = child_names(index, levels)
    assert sorted(name.decode() for name in names) == sorted(names_below(topics, prefix))
    assert child_count(index, levels) == len(names)
    for name in names:
        one = branch(index, levels, name)
        assert one is not None
        path = name.decode() if prefix is None else f"{prefix}/{name.decode()}"
        below = {topic for topic in topics if topic == path or topic.startswith(f"{path}/")}
        count_below(index, levels, one, 10**6)
        assert one.count == len(below)
        assert one.size == sum(len(topic.encode()) + 7 for topic in below)
        assert one.is_leaf == (below == {path})
        assert (one.message is not None) == (path in topics)
    assert branch(index, levels, b"not there") is None


@given(topics=st.sets(TOPICS, max_size=25), visits=st.integers(1, 5), most=st.integers(1, 5))
def test_portions_of_a_walk_add_up_to_all_of_it(topics: set[str], visits: int, most: int) -> None:
    index = stored(topics, set())
    cursor = index.everything()
    found: list[str] = []
    while not cursor.ended:
        portion = collect(cursor, Query(), 0, most, visits)
        assert len(portion) <= most
        found += [message.topic.decode() for message in portion]
    assert sorted(found) == sorted(topics)


def test_counting_stops_when_its_visits_are_used_up() -> None:
    index = stored({f"a/{n}" for n in range(100)}, set())
    one = branch(index, [], b"a")
    assert one is not None
    assert count_below(index, [], one, 50) == 0
    assert one.count == -1
