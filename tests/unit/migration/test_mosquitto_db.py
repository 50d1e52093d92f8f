"""`mosquitto.db`: every version, machines of every kind, and files that are not what they were."""

from pathlib import Path

import pytest

from holdfast.errors import UsageError
from holdfast.migration.inventory import (
    EXPIRED,
    NO_MESSAGE,
    OWN_TOPIC,
    QUEUED,
    RETAINED,
    SESSIONS,
    SUBSCRIPTIONS,
    FoundDelivery,
    FoundMessage,
    FoundSubscription,
    Inventory,
)
from holdfast.migration.mosquitto_db import read_file
from mosquitto_files import FOREVER, DbWriter

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
CONTENT_TYPE = bytes([0x03, 0, 4]) + b"text"
MACHINES = [(2, 64), (3, 64), (3, 32), (4, 64), (4, 32), (5, 64), (6, 64), (6, 32)]


def read(tmp_path: Path, data: bytes, owner: str | None = None) -> Inventory:
    path = tmp_path / "mosquitto.db"
    path.write_bytes(data)
    return read_file(path, owner, NOW_MS)


def filled(writer: DbWriter) -> DbWriter:
    writer.message(1, "home/a", b"21", 1, retain=True)
    writer.message(2, "q/one", b"1", 2)
    writer.message(3, "q/two", b"\x00\xff", 1)
    writer.client("alice-phone", "alice")
    writer.client_message("alice-phone", 2, 2, 5, packet_id=9)
    writer.client_message("alice-phone", 3, 1)
    writer.subscription("alice-phone", "q/#", 2)
    writer.retained(1)
    return writer


@pytest.mark.parametrize(("version", "bits"), MACHINES)
@pytest.mark.parametrize("order", ["little", "big"])
def test_every_version_of_every_machine_brings_messages_sessions_and_queues(
    version: int, bits: int, order: str, tmp_path: Path
) -> None:
    found = read(tmp_path, filled(DbWriter(version, bits, order)).data(), "alice")
    assert found.damage == []
    assert [(m.topic, m.payload, m.qos) for m in found.retained.values()] == [(b"home/a", b"21", 1)]
    session = found.sessions["alice-phone"]
    assert (session.owner, session.expiry_interval_s) == ("alice", FOREVER)
    assert list(session.subscriptions.values()) == [FoundSubscription(b"q/#", 2)]
    assert [(one.message.topic, one.message.payload, one.qos, one.packet_id) for one in session.queue] == [
        (b"q/one", b"1", 2, 9),
        (b"q/two", b"\x00\xff", 1, 0),
    ]
    assert found.left == {}


def test_a_machine_with_short_numbers_is_read_too(tmp_path: Path) -> None:
    found = read(tmp_path, filled(DbWriter(3, 32, id_size=4)).data(), "")
    assert list(found.retained) == [b"home/a"]
    assert len(found.sessions["alice-phone"].queue) == 2


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_sessions_stay_behind_where_the_file_does_not_say_whose_they_are(version: int, tmp_path: Path) -> None:
    found = read(tmp_path, filled(DbWriter(version)).data())
    assert found.sessions == {}
    [(reason, count)] = found.left[SESSIONS].items()
    assert "--owner" in reason
    assert (count, sum(found.left[SUBSCRIPTIONS].values()), sum(found.left[QUEUED].values())) == (1, 1, 2)


@pytest.mark.parametrize("order", ["little", "big"])
def test_all_fields_of_a_message_come(order: str, tmp_path: Path) -> None:
    writer = DbWriter(6, order=order)
    writer.message(
        5,
        "a/b",
        b"\x01\x02",
        2,
        retain=True,
        expires_at_s=NOW_S + 60,
        client_id="sensor",
        username="bob",
        properties=bytes([len(CONTENT_TYPE)]) + CONTENT_TYPE,
    )
    writer.retained(5)
    assert list(read(tmp_path, writer.data()).retained.values()) == [
        FoundMessage(b"a/b", b"\x01\x02", 2, CONTENT_TYPE, NOW_MS + 60_000, "sensor", "bob", True)
    ]


def test_all_fields_of_a_session_come(tmp_path: Path) -> None:
    writer = DbWriter(6)
    writer.message(1, "q", b"x", 1)
    writer.client("c", "alice", 600, NOW_S + 100)
    writer.subscription("c", "$share/g/q", 1, 0x0C, 77)
    writer.client_message("c", 1, 1, 3, packet_id=4, retain=True, identifier=77)
    writer.client_message("c", 1, 2, 9, packet_id=5)
    writer.client_message("c", 1, 2, 7, packet_id=6, direction=0)
    found = read(tmp_path, writer.data())
    session = found.sessions["c"]
    message = found.sessions["c"].queue[0].message
    assert (session.owner, session.version, session.expiry_interval_s) == ("alice", 5, 600)
    assert session.disconnected_at_ms == NOW_MS - 500_000
    assert session.subscriptions[b"$share/g/q"] == FoundSubscription(b"$share/g/q", 1 | 0x0C, 77)
    assert session.queue == [
        FoundDelivery(message, 1, True, (77,), 4, False),
        FoundDelivery(message, 2, False, (), 5, True),
    ]
    assert session.received == {6: message}


def test_what_cannot_come_is_counted_with_its_reason(tmp_path: Path) -> None:
    writer = DbWriter(6)
    writer.message(1, "$SYS/broker/x", b"1", retain=True)
    writer.message(2, "old", b"1", retain=True, expires_at_s=NOW_S - 1)
    writer.message(3, "a/+", b"1", retain=True)
    for number in (1, 2, 3, 4):
        writer.retained(number)
    writer.client("gone", "", 60, NOW_S - 1)
    writer.client("clean", "", 0)
    writer.subscription("nobody", "#", 1)
    writer.client("here")
    writer.message(5, "q", b"1", 0)
    writer.client_message("here", 5, 0)
    writer.subscription("here", "a/#/b", 0)
    found = read(tmp_path, writer.data())
    assert found.retained == {}
    assert found.left[RETAINED] == {OWN_TOPIC: 1, EXPIRED: 1, "no topic by the standard": 1, NO_MESSAGE: 1}
    assert found.left[SESSIONS] == {EXPIRED: 1, "ended with its connection": 1}
    assert sum(found.left[SUBSCRIPTIONS].values()) == 2
    assert sum(found.left[QUEUED].values()) == 1


def test_a_message_whose_properties_are_forbidden_comes_without_them(tmp_path: Path) -> None:
    writer = DbWriter(6)
    writer.message(1, "a", b"x", retain=True, properties=bytes([2, 0x01, 7]))
    writer.retained(1)
    found = read(tmp_path, writer.data())
    assert found.retained[b"a"].properties == b""
    assert any("without their properties" in note for note in found.notes)


def test_the_name_of_another_client_is_not_taken_for_the_owners(tmp_path: Path) -> None:
    """mosquitto 2.0.11 writes the name of the client before, with memory behind it, and the bare name next time."""
    writer = DbWriter(6)
    writer.client("first", "alice")
    writer.client("second", "alice\0\x07\x00heap")
    writer.client("third", "alice")
    writer.client("fourth", "bob")
    found = read(tmp_path, writer.data())
    assert {name: one.owner for name, one in found.sessions.items()} == {
        "first": "alice",
        "second": "",
        "fourth": "bob",
    }
    assert sum(found.left[SESSIONS].values()) == 1


@pytest.mark.parametrize("version", [2, 4, 5, 6])
def test_damage_in_the_middle_costs_only_itself(version: int, tmp_path: Path) -> None:
    writer = DbWriter(version)
    for number in range(1, 6):
        writer.message(number, f"topic/{number}", b"payload" * number, 1, retain=True)
        writer.retained(number)
    broken = writer.chunks[3]  # the message 2
    writer.chunks[3] = b"\xff" * len(broken)
    found = read(tmp_path, writer.data())
    assert sorted(found.retained) == [b"topic/1", b"topic/3", b"topic/4", b"topic/5"]
    assert len(found.damage) == 1
    assert "cannot be read" in found.damage[0]


@pytest.mark.parametrize("version", [2, 4, 5, 6])
def test_a_length_that_lies_costs_only_its_chunk(version: int, tmp_path: Path) -> None:
    writer = DbWriter(version)
    for number in range(1, 4):
        writer.message(number, f"topic/{number}", b"payload", 1, retain=True)
        writer.retained(number)
    at = 5 if version < 5 else 7
    chunk = bytearray(writer.chunks[3])
    chunk[at] += 3
    writer.chunks[3] = bytes(chunk)
    found = read(tmp_path, writer.data())
    assert sorted(found.retained) == [b"topic/1", b"topic/3"]
    assert found.damage


def test_every_cut_of_a_file_brings_what_is_whole_and_says_the_rest(tmp_path: Path) -> None:
    writer = filled(DbWriter(6))
    data = writer.data()
    boundaries = {23}
    for chunk in writer.chunks:
        boundaries.add(max(boundaries) + len(chunk))
    whole = read(tmp_path, data)
    for end in range(23, len(data)):
        found = read(tmp_path, data[:end])
        assert bool(found.damage) == (end not in boundaries), end
        assert found.retained.keys() <= whole.retained.keys()


def test_a_file_of_zeros_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="zeros"):
        read(tmp_path, bytes(5000))


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"", "empty"), (b"\x00\xb5\x00mosq", "begin"), (b"x" * 100, "begin"), (DbWriter(6).data()[:20], "20 bytes")],
)
def test_what_is_no_database_is_refused_with_a_reason(data: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        read(tmp_path, data)


@pytest.mark.parametrize("version", [1, 7, 2**31])
def test_an_unknown_version_is_refused(version: int, tmp_path: Path) -> None:
    writer = DbWriter(6)
    writer.version = version
    with pytest.raises(UsageError, match=f"version {version}"):
        read(tmp_path, writer.data())


def test_a_save_that_was_not_finished_is_mentioned(tmp_path: Path) -> None:
    (tmp_path / "mosquitto.db.new").write_bytes(b"half")
    assert any("mosquitto.db.new" in note for note in read(tmp_path, DbWriter(6).data()).notes)


@pytest.mark.parametrize("version", [3, 6])
def test_a_first_chunk_that_claims_too_much_hides_nothing(version: int, tmp_path: Path) -> None:
    writer = DbWriter(version)
    for number in range(1, 4):
        writer.message(number, f"topic/{number}", b"payload", 1, retain=True)
        writer.retained(number)
    at = 5 if version < 5 else 7
    chunk = bytearray(writer.chunks[0])
    chunk[at] += len(writer.chunks[1])
    writer.chunks[0] = bytes(chunk)
    found = read(tmp_path, writer.data())
    assert sorted(found.retained) == [b"topic/1", b"topic/2", b"topic/3"]
    assert found.damage
