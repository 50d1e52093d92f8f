"""A request that comes again is found with its answer, for a while, and unless another request has undone it."""

from holdfast.broker.sn.connection import CACHED_MS, MAX_CACHED, REGISTERED, SUBSCRIBED, UNSUBSCRIBED, DuplicateCache


def test_the_same_request_finds_its_answer_for_a_while() -> None:
    cache = DuplicateCache()
    cache.add(SUBSCRIBED, b"subscribe", b"suback", 1000)
    assert cache.find(b"subscribe", 1000 + CACHED_MS) == b"suback"
    assert cache.find(b"subscribe", 1001 + CACHED_MS) == b""
    assert cache.find(b"another", 1000) == b""


def test_a_subscribe_makes_an_earlier_unsubscribe_a_new_request() -> None:
    cache = DuplicateCache()
    cache.add(REGISTERED, b"register", b"regack", 0)
    cache.add(UNSUBSCRIBED, b"unsubscribe", b"unsuback", 0)
    cache.add(SUBSCRIBED, b"subscribe", b"suback", 0)
    assert cache.find(b"unsubscribe", 0) == b""
    assert cache.find(b"register", 0) == b"regack"


def test_the_cache_keeps_the_latest_answers_only() -> None:
    cache = DuplicateCache()
    for number in range(MAX_CACHED + 1):
        cache.add(REGISTERED, bytes((number,)), b"answer", 0)
    assert cache.find(b"\x00", 0) == b""
    assert cache.find(b"\x01", 0) == b"answer"
    assert len(cache.answers) == MAX_CACHED
