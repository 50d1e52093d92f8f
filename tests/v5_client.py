"""What the tests of MQTT 5.0 share: clients of that version, brokers with settings, and how a broker says no.

In the standard the CONNACK or DISCONNECT that explains a refusal is mostly optional and only the close is demanded.
Holdfast always sends it, so the tests ask for it; other brokers pass with the close alone.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from broker_process import MOSQUITTO, BrokerProcess, start_holdfast, under_test
from wire import ConnAck, Disconnect, P, Packet, Property, Publish, WireClient

Connect5 = Callable[..., WireClient]
Open5 = Callable[..., WireClient]

KEEP: list[Property] = [(P.SESSION_EXPIRY, 60)]

# The reason codes that a server may put into each packet.
CONNACK_CODES = frozenset(bytes.fromhex("00 80 81 82 83 84 85 86 87 88 89 8a 8c 90 95 97 99 9a 9b 9c 9d 9f"))
PUBACK_CODES = PUBREC_CODES = frozenset(bytes.fromhex("00 10 80 83 87 90 91 97 99"))
PUBREL_CODES = PUBCOMP_CODES = frozenset(bytes.fromhex("00 92"))
SUBACK_CODES = frozenset(bytes.fromhex("00 01 02 80 83 87 8f 91 97 9e a1 a2"))
UNSUBACK_CODES = frozenset(bytes.fromhex("00 11 80 83 87 8f 91"))
DISCONNECT_CODES = frozenset(
    bytes.fromhex("00 80 81 82 83 87 89 8b 8d 8e 8f 90 93 94 95 96 97 98 99 9a 9b 9c 9d 9e 9f a0 a1 a2")
)


@pytest.fixture
def connect5(connect: Callable[..., WireClient]) -> Connect5:
    """A connected 5.0 client, e.g. `connect5(clean=False, properties=KEEP)`."""
    return functools.partial(connect, version=5)


@pytest.fixture
def open5(open_client: Callable[..., WireClient]) -> Open5:
    """A bare connection that will speak 5.0."""
    return functools.partial(open_client, 5)


def broker_with(folder: Any, **settings: Any) -> Iterator[BrokerProcess]:
    """The body of a fixture: a broker with these settings; lists and tables are given as Python values."""
    if under_test() == MOSQUITTO:
        pytest.skip("needs a broker with Holdfast's settings")
    plain = {name: json.dumps(value) if isinstance(value, list | dict) else value for name, value in settings.items()}
    running = start_holdfast(folder, {"history.enable": False, **plain})
    yield running
    running.stop()


def expect_refused(client: WireClient, *codes: int) -> ConnAck | None:
    """CONNACK with one of these reason codes and Session Present 0, nothing else, then the end of the connection."""
    got = _last_words(client, ConnAck, codes)
    if got is None:
        return None
    assert isinstance(got, ConnAck)
    assert got.code in codes, _wrong("CONNACK", codes, [got])
    assert not got.session_present, f"expected Session Present 0 in a refusal, got {got}"
    return got


def expect_dropped(client: WireClient, *codes: int) -> Disconnect | None:
    """DISCONNECT with one of these reason codes, nothing else, then the end of the connection."""
    got = _last_words(client, Disconnect, codes)
    if got is None:
        return None
    assert isinstance(got, Disconnect)
    assert got.reason in codes, _wrong("DISCONNECT", codes, [got])
    return got


def _last_words(client: WireClient, kind: type[Packet], codes: Sequence[int]) -> Packet | None:
    packets = client.drain_until_closed()
    if not packets and under_test() == MOSQUITTO:
        return None
    if len(packets) != 1 or not isinstance(packets[0], kind):
        raise AssertionError(_wrong(kind.__name__, codes, packets))
    return packets[0]


def _wrong(name: str, codes: Sequence[int], got: Sequence[Packet]) -> str:
    wanted = " or ".join(f"0x{code:02X}" for code in codes)
    return f"expected {name} with {wanted} and a close, got " + (", ".join(map(str, got)) or "only a close")


def tight_limit(client: WireClient, full: Packet | None) -> int:
    """A Maximum Packet Size with no room for all of this answer, but enough for CONNACK."""
    assert client.connack is not None
    smallest = len(client.connack.raw)
    return max(len(full.raw) - 1, smallest) if full is not None and full.properties else smallest


def resolved(messages: Iterable[Publish], known: dict[int, str] | None = None) -> list[str]:
    """The topic of each message with aliases replaced; an alias that was never introduced is an error."""
    known = {} if known is None else known
    topics = []
    for message in messages:
        alias = message.prop(P.TOPIC_ALIAS)
        if alias is not None and message.topic:
            known[alias] = message.topic
        assert message.topic or alias in known, f"expected a topic or a known alias, got {message}"
        topics.append(message.topic or known[alias])
    return topics
