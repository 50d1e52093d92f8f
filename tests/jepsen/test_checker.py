"""The checker finds each kind of wrong in a history that has nothing else wrong, and lets pass what only looks odd."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jepsen.checker import check
from jepsen.history import (
    Attached,
    Ending,
    Final,
    History,
    Malformed,
    Outcome,
    Read,
    Received,
    Recorded,
    Sent,
    Served,
    SessionSeen,
    Sight,
    Stuck,
    Subscription,
    WillConnection,
    Write,
    load,
)
from jepsen.register import Undecided, explain

OK, REFUSED, UNKNOWN = Outcome.OK, Outcome.REFUSED, Outcome.UNKNOWN


def kinds(history: History) -> list[str]:
    return [violation.kind for violation in check(history)]


def write(value: str | None, began: float, ended: float | None, outcome: Outcome = OK) -> Write:
    return Write("t", value, began, ended, outcome)


def read(value: str | None, began: float, ended: float) -> Read:
    return Read("t", value, began, ended)


def explained(*operations: Write | Read, sights: list[Sight] | None = None) -> bool:
    writes = [operation for operation in operations if isinstance(operation, Write)]
    reads = [operation for operation in operations if isinstance(operation, Read)]
    return explain(writes, reads, sights or []) is None


class TestOneTopic:
    def test_a_read_finds_the_last_write(self) -> None:
        assert explained(write("a", 0, 1), read("a", 2, 3), write("b", 4, 5), read("b", 6, 7))

    def test_an_acknowledged_write_that_is_gone_is_found(self) -> None:
        assert not explained(write("a", 0, 1), read(None, 2, 3))

    def test_an_older_value_after_an_acknowledged_newer_one_is_found(self) -> None:
        assert not explained(write("a", 0, 1), write("b", 2, 3), read("a", 4, 5))

    def test_a_deleted_value_that_comes_back_is_found(self) -> None:
        assert not explained(write("a", 0, 1), write(None, 2, 3), read("a", 4, 5))

    def test_two_reads_that_see_two_writes_in_both_orders_are_found(self) -> None:
        both = write("a", 0, 10), write("b", 0, 10)
        assert explained(*both, read("a", 1, 2), read("b", 3, 4))
        assert not explained(*both, read("a", 1, 2), read("b", 3, 4), read("a", 5, 6))

    def test_a_value_that_is_read_before_it_was_sent_is_found(self) -> None:
        assert not explained(read("a", 0, 1), write("a", 2, 3))

    def test_a_read_during_a_write_finds_the_one_or_the_other(self) -> None:
        assert explained(write("a", 0, 1), write("b", 2, 5), read("a", 3, 4))
        assert explained(write("a", 0, 1), write("b", 2, 5), read("b", 3, 4))
        assert not explained(write("a", 0, 1), write("b", 2, 5), read("b", 3, 3.5), read("a", 4, 4.5))

    def test_a_write_of_unknown_outcome_may_happen_late_or_never(self) -> None:
        lost = write("a", 0, None, UNKNOWN)
        assert explained(lost, read(None, 1, 2), read(None, 50, 51))
        assert explained(lost, read(None, 1, 2), write("b", 3, 4), read("b", 5, 6), read("a", 50, 51))
        assert not explained(lost, read("a", 1, 2), write("b", 3, 4), read("a", 5, 6))

    def test_a_delete_of_unknown_outcome_happens_once_or_never(self) -> None:
        story = (write("a", 0, 1), write(None, 2, None, UNKNOWN), read("a", 3, 4), read(None, 50, 51))
        assert explained(*story)
        assert explained(*story, write("b", 60, 61), read("b", 62, 63))
        assert not explained(*story, write("b", 60, 61), read(None, 62, 63))
        assert explained(*story, write("b", 60, 61), write(None, 5, None, UNKNOWN), read(None, 62, 63))

    def test_a_delete_of_unknown_outcome_does_not_explain_what_was_seen_before_it_was_sent(self) -> None:
        assert not explained(write("a", 0, 1), read(None, 2, 3), write(None, 4, None, UNKNOWN))

    def test_a_refused_write_explains_nothing(self) -> None:
        assert not explained(write("a", 0, 1, REFUSED), read("a", 2, 3))

    def test_what_a_subscriber_saw_live_has_happened(self) -> None:
        late = write("b", 2, 90)
        sight = Sight("s", "t", "b", at=5)
        assert explained(write("a", 0, 1), late, read("a", 6, 7))
        assert not explained(write("a", 0, 1), late, read("a", 6, 7), sights=[sight])

    def test_the_search_is_given_up_rather_than_passed(self) -> None:
        writes = [write(f"v{n}", 0, 100) for n in range(40)]
        reads = [read(f"v{n}", 10, 90) for n in range(40)]
        with pytest.raises(Undecided):
            explain(writes, reads, most_steps=10_000)

    def test_thousands_of_operations_are_no_trouble(self) -> None:
        writes, reads = simulated(Random(1), clients=8, operations=5000)
        assert explain(writes, reads) is None


def simulated(random: Random, clients: int, operations: int) -> tuple[list[Write], list[Read]]:
    """What clients see of a register that is right: each operation happens at a moment between its beginning and end.

    Some of the answers are lost, and of those operations some happen much later, or never.
    """
    moments: list[tuple[float, Write | Read]] = []
    free_at = [random.random() for _ in range(clients)]
    for number in range(operations):
        client = random.randrange(clients)
        began = free_at[client]
        moment = began + random.random()
        ended = moment + random.random()
        free_at[client] = ended + random.random() * 0.1
        if random.random() < 0.5:
            moments.append((moment, read(None, began, ended)))
            continue
        value = None if random.random() < 0.3 else f"v{number}"
        if random.random() < 0.8:
            moments.append((moment, write(value, began, ended)))
            continue
        late = random.choice([moment, moment + random.random() * 20, float("inf")])
        moments.append((late, write(value, began, None, UNKNOWN)))
    value = None
    writes, reads = [], []
    for moment, operation in sorted(moments, key=lambda pair: pair[0]):
        if isinstance(operation, Read):
            reads.append(replace(operation, value=value))
        else:
            writes.append(operation)
            if moment < float("inf"):
                value = operation.value
    return writes, reads


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 60))
def test_what_a_right_register_shows_is_always_explained(seed: int, clients: int, operations: int) -> None:
    writes, reads = simulated(Random(seed), clients, operations)
    assert explain(writes, reads) is None


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(4, 60), st.data())
def test_a_read_of_what_was_surely_replaced_is_never_explained(
    seed: int, clients: int, operations: int, data: st.DataObject
) -> None:
    writes, reads = simulated(Random(seed), clients, operations)
    wrong = [changed for at in range(len(reads)) for changed in stale(writes, reads, at)]
    if wrong:
        assert explain(writes, data.draw(st.sampled_from(wrong))) is not None


def stale(writes: list[Write], reads: list[Read], at: int) -> list[list[Read]]:
    """These reads, with one of them finding a value that another acknowledged write had replaced before it began."""
    found = []
    for old in writes:
        if old.value is None or old.ended is None:
            continue
        newer = [w for w in writes if w.outcome is OK and w.began > old.ended and (w.ended or 0.0) < reads[at].began]
        if newer:
            found.append([*reads[:at], replace(reads[at], value=old.value), *reads[at + 1 :]])
    return found


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 7))
def test_the_search_agrees_with_trying_all_orders(seed: int, clients: int, operations: int) -> None:
    random = Random(seed)
    writes, reads = simulated(random, clients, operations)
    if reads:
        at = random.randrange(len(reads))
        reads[at] = replace(reads[at], value=random.choice([None, *(w.value for w in writes)]))
    assert (explain(writes, reads) is None) == some_order_explains(writes, reads)


def some_order_explains(writes: list[Write], reads: list[Read]) -> bool:
    """The definition, tried out: take any operation that nothing left has to precede; unknown ones may be left over."""

    def go_on(left: list[Write | Read], value: str | None) -> bool:
        if not any(isinstance(o, Read) or o.outcome is OK for o in left):
            return True
        first_end = min(o.ended for o in left if o.ended is not None)
        for at, operation in enumerate(left):
            if operation.began > first_end:
                continue
            rest = left[:at] + left[at + 1 :]
            if isinstance(operation, Write):
                if go_on(rest, operation.value):
                    return True
            elif operation.value == value and go_on(rest, value):
                return True
        return False

    return go_on([*writes, *reads], None)


class TestValues:
    def test_a_value_that_nobody_wrote_is_found(self) -> None:
        assert kinds(History(reads=[read("x", 0, 1)])) == ["made up"]
        assert kinds(History(sights=[Sight("s", "t", "x", 1)])) == ["made up"]

    def test_a_value_of_another_topic_is_found(self) -> None:
        assert kinds(History(writes=[Write("other", "x", 0, 1, OK)], reads=[read("x", 2, 3)])) == ["made up"]

    def test_a_refused_value_that_is_seen_is_found(self) -> None:
        history = History(writes=[write("x", 0, 1, REFUSED)], sights=[Sight("s", "t", "x", 2)])
        assert kinds(history) == ["refused and yet done"]

    def test_a_value_that_was_shown_and_taken_back_is_told_by_its_name(self) -> None:
        shown = [write("a", 0, 1), write("b", 2, None, UNKNOWN)]
        (violation,) = check(History(writes=shown, reads=[read("b", 3, 4), read("a", 5, 6)]))
        assert "read a between 5.000 and 6.000 s, and there is no moment for that; the topic could have been: b" in (
            violation.text
        )
        assert violation.names == ("a", "b")

    def test_what_is_not_linearizable_is_told_with_what_was_acknowledged_last(self) -> None:
        history = History(writes=[write("a", 0, 1), write("b", 2, 3)], reads=[read("a", 4, 5)])
        (violation,) = check(history)
        assert violation.kind == "not linearizable"
        assert "Acknowledged last before it: b, at 3.000 s" in violation.text


class TestOrder:
    WRITES = [write("a", 0, 10), write("b", 0, 10), write("c", 0, 10)]

    def seen(self, *streams: str, again: bool = False) -> list[str]:
        sights = [
            Sight(f"s{number}", "t", value, at=11 + at, again=again)
            for number, values in enumerate(streams)
            for at, value in enumerate(values)
        ]
        return kinds(History(writes=self.WRITES, sights=sights))

    def test_one_order_for_all_is_right_also_when_some_miss_some(self) -> None:
        assert self.seen("abc", "ac", "bc", "c") == []

    def test_an_older_value_after_a_newer_one_is_found(self) -> None:
        assert self.seen("aba") == ["no common order"]

    def test_two_subscribers_that_see_different_orders_are_found(self) -> None:
        assert self.seen("ab", "ba") == ["no common order"]

    def test_three_subscribers_no_two_of_which_disagree_can_still_be_wrong(self) -> None:
        assert self.seen("ab", "bc") == []
        assert self.seen("ab", "bc", "ca") == ["no common order"]

    def test_a_repetition_is_none_of_our_business_where_it_may_happen(self) -> None:
        assert self.seen("aabab", "ab", again=True) == []

    def test_the_order_of_writes_that_followed_each_other_counts(self) -> None:
        writes = [write("a", 0, 1), write("b", 2, 3)]
        assert kinds(History(writes=writes, sights=[Sight("s", "t", "a", 4), Sight("s", "t", "b", 5)])) == []
        wrong = History(writes=writes, sights=[Sight("s", "t", "b", 4), Sight("s", "t", "a", 5)])
        assert kinds(wrong) == ["no common order"]
        assert "s saw b before a; a was there by 1.000 s, before b was sent at 2.000 s" in str(check(wrong)[0])


class TestMessages:
    SUBSCRIPTION = Subscription("me", "q/", qos=2, since=0)

    def kinds(self, sent: list[Sent], got: list[str], qos: int = 2) -> list[str]:
        received = [Received("me", name, "q/t", 2, at=50 + at) for at, name in enumerate(got)]
        return kinds(
            History(subscriptions=[replace(self.SUBSCRIPTION, qos=qos)], sent=sent, received=received),
        )

    def sent(self, number: int, qos: int = 2, outcome: Outcome = OK) -> Sent:
        return Sent(f"m{number}", "p", "q/t", number, qos, float(number), number + 0.5, outcome)

    def test_all_in_order_and_once_is_right(self) -> None:
        assert self.kinds([self.sent(1), self.sent(2, qos=1)], ["m1", "m2"]) == []

    @pytest.mark.parametrize("qos", [1, 2])
    def test_an_acknowledged_message_that_never_comes_is_found(self, qos: int) -> None:
        assert self.kinds([self.sent(1, qos), self.sent(2, qos)], ["m2"]) == ["lost message"]

    def test_a_qos_2_message_that_comes_twice_is_found(self) -> None:
        assert self.kinds([self.sent(1)], ["m1", "m1"]) == ["not exactly once"]
        assert self.kinds([self.sent(1, outcome=UNKNOWN)], ["m1", "m1"]) == ["not exactly once"]

    def test_at_qos_1_on_either_side_it_may_come_twice(self) -> None:
        assert self.kinds([self.sent(1, qos=1)], ["m1", "m1"]) == []
        assert self.kinds([self.sent(1)], ["m1", "m1"], qos=1) == []

    def test_a_message_of_unknown_outcome_may_come_or_not(self) -> None:
        assert self.kinds([self.sent(1, outcome=UNKNOWN)], ["m1"]) == []
        assert self.kinds([self.sent(1, outcome=UNKNOWN)], []) == []

    def test_a_refused_message_that_comes_is_found(self) -> None:
        assert self.kinds([self.sent(1, outcome=REFUSED)], ["m1"]) == ["refused and yet done"]

    def test_what_was_sent_before_the_subscription_need_not_come(self) -> None:
        assert self.kinds([replace(self.sent(1), began=-1)], []) == []

    def test_messages_of_one_publisher_out_of_order_are_found(self) -> None:
        assert self.kinds([self.sent(1), self.sent(2)], ["m2", "m1"]) == ["out of order"]

    def test_a_repetition_is_not_out_of_order(self) -> None:
        both = [self.sent(1, qos=1), self.sent(2, qos=1)]
        assert self.kinds(both, ["m1", "m2", "m1", "m2"]) == []

    def test_messages_of_two_publishers_have_no_order(self) -> None:
        assert self.kinds([self.sent(1), replace(self.sent(2), publisher="other")], ["m2", "m1"]) == []

    def test_a_retained_write_that_never_comes_to_a_session_that_watches_is_found(self) -> None:
        watching = [Subscription("me", "t", qos=1, since=0)]
        writes = [write("a", 1, 2), write("b", 3, None, UNKNOWN), write(None, 4, 5), write("c", 6, 7)]
        came = [Sight("me", "t", value, at=8, again=True) for value in ("a", "c")]
        assert kinds(History(subscriptions=watching, writes=writes, sights=came)) == []
        assert kinds(History(subscriptions=watching, writes=writes, sights=came[1:])) == ["lost message"]

    def test_a_session_that_is_gone_is_found(self) -> None:
        assert kinds(History(sessions=[SessionSeen("me", 1, present=False, expected=True)])) == ["lost session"]
        assert kinds(History(sessions=[SessionSeen("me", 1, present=False, expected=False)])) == []


class TestWills:
    def kinds(self, ending: Ending, came: int, accepted: float | None = 2.0) -> list[str]:
        return kinds(
            History(
                subscriptions=[Subscription("me", "w/", qos=2, since=0)],
                wills=[WillConnection("will1", "w/c", "c", "a", 1, accepted, 3, ending)],
                received=[Received("me", "will1", "w/c", 2, at=4 + at) for at in range(came)],
            )
        )

    def test_a_connection_that_was_cut_has_its_will_published_once(self) -> None:
        assert self.kinds(Ending.CUT, 1) == []

    def test_a_will_that_never_comes_is_found(self) -> None:
        assert self.kinds(Ending.CUT, 0) == ["lost will"]

    def test_a_will_that_comes_twice_is_found(self) -> None:
        assert self.kinds(Ending.CUT, 2) == ["will twice"]
        assert self.kinds(Ending.LEFT, 2) == ["will twice"]

    def test_a_will_after_a_clean_end_is_found(self) -> None:
        assert self.kinds(Ending.CLEAN, 1) == ["will after DISCONNECT"]
        assert self.kinds(Ending.CLEAN, 0) == []

    @pytest.mark.parametrize("came", [0, 1])
    def test_nobody_can_tell_about_a_disconnect_that_may_not_have_arrived(self, came: int) -> None:
        assert self.kinds(Ending.LEFT, came) == []

    @pytest.mark.parametrize("came", [0, 1])
    def test_nobody_can_tell_about_a_connection_that_was_not_accepted(self, came: int) -> None:
        assert self.kinds(Ending.CUT, came, accepted=None) == []


class TestOneConnection:
    FIRST = Attached("c", "first", began=0, ended=1, node="a")
    SECOND = Attached("c", "second", began=2, ended=3, node="b")

    def test_the_older_connection_is_served_until_the_newer_one_is_accepted(self) -> None:
        served = [Served("c", "first", 1.5, 2.5), Served("c", "first", 2.9, 3.5), Served("c", "second", 4, 5)]
        assert kinds(History(attached=[self.FIRST, self.SECOND], served=served)) == []

    def test_an_older_connection_that_is_served_on_is_found(self) -> None:
        served = [Served("c", "first", 3.1, 3.5)]
        assert kinds(History(attached=[self.FIRST, self.SECOND], served=served)) == ["two connections"]

    def test_of_two_that_came_at_once_one_goes_on(self) -> None:
        attached = [self.FIRST, replace(self.SECOND, began=0.5)]
        assert kinds(History(attached=attached, served=[Served("c", "first", 4, 5)])) == []
        assert kinds(History(attached=attached, served=[Served("c", "second", 4, 5)])) == []

    def test_of_two_that_came_at_once_not_both_go_on(self) -> None:
        attached = [self.FIRST, replace(self.SECOND, began=0.5)]
        served = [Served("c", "first", 4, 5), Served("c", "second", 6, 7)]
        assert kinds(History(attached=attached, served=served)) == ["two connections"]

    def test_other_client_ids_do_not_matter(self) -> None:
        attached = [self.FIRST, replace(self.SECOND, client="other")]
        assert kinds(History(attached=attached, served=[Served("c", "first", 4, 5)])) == []


class TestTheEnd:
    def test_nodes_that_are_equal_are_right(self) -> None:
        assert kinds(History(finals=[Final("a", "1", {"t": "v"}), Final("b", "1", {"t": "v"})])) == []

    def test_nodes_with_different_digests_are_found(self) -> None:
        assert kinds(History(finals=[Final("a", "1", {}), Final("b", "2", {})])) == ["nodes differ"]

    def test_nodes_with_different_retained_sets_are_found(self) -> None:
        assert kinds(History(finals=[Final("a", "1", {"t": "v"}), Final("b", "1", {})])) == ["nodes differ"]

    def test_histories_with_other_rows_are_found(self) -> None:
        alike = [Recorded("a", 1, 2, "2 rows 1f", []), Recorded("b", 1, 5, "2 rows 1f", [])]
        assert kinds(History(recorded=alike)) == []
        assert kinds(History(recorded=[*alike, Recorded("c", 1, 3, "3 rows 2e", [])])) == ["histories differ"]

    def test_a_history_whose_fold_is_not_what_the_node_sends_is_found(self) -> None:
        assert kinds(History(recorded=[Recorded("a", 1, 2, "", ["t: missing: 1 and None"])])) == ["history is wrong"]

    def test_what_does_not_work_again_is_told(self) -> None:
        assert kinds(History(stuck=[Stuck("node a", 1, "no acknowledgement")])) == ["stuck"]

    def test_what_mqtt_does_not_allow_is_told(self) -> None:
        assert kinds(History(malformed=[Malformed("c", "a", 1, "bytes too many")])) == ["malformed"]


def test_a_history_that_was_saved_is_judged_the_same_way(tmp_path: Path) -> None:
    history = History(
        writes=[write("a", 0, 1), write("b", 2, None, UNKNOWN)],
        reads=[read(None, 2, 3)],
        wills=[WillConnection("w1", "w/c", "c", "a", 1, None, 3, Ending.LEFT)],
        finals=[Final("a", "1", {"t": "v"}), Final("b", "2", {})],
    )
    history.save(tmp_path / "history.json")
    again = load(tmp_path / "history.json")
    assert again == history
    assert check(again) == check(history) != []
