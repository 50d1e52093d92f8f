"""`mosquitto.sqlite3`: the plugin's own rows, those of mosquitto's migration tool, and what SQLite made of them."""

import base64
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.migration.inventory import QUEUED, RETAINED, SESSIONS, WILLS, FoundDelivery, FoundMessage, Inventory
from holdfast.migration.mosquitto_sqlite import read_file
from holdfast.service.messages import decode_forwarded

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000

# As the plugin creates them.
SCHEMA = """
CREATE TABLE base_msgs (store_id INT64 PRIMARY KEY, expiry_time INT64, topic STRING NOT NULL, payload BLOB,
    source_id STRING, source_username STRING, payloadlen INTEGER, source_mid INTEGER, source_port INTEGER, qos INTEGER,
    retain INTEGER, properties STRING);
CREATE TABLE retains (topic STRING PRIMARY KEY, store_id INT64);
CREATE TABLE clients (client_id TEXT PRIMARY KEY, username TEXT, connection_time INT64, will_delay_time INT64,
    session_expiry_time INT64, listener_port INT, max_packet_size INT, max_qos INT, retain_available INT,
    session_expiry_interval INT, will_delay_interval INT);
CREATE TABLE subscriptions (client_id TEXT NOT NULL, topic TEXT NOT NULL, subscription_options INTEGER,
    subscription_identifier INTEGER, PRIMARY KEY (client_id, topic));
CREATE TABLE client_msgs (client_id TEXT NOT NULL, cmsg_id INT64, store_id INT64, dup INTEGER, direction INTEGER,
    mid INTEGER, qos INTEGER, retain INTEGER, state INTEGER, subscription_identifier INTEGER);
"""
VERSIONED = """
CREATE TABLE wills (client_id TEXT PRIMARY KEY, payload BLOB, topic STRING NOT NULL, payloadlen INTEGER, qos INTEGER,
    retain INTEGER, properties STRING);
CREATE TABLE version_info (component TEXT NOT NULL, major INTEGER NOT NULL, minor INTEGER NOT NULL,
    patch INTEGER NOT NULL);
INSERT INTO version_info VALUES ('database_schema', 1, 1, 0);
"""


class Database:
    def __init__(self, path: Path, schema: str = SCHEMA + VERSIONED) -> None:
        self.path = path
        self.connection = sqlite3.connect(path)
        self.connection.executescript(schema)

    def add(self, table: str, **values: Any) -> None:
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        self.connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))

    def retain(self, number: int, topic: str, payload: Any, **values: Any) -> None:
        length = len(payload) if payload is not None else 0
        given = {"expiry_time": 0, "qos": 1, "retain": 1, "payloadlen": length, **values}
        self.add("base_msgs", store_id=number, topic=topic, payload=payload, **given)
        self.add("retains", topic=topic, store_id=number)

    def read(self, owner: str | None = None) -> Inventory:
        self.connection.commit()
        self.connection.close()
        return read_file(self.path, owner, NOW_MS)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "mosquitto.sqlite3")


def test_all_fields_of_a_message_come(database: Database) -> None:
    properties = [
        {"identifier": "payload-format-indicator", "value": 1},
        {"identifier": "content-type", "value": "text/plain"},
        {"identifier": "response-topic", "value": "answers/1"},
        {"identifier": "correlation-data", "value": "00FF10"},
        {"identifier": "user-property", "name": "unit", "value": "°C"},
    ]
    database.retain(
        1,
        "home/a",
        b"\x00\x01",
        expiry_time=NOW_S + 60,
        source_id="sensor",
        source_username="bob",
        properties=json.dumps(properties),
    )
    found = database.read()
    [message] = found.retained.values()
    assert message == FoundMessage(
        b"home/a", b"\x00\x01", 1, message.properties, NOW_MS + 60_000, "sensor", "bob", True
    )
    carried = decode_forwarded(message.properties)
    assert (carried.payload_format, carried.content_type, carried.response_topic) == (1, "text/plain", b"answers/1")
    assert (carried.correlation_data, carried.user_properties) == (b"\x00\xff\x10", [("unit", "°C")])
    assert found.damage == []


def test_sessions_subscriptions_and_queues_come_in_order(database: Database) -> None:
    for number in (1, 2, 3):
        database.add("base_msgs", store_id=number, expiry_time=0, topic=f"q/{number}", payload=b"%d" % number, qos=1)
    database.add("clients", client_id="c", username="alice", session_expiry_time=NOW_S + 5, session_expiry_interval=60)
    database.add("subscriptions", client_id="c", topic="q/#", subscription_options=9, subscription_identifier=4)
    given = {"client_id": "c", "direction": 1, "qos": 1, "retain": 0, "subscription_identifier": 4}
    database.add("client_msgs", store_id=2, cmsg_id=1, mid=7, state=3, **given)
    database.add("client_msgs", store_id=1, cmsg_id=2, mid=0, state=11, **given)
    database.add("client_msgs", store_id=3, cmsg_id=3, mid=0, state=11, **given)
    database.add("wills", client_id="c", topic="gone", payload=b"x", payloadlen=1, qos=0, retain=0)
    found = database.read()
    session = found.sessions["c"]
    assert (session.owner, session.version, session.disconnected_at_ms) == ("alice", 5, NOW_MS - 55_000)
    assert session.subscriptions[b"q/#"].options == 9
    assert [(one.message.payload, one.packet_id, one.identifiers) for one in session.queue] == [
        (b"2", 7, (4,)),
        (b"1", 0, (4,)),
        (b"3", 0, (4,)),
    ]
    assert sum(found.left[WILLS].values()) == 1


def test_payloads_that_the_migration_tool_wrote_as_base64_come_as_they_were(tmp_path: Path) -> None:
    database = Database(tmp_path / "mosquitto.sqlite3", SCHEMA)  # the tool writes neither wills nor a version
    encoded = base64.b64encode(b"\x00\xffpicture").decode()
    database.retain(1, "camera/last", encoded, payloadlen=0)
    database.retain(2, "looks/like/it", b"aGVsbG8=")
    found = database.read()
    assert found.retained[b"camera/last"].payload == b"\x00\xffpicture"
    assert found.retained[b"looks/like/it"].payload == b"aGVsbG8="
    assert any(note.startswith("1 payloads were base64") for note in found.notes)


def test_topics_that_sqlite_took_for_numbers_are_named(database: Database) -> None:
    database.retain(1, "007", b"x")
    found = database.read()
    assert list(found.retained) == [b"7"]
    assert any("numbers" in note and "7" in note for note in found.notes)


def test_rows_in_the_write_ahead_log_are_read_and_the_original_stays_as_it_is(tmp_path: Path) -> None:
    database = Database(tmp_path / "mosquitto.sqlite3")
    database.connection.execute("PRAGMA journal_mode = WAL")
    database.retain(1, "in/the/log", b"x")
    database.connection.commit()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert before["mosquitto.sqlite3-wal"]
    assert list(read_file(database.path, None, NOW_MS).retained) == [b"in/the/log"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    database.connection.close()


def test_a_session_without_end_and_one_that_ended_are_told_apart(database: Database) -> None:
    database.add("clients", client_id="never", username=None, session_expiry_time=0, session_expiry_interval=2**32 - 1)
    database.add("clients", client_id="signed", username=None, session_expiry_time=0, session_expiry_interval=-1)
    database.add("clients", client_id="over", username="", session_expiry_time=NOW_S - 1, session_expiry_interval=9)
    found = database.read()
    assert {name: one.expiry_interval_s for name, one in found.sessions.items()} == {
        "never": 2**32 - 1,
        "signed": 2**32 - 1,
    }
    assert found.left[SESSIONS] == {"expired": 1}


def test_a_message_handed_over_and_not_released_is_kept_apart(database: Database) -> None:
    database.add("base_msgs", store_id=1, expiry_time=0, topic="in", payload=b"x", qos=2, retain=1)
    database.add("clients", client_id="c", username="", session_expiry_time=0, session_expiry_interval=2**32 - 1)
    database.add("client_msgs", client_id="c", store_id=1, direction=0, mid=3, qos=2, retain=0, state=7)
    session = database.read().sessions["c"]
    assert session.received[3].retain
    assert session.queue == []


def test_rows_without_a_message_are_counted(database: Database) -> None:
    database.add("retains", topic="lost", store_id=9)
    database.add("clients", client_id="c", username="", session_expiry_time=0, session_expiry_interval=2**32 - 1)
    database.add("client_msgs", client_id="c", store_id=9, direction=1, mid=0, qos=1, retain=0, state=11)
    found = database.read()
    assert sum(found.left[RETAINED].values()) == 1
    assert sum(found.left[QUEUED].values()) == 1
    assert found.sessions["c"].queue == []


def test_a_damaged_page_costs_the_rows_behind_it_and_is_named(tmp_path: Path) -> None:
    database = Database(tmp_path / "mosquitto.sqlite3")
    for number in range(400):
        database.retain(number, f"topic/{number:03}", b"p" * 200)
    database.connection.commit()
    database.connection.close()
    data = bytearray(database.path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 8192] = b"\xa5" * 8192
    database.path.write_bytes(data)
    found = read_file(database.path, None, NOW_MS)
    assert found.damage
    assert 0 < len(found.retained) < 400


def test_another_schema_and_another_database_are_refused(tmp_path: Path) -> None:
    newer = Database(tmp_path / "newer.sqlite3")
    newer.connection.execute("UPDATE version_info SET major = 2")
    with pytest.raises(UsageError, match=r"schema 2\.1"):
        newer.read()
    with pytest.raises(UsageError, match="base_msgs"):
        Database(tmp_path / "other.sqlite3", "CREATE TABLE songs (name TEXT)").read()


def test_deliveries_say_whether_their_receipt_came(database: Database) -> None:
    database.add("base_msgs", store_id=1, expiry_time=0, topic="q", payload=b"x", qos=2)
    database.add("clients", client_id="c", username="", session_expiry_time=0, session_expiry_interval=2**32 - 1)
    for mid, state in ((1, 5), (2, 9)):
        database.add("client_msgs", client_id="c", store_id=1, direction=1, mid=mid, qos=2, retain=0, state=state)
    queue = database.read().sessions["c"].queue
    message = queue[0].message
    assert queue == [FoundDelivery(message, 2, False, (), 1, False), FoundDelivery(message, 2, False, (), 2, True)]
