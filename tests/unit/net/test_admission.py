import pytest

from holdfast.net import admission
from holdfast.net.admission import Bans, ConnectionLimits
from holdfast.net.websocket import Origins


def test_named_addresses_and_networks_are_banned() -> None:
    bans = Bans(["192.0.2.7", "10.0.0.0/8", "2001:db8::/32"])
    for host in ("192.0.2.7", "10.1.2.3", "::ffff:10.1.2.3", "2001:db8::5"):
        assert bans.bans(host, 0)
    for host in ("192.0.2.8", "11.0.0.1", "2001:db9::5", "", "/run/socket"):
        assert not bans.bans(host, 0)


def test_failures_in_a_row_bring_a_ban_that_ends() -> None:
    bans = Bans(failures=3, window_s=10, duration_s=60)
    assert [bans.on_failure("192.0.2.7", t) for t in (0, 1, 2)] == [False, False, True]
    assert bans.bans("192.0.2.7", 3)
    assert not bans.bans("192.0.2.8", 3)
    assert bans.bans("192.0.2.7", 61)
    assert not bans.bans("192.0.2.7", 62)
    assert [bans.on_failure("192.0.2.7", t) for t in (63, 64, 65)] == [False, False, True]


def test_failures_far_apart_bring_none() -> None:
    bans = Bans(failures=3, window_s=10, duration_s=60)
    assert not any(bans.on_failure("192.0.2.7", t) for t in range(0, 100, 6))


def test_exempt_addresses_are_not_banned_for_failures() -> None:
    bans = Bans(failures=1, exempt=["127.0.0.0/8"])
    assert not bans.on_failure("127.0.0.1", 0)
    assert bans.on_failure("192.0.2.7", 0)


def test_a_host_with_many_ipv6_addresses_is_one_host() -> None:
    bans = Bans(failures=2)
    bans.on_failure("2001:db8::1", 0)
    assert bans.on_failure("2001:db8::2", 0)
    assert bans.bans("2001:db8::ffff", 1)
    assert not bans.bans("2001:db8:0:1::1", 1)


def test_failures_of_many_addresses_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "REMEMBERED_FAILURES", 50)
    bans = Bans(failures=2)
    for number in range(1000):
        bans.on_failure(f"10.0.{number >> 8}.{number & 255}", 0)
    assert len(bans.failed) == 50
    for number in range(1000):
        bans.on_failure(f"10.1.{number >> 8}.{number & 255}", 0)
        bans.on_failure(f"10.1.{number >> 8}.{number & 255}", 0)
    assert len(bans.until) == 50


def test_one_address_may_have_a_number_of_connections() -> None:
    limits = ConnectionLimits(most=2)
    assert [limits.admit("a", 0) for _ in range(3)] == [True, True, False]
    assert limits.admit("b", 0)
    limits.release("a")
    assert limits.admit("a", 0)
    for host in ("a", "a", "b"):
        limits.release(host)
    assert limits.present == {}


def test_one_address_may_open_a_number_of_connections_a_second() -> None:
    limits = ConnectionLimits(rate=2)
    assert [limits.admit("a", 0) for _ in range(3)] == [True, True, False]
    assert limits.admit("b", 0)
    assert [limits.admit("a", 0.5) for _ in range(2)] == [True, False]


ORIGINS = [
    (None, "127.0.0.1:8083", [], True, True),
    (b"http://localhost:8083", "localhost:8083", [], True, True),
    (b"http://localhost:18083", "localhost:8083", [], True, False),
    (b"http://127.0.0.1:18083", "127.0.0.1:8083", ["http://127.0.0.1:18083"], True, True),
    (b"http://broker.example:3000", "broker.example:8083", [], False, False),
    (b"http://broker.example", "broker.example:80", [], False, True),
    (b"https://broker.example:443", "broker.example", [], False, True),
    (b"file://broker.example", "broker.example", [], False, False),
    (b"http://broker.example:99999", "broker.example", [], False, False),
    (b"http://evil.example", "127.0.0.1:8083", [], True, False),
    (b"http://evil.example", "evil.example:8083", [], True, False),
    (b"http://localhost.evil.example", "localhost:8083", [], True, False),
    (b"null", "127.0.0.1:8083", [], True, False),
    (b"", "127.0.0.1:8083", [], True, False),
    (b"http://[::1]:8083", "[::1]:8083", [], True, True),
    (b"https://broker.example", "broker.example", [], False, True),
    (b"https://evil.example", "broker.example", [], False, False),
    (b"https://ops.example", "broker.example", ["https://ops.example"], False, True),
    (b"HTTPS://OPS.example", "broker.example", ["https://ops.example"], False, True),
    (b"http://ops.example", "broker.example", ["https://ops.example"], False, False),
    (b"https://ops.example.evil", "broker.example", ["https://ops.example"], False, False),
    (b"http://evil.example", "broker.example", ["*"], False, True),
    (b"http://[bad", "broker.example", [], False, False),
]


@pytest.mark.parametrize(("origin", "host", "named", "is_loopback", "allowed"), ORIGINS)
def test_which_pages_may_connect(
    origin: bytes | None, host: str, named: list[str], is_loopback: bool, allowed: bool
) -> None:
    assert Origins(named, is_loopback).allow(origin, host) is allowed


def test_the_addresses_of_one_ipv6_network_share_its_limits() -> None:
    limits = ConnectionLimits(most=2)
    assert limits.admit("2001:db8::1", 0)
    assert limits.admit("2001:db8::2", 0)
    assert not limits.admit("2001:db8::ffff:3", 0)
    assert limits.admit("2001:db8:0:1::1", 0), "another network"
    limits.release("2001:db8::2")
    assert limits.admit("2001:db8::4", 0)
    rates = ConnectionLimits(rate=1)
    assert rates.admit("2001:db8::1", 0)
    assert not rates.admit("2001:db8::2", 0)
    assert rates.admit("192.0.2.1", 0)
    assert not rates.admit("::ffff:192.0.2.1", 0), "the same one in another form"
