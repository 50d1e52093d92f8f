from holdfast.broker.rate import REMEMBERED_USERS, LeakyBucket, UserRates


def test_what_fits_at_once_is_the_capacity() -> None:
    bucket = LeakyBucket(rate=2, capacity=3)
    assert [bucket.offer(10.0) for _ in range(4)] == [True, True, True, False]


def test_room_comes_back_at_the_rate() -> None:
    bucket = LeakyBucket(rate=2, capacity=2)
    assert [bucket.offer(10.0) for _ in range(3)] == [True, True, False]
    assert [bucket.offer(10.5) for _ in range(2)] == [True, False]
    assert [bucket.offer(99.0) for _ in range(3)] == [True, True, False]


def test_what_was_refused_does_not_count() -> None:
    bucket = LeakyBucket(rate=1, capacity=1)
    assert [bucket.offer(now) for now in (0.0, 0.5, 1.0)] == [True, False, True]


def test_pouring_says_how_long_to_wait() -> None:
    bucket = LeakyBucket(rate=10, capacity=10)
    assert bucket.pour(10, 5.0) == 0
    assert bucket.pour(5, 5.0) == 0.5
    assert bucket.pour(0, 5.5) == 0


def test_a_clock_that_goes_back_drains_nothing_and_adds_nothing() -> None:
    bucket = LeakyBucket(rate=1, capacity=2)
    bucket.pour(1, 100.0)
    assert bucket.drain(50.0) == 1
    assert bucket.drain(50.5) == 0.5


def test_users_that_are_idle_are_forgotten_and_busy_ones_are_not() -> None:
    rates = UserRates(messages=1, size=0)
    rates.pour("busy", 1_000_000, 0, 0.0)
    for number in range(3 * REMEMBERED_USERS):
        rates.pour(f"user {number}", 1, 0, float(number))
    assert len(rates.buckets) <= REMEMBERED_USERS + 1
    assert not rates.admit("busy", 1, 0, 40_000.0)


def test_what_is_larger_than_a_second_is_admitted_once_and_then_waited_for() -> None:
    rates = UserRates(messages=0, size=100)
    assert rates.admit("ann", 1, 1000, 0.0)
    assert [rates.admit("ann", 1, 1, now) for now in (0.0, 8.9, 9.1)] == [False, False, True]
    assert rates.admit("bob", 1, 1, 0.0)
