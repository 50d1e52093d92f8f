from holdfast.broker.rate import LeakyBucket


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
