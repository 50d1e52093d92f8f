"""The subscription tree and the receivers of a topic, against a matcher simple enough to be right by reading it."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.core import Broker
from holdfast.broker.ports import Peer
from holdfast.broker.session import Session, Subscription
from holdfast.broker.settings import Settings
from holdfast.broker.subscription import SubscriptionTree
from holdfast.broker.topics import covers, is_valid_filter, matches

LEVELS = st.sampled_from(["", "a", "b", "c", "$x", "é"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=5).map("/".join).filter(lambda topic: topic != "")
FILTERS = (
    st.tuples(st.lists(st.one_of(LEVELS, st.just("+")), min_size=0, max_size=4), st.sampled_from(["", "#", "a", "+"]))
    .map(lambda parts: "/".join([*parts[0], parts[1]]))
    .filter(lambda topic_filter: topic_filter != "")
)


def naive(topic_filter: str, topic: str) -> bool:
    """The rules of section 4.7, word for word."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    if wanted[-1] == "#":
        wanted, levels = wanted[:-1], levels[: len(wanted) - 1]
    return len(wanted) == len(levels) and all(w in ("+", level) for w, level in zip(wanted, levels, strict=True))


@given(FILTERS, TOPICS)
def test_one_filter_matches_what_the_standard_says(topic_filter: str, topic: str) -> None:
    assert matches(topic_filter.encode().split(b"/"), topic.encode().split(b"/")) == naive(topic_filter, topic)


@given(FILTERS, FILTERS, st.lists(TOPICS, min_size=1, max_size=20))
def test_a_filter_that_covers_another_matches_all_the_other_does(outer: str, inner: str, topics: list[str]) -> None:
    if covers(outer.encode().split(b"/"), inner.encode().split(b"/")):
        assert all(naive(outer, topic) for topic in topics if naive(inner, topic))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), FILTERS), max_size=40), st.lists(TOPICS, max_size=12))
def test_tree_finds_exactly_the_matching_subscriptions(changes: list[tuple[bool, int, str]], topics: list[str]) -> None:
    tree = SubscriptionTree()
    sessions = [Session(f"s{number}", "", 0) for number in range(5)]
    there: dict[tuple[int, str], Subscription] = {}
    for adds, number, topic_filter in changes:
        assert is_valid_filter(topic_filter.encode(), 128)
        old = there.pop((number, topic_filter), None)
        if adds:
            text = topic_filter.encode()
            new = Subscription(sessions[number], text, text.split(b"/"), b"", 0, False, False, 0)
            assert tree.put(new) is old
            there[number, topic_filter] = new
        elif old is not None:
            tree.remove(old)
    assert tree.count == len(there)
    for topic in topics:
        found = tree.match(topic.encode().split(b"/")).subscriptions
        expected = [subscription for (_, f), subscription in there.items() if naive(f, topic)]
        assert sorted(map(id, found)) == sorted(map(id, expected))
    for subscription in there.values():
        tree.remove(subscription)
    assert not tree.root.children, "an empty tree keeps nodes"


class Silent(Peer):
    def write(self, data: bytes) -> None: ...

    def close(self, reason: str) -> None: ...


@given(
    st.lists(
        st.tuples(st.integers(0, 3), FILTERS, st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 3)),
        max_size=20,
    ),
    TOPICS,
)
def test_overlapping_subscriptions_are_one_receiver_with_all_of_them(
    made: list[tuple[int, str, int, bool, bool, int]], topic: str
) -> None:
    broker = Broker(Settings(), "")
    sessions = [Session(f"s{number}", "", 0) for number in range(4)]
    there: dict[tuple[int, str], Subscription] = {}
    for number, topic_filter, qos, no_local, as_published, identifier in made:
        text = topic_filter.encode()
        new = Subscription(sessions[number], text, text.split(b"/"), b"", qos, no_local, as_published, identifier)
        assert broker.subscriptions.put(new) is there.get((number, topic_filter))
        there[number, topic_filter] = new
    field = len(topic.encode()).to_bytes(2, "big") + topic.encode()
    receivers = {receiver.session: receiver for receiver in broker.find_route(field).receivers}
    for number, session in enumerate(sessions):
        matching = [s for (n, f), s in there.items() if n == number and naive(f, topic)]
        if not matching:
            assert session not in receivers
            continue
        receiver = receivers[session]
        assert receiver.qos == max(s.qos for s in matching)
        assert receiver.retain_as_published == any(s.retain_as_published for s in matching)
        assert sorted(receiver.identifiers or []) == sorted(s.identifier for s in matching if s.identifier)
        remote = [s for s in matching if not s.no_local]
        if len(remote) < len(matching):
            assert receiver.no_local
            assert (receiver.own is None) == (not remote)
            if receiver.own is not None:
                assert receiver.own.qos == max(s.qos for s in remote)
