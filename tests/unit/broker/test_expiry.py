from holdfast.broker.message import Message, topic_field
from holdfast.broker.retained import Expiry
from holdfast.broker.session import NO_ONE


def expiring(topic: str, at_ms: int) -> Message:
    return Message(topic_field(topic.encode()), b"x", 0, True, b"", NO_ONE, 1, 0, at_ms, True)


def popped(expiry: Expiry, now_ms: int) -> set[bytes]:
    found = set()
    while (message := expiry.pop(now_ms)) is not None:
        found.add(message.topic)
    return found


def test_nothing_is_taken_before_its_time() -> None:
    expiry = Expiry()
    expiry.add(expiring("a", 5000))
    assert popped(expiry, 4999) == set()


def test_everything_due_is_taken_within_a_bucket_of_its_time() -> None:
    expiry = Expiry()
    for number in range(50):
        expiry.add(expiring(str(number), 1000 + 37 * number))
    assert popped(expiry, 2000) == {str(n).encode() for n in range(50) if (1000 + 37 * n) // 100 < 20}
    assert popped(expiry, 10_000) == {str(n).encode() for n in range(50) if (1000 + 37 * n) // 100 >= 20}


def test_a_replaced_message_leaves_at_once() -> None:
    expiry = Expiry()
    first, second = expiring("a", 1000), expiring("a", 9000)
    expiry.add(first)
    assert expiry.discard(first)
    expiry.add(second)
    assert popped(expiry, 5000) == set()
    assert not expiry.discard(first), "what has left cannot leave again"
    assert expiry.discard(second)


def test_overdue_counts_to_the_millisecond() -> None:
    expiry = Expiry()
    for at_ms in (1001, 1050, 1099, 3000, 90_000):
        expiry.add(expiring(str(at_ms), at_ms))
    assert [expiry.overdue(now) for now in (1000, 1001, 1098, 1099, 3000, 89_999, 90_000)] == [0, 1, 2, 3, 4, 4, 5]


def test_a_topic_written_every_second_costs_one_entry() -> None:
    expiry = Expiry()
    last = expiring("a", 86_400_000)
    expiry.add(last)
    for second in range(1, 1000):
        expiry.discard(last)
        last = expiring("a", 86_400_000 + 1000 * second)
        expiry.add(last)
    assert sum(len(bucket) for bucket in expiry.buckets.values()) == 1
