"""CONNECT: who may come in, which session is theirs, and what each side is told."""

from collections.abc import Callable
from typing import Any

import pytest

import wire
from core_broker import CoreBroker, CoreClient
from wire import ConnAck, Disconnect, P, Will

Start = Callable[..., CoreBroker]
BOTH = pytest.mark.parametrize("version", [4, 5], ids=["v311", "v5"])


def attempt(
    broker: CoreBroker, client_id: str = "client", version: int = 5, **fields: Any
) -> tuple[CoreClient, list[wire.Packet]]:
    """Send CONNECT; the client and all it is answered."""
    client = broker.client(version)
    client.send(wire.connect(client_id, version=version, **fields))
    return client, client.arrived()


def code_of(answers: list[wire.Packet]) -> int | None:
    """The code of the one CONNACK there may be."""
    assert len(answers) <= 1, answers
    if not answers:
        return None
    assert isinstance(answers[0], ConnAck), answers
    return answers[0].code


def present(client: CoreClient) -> bool:
    assert client.connack is not None
    return client.connack.session_present


# Who may come in


@pytest.mark.parametrize(
    ("version", "fields", "code"),
    [
        (4, {"client_id": "x" * 23}, 0),
        (4, {"client_id": "x" * 24}, 2),
        (5, {"client_id": "x" * 24}, 0x85),
        (4, {"client_id": "é" * 12}, 2),
        (4, {"client_id": "", "clean": True}, 0),
        (4, {"client_id": "", "clean": False}, 2),
        (5, {"client_id": "", "clean": False}, 0),
        (3, {"client_id": "", "clean": True}, 2),
        (3, {"client_id": "old"}, 0),
        (4, {"level": 6}, 1),
        (5, {"level": 6}, 1),
        (4, {"client_id": "mallory"}, 5),
        (5, {"client_id": "mallory"}, 0x8A),
        (5, {"username": "eve"}, 0x8A),
        (5, {"will": Will("$SYS/a", b"")}, 0x87),
        (5, {"will": Will("w", b"", qos=2)}, 0x9B),
        (5, {"will": Will("w", b"", qos=1)}, 0),
        (5, {"will": Will("a/b/c/d", b"")}, 0x90),
        (5, {"will": Will("w/#", b"")}, 0x90),
        (5, {"properties": [(P.AUTH_METHOD, "GS2-KRB5")]}, 0x8C),
        (5, {"properties": [(P.USER_PROPERTY, ("n", "1"))] * 3}, 0x97),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_connect_is_judged_by_its_fields(start: Start, version: int, fields: dict[str, Any], code: int) -> None:
    broker = start(
        limits__max_client_id_length=23,
        limits__max_qos=1,
        limits__max_topic_levels=3,
        limits__max_user_properties=2,
        bans__client_ids=["mallory"],
        bans__users=["eve"],
    )
    client, answers = attempt(broker, **{"version": version, **fields})
    assert code_of(answers) == code
    assert client.closed is (code != 0)


@pytest.mark.parametrize(
    "first",
    [
        wire.pingreq(),
        wire.publish("a", "1"),
        wire.subscribe(1, [("a", 0)]),
        wire.disconnect(),
        b"\x00\x00",
        wire.connect("a", flags=0x03),
        wire.connect("a", protocol_name="MQTX"),
        wire.connect("a")[:-1] + b"\xff",
    ],
    ids=["PINGREQ", "PUBLISH", "SUBSCRIBE", "DISCONNECT", "nothing", "reserved flag", "other protocol", "bad text"],
)
def test_whoever_begins_otherwise_is_closed_without_a_word(broker: CoreBroker, first: bytes) -> None:
    client = broker.client(4)
    client.send(first)
    assert client.closed
    assert client.arrived() == []


@BOTH
def test_a_second_connect_ends_the_connection(broker: CoreBroker, version: int) -> None:
    client = broker.join("client", version)
    client.send(wire.connect("client", version=version))
    assert client.closed


def test_a_stranger_is_not_listened_to_for_long(start: Start) -> None:
    broker = start(limits__max_bytes_before_login=1024)
    client = broker.client(5)
    client.send(wire.connect("client", version=5, username="x" * 2000)[:10])
    assert client.closed


def test_packets_may_follow_connect_at_once(broker: CoreBroker) -> None:
    client = broker.client(5)
    client.send(wire.connect("client", version=5) + wire.subscribe(1, [("a", 0)], version=5) + wire.pingreq())
    assert [type(packet) for packet in client.arrived()] == [ConnAck, wire.SubAck, wire.PingResp]


# How many


def test_at_the_limit_of_connections_only_known_clients_come_in(start: Start) -> None:
    broker = start(limits__max_connections=2)
    broker.join("one")
    broker.join("two")
    assert code_of(attempt(broker, "three")[1]) == 0x89
    assert code_of(attempt(broker, "two")[1]) == 0


def test_a_connection_that_ends_makes_room(start: Start) -> None:
    broker = start(limits__max_connections=1)
    broker.join("one").disconnect()
    assert code_of(attempt(broker, "two")[1]) == 0


def test_the_rate_of_connections_allows_a_burst_and_recovers(start: Start) -> None:
    broker = start(limits__connect_rate=2)
    codes = [code_of(attempt(broker, f"c{number}")[1]) for number in range(3)]
    assert codes == [0, 0, 0x9F]
    broker.pass_time(0.5)
    codes = [code_of(attempt(broker, f"d{number}")[1]) for number in range(2)]
    assert codes == [0, 0x9F]


# Whose session


@pytest.mark.parametrize(
    ("keep", "clean", "expected"),
    [(True, False, True), (True, True, False), (False, False, False), (False, True, False)],
)
@BOTH
def test_a_session_is_present_when_it_was_kept_and_is_asked_for(
    broker: CoreBroker, version: int, keep: bool, clean: bool, expected: bool
) -> None:
    broker.join("client", version, keep=keep).disconnect()
    assert present(broker.join("client", version, clean=clean)) is expected


def test_clean_start_forgets_what_was_kept(broker: CoreBroker) -> None:
    first = broker.join("client", keep=True)
    first.subscribe("a", qos=1)
    first.cut()
    broker.join("writer").publish("a", b"1", qos=1)
    assert broker.join("client", clean=True).arrived() == []
    broker.join("writer").publish("a", b"2", qos=1)
    assert broker.join("client", keep=True).arrived() == []


@pytest.mark.parametrize(("version", "said"), [(4, []), (5, [0x8E])])
def test_the_older_of_two_connections_goes(broker: CoreBroker, version: int, said: list[int]) -> None:
    older, newer = broker.join("client", version), broker.join("client")
    assert older.closed
    assert [packet.reason for packet in older.arrived() if isinstance(packet, Disconnect)] == said
    assert not newer.closed


def test_what_the_older_connection_had_goes_to_the_newer(broker: CoreBroker) -> None:
    older = broker.join("client", keep=True)
    older.subscribe("a", qos=1)
    newer = broker.join("client", keep=True)
    assert present(newer)
    broker.join("writer").publish("a", b"1", qos=1)
    assert newer.payloads() == ["1"]


def test_a_session_belongs_to_the_user_who_made_it(broker: CoreBroker) -> None:
    broker.join("client", keep=True, username="ann").disconnect()
    assert code_of(attempt(broker, "client", username="bob", clean=True)[1]) == 0x85
    assert present(broker.join("client", keep=True, username="ann"))


def test_a_client_without_a_name_is_given_one_of_its_own(broker: CoreBroker) -> None:
    names = {broker.join("").client_id for _ in range(3)}
    assert len(names) == 3
    assert "" not in names


# What each side is told


@pytest.mark.parametrize(
    ("settings", "identifier", "value"),
    [
        ({}, P.MAXIMUM_PACKET_SIZE, 10 * 1024 * 1024),
        ({"limits__max_packet_size": 4096}, P.MAXIMUM_PACKET_SIZE, 4096),
        ({}, P.RECEIVE_MAXIMUM, 1024),
        ({"limits__receive_maximum": 65535}, P.RECEIVE_MAXIMUM, None),
        ({}, P.TOPIC_ALIAS_MAXIMUM, 64),
        ({"limits__topic_alias_maximum": 0}, P.TOPIC_ALIAS_MAXIMUM, None),
        ({}, P.MAXIMUM_QOS, None),
        ({"limits__max_qos": 1}, P.MAXIMUM_QOS, 1),
        ({}, P.RETAIN_AVAILABLE, None),
        ({"retainer__enable": False}, P.RETAIN_AVAILABLE, 0),
        ({}, P.SERVER_KEEP_ALIVE, None),
        ({"limits__keep_alive_max": 60}, P.SERVER_KEEP_ALIVE, None),
        ({"limits__keep_alive_max": 59}, P.SERVER_KEEP_ALIVE, 59),
        ({}, P.SESSION_EXPIRY, None),
        ({"limits__session_expiry_max": 100}, P.SESSION_EXPIRY, None),
        ({"limits__session_expiry_max": 99}, P.SESSION_EXPIRY, 99),
        ({}, P.ASSIGNED_CLIENT_ID, None),
        ({}, P.RESPONSE_INFO, None),
        ({"response_information": "answers"}, P.RESPONSE_INFO, "answers/client"),
    ],
)
def test_connack_says_what_differs_from_what_was_asked(
    start: Start, settings: dict[str, Any], identifier: int, value: object
) -> None:
    asked = [(P.SESSION_EXPIRY, 100), (P.REQUEST_RESPONSE_INFO, 1)]
    client = start(**settings).join("client", keep_alive=60, properties=asked)
    assert client.connack is not None
    assert client.connack.prop(identifier) == value


def test_no_keep_alive_is_more_than_the_longest_allowed(start: Start) -> None:
    client = start(limits__keep_alive_max=60).join("client", keep_alive=0)
    assert client.connack is not None
    assert client.connack.prop(P.SERVER_KEEP_ALIVE) == 60


def test_response_information_is_given_only_on_request(start: Start) -> None:
    client = start(response_information="answers").join("client")
    assert client.connack is not None
    assert client.connack.prop(P.RESPONSE_INFO) is None


@pytest.mark.parametrize(("largest", "answered"), [(16, True), (15, False)])
def test_a_client_that_cannot_take_connack_cannot_come_in(broker: CoreBroker, largest: int, answered: bool) -> None:
    client, answers = attempt(broker, properties=[(P.MAXIMUM_PACKET_SIZE, largest)])
    if answered:
        assert [len(answer.raw) for answer in answers] == [16]
    assert client.closed is not answered
    assert all(len(answer.raw) <= largest for answer in answers)
