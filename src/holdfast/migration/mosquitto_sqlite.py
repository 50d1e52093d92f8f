"""`mosquitto.sqlite3`, what the plugin persist-sqlite of mosquitto 2.1 keeps, with schema 1.0 or 1.1.

A copy is read, with its write-ahead log, so that the original stays as it is. Known troubles that are made up for:

- mosquitto's own migration tool wrote payloads as base64 until 2.1.3. It wrote them as text, and the plugin writes
  blobs, so they can be told apart.
- The same tool writes a payload length of 0 where the publisher had no user name, so lengths are not believed.
- `topic` is declared as STRING, which SQLite takes for a number where it looks like one: `007` has become `7`. What it
  was is gone; the topic comes as it is there, and is named.
"""

import base64
import binascii
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from holdfast.errors import UsageError
from holdfast.migration.inventory import FoundMessage, Inventory, is_topic
from holdfast.migration.mosquitto_db import name_of
from holdfast.migration.mosquitto_store import (
    FOREVER_S,
    ClientMessageRow,
    ClientRow,
    MosquittoStore,
    SubscriptionRow,
    assemble,
)
from holdfast.protocol.mqtt.properties import Properties
from holdfast.service.messages import encode_forwarded

MAGIC: Final = b"SQLite format 3\x00"
WANTED: Final = {"base_msgs", "retains", "clients", "subscriptions", "client_msgs"}
LATEST_S: Final = 1 << 40
NAMED_AT_MOST: Final = 20

Row = dict[str, Any]


def read_file(path: Path, owner: str | None, now_ms: int) -> Inventory:
    """Read a database. Raises UsageError where there is nothing to read at all."""
    found = Inventory(f"mosquitto's {path.name}")
    with tempfile.TemporaryDirectory(prefix="holdfast-import-") as folder:
        copy = Path(folder) / "mosquitto.sqlite3"
        try:
            for suffix in ("", "-wal"):
                original = path.with_name(path.name + suffix)
                if not suffix or original.exists():
                    shutil.copyfile(original, copy.with_name(copy.name + suffix))
            connection = sqlite3.connect(copy)
        except (OSError, sqlite3.Error) as error:
            raise UsageError(f"cannot read {path}: {error}") from None
        try:
            Database(connection, found).read(path, owner, now_ms)
        finally:
            connection.close()
    return found


class Database:
    def __init__(self, connection: sqlite3.Connection, found: Inventory) -> None:
        self.connection = connection
        self.found = found
        # Text may be anything: what is no UTF-8 is found out later, and told.
        connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        self.encoded = 0
        self.numbers: list[str] = []
        self.stripped = 0

    def read(self, path: Path, owner: str | None, now_ms: int) -> None:
        try:
            tables = {
                name for (name,) in self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
        except sqlite3.DatabaseError as error:
            raise UsageError(f"{path} cannot be read as a database: {error}") from None
        if "base_msgs" not in tables:
            raise UsageError(f"{path} is a database, but not one of mosquitto's: it has no table base_msgs")
        for missing in sorted(WANTED - tables):
            self.found.damage.append(f"there is no table {missing}")
        if "version_info" in tables:
            self.check_version(path)
        store = MosquittoStore()
        for row in self.rows("base_msgs"):
            store.messages[row.get("store_id")] = self.message_of(row)
        store.retained = [row.get("store_id") for row in self.rows("retains")] if "retains" in tables else []
        if "clients" in tables:
            store.clients = [client_of(row) for row in self.rows("clients")]
        if "subscriptions" in tables:
            store.subscriptions = [subscription_of(row) for row in self.rows("subscriptions")]
        if "client_msgs" in tables:
            store.client_messages = [client_message_of(row) for row in self.rows("client_msgs")]
        if "wills" in tables:
            store.wills = sum(1 for _ in self.rows("wills"))
        assemble(store, self.found, owner, now_ms)
        self.tell()

    def check_version(self, path: Path) -> None:
        for row in self.rows("version_info"):
            major, minor = row.get("major"), row.get("minor")
            if row.get("component") == "database_schema" and (major != 1 or minor not in (0, 1)):
                raise UsageError(f"{path} has schema {major}.{minor}, expected 1.0 or 1.1")

    def rows(self, table: str) -> Iterator[Row]:
        """The rows of a table in the order in which they were written, as far as they can be read."""
        try:
            cursor = self.connection.execute(f"SELECT * FROM {table} ORDER BY rowid")
            names = [column[0] for column in cursor.description]
            for row in cursor:
                yield dict(zip(names, row, strict=True))
        except sqlite3.DatabaseError as error:
            self.found.damage.append(f"table {table} cannot be read to its end: {error}")

    def message_of(self, row: Row) -> FoundMessage:
        given = row.get("topic")
        topic = bytes_of(given)
        if isinstance(given, int | float):
            self.numbers.append(topic.decode())
        return FoundMessage(
            topic,
            self.payload_of(row.get("payload")),
            number_of(row.get("qos"), 2),
            self.properties_of(row.get("properties")),
            number_of(row.get("expiry_time"), LATEST_S) * 1000,
            name_of(bytes_of(row.get("source_id"))),
            name_of(bytes_of(row.get("source_username"))),
            bool(row.get("retain")),
        )

    def payload_of(self, given: Any) -> bytes:
        if not isinstance(given, str):
            return bytes_of(given)
        try:
            payload = base64.b64decode(bytes_of(given), validate=True)
        except (binascii.Error, ValueError):
            return bytes_of(given)
        self.encoded += 1
        return payload

    def properties_of(self, given: Any) -> bytes:
        if not isinstance(given, str):
            return b""
        try:
            return encode_forwarded(properties_from(json.loads(given)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, UsageError):
            self.stripped += 1
            return b""

    def tell(self) -> None:
        notes = self.found.notes
        if self.encoded:
            notes.append(
                f"{self.encoded} payloads were base64, as mosquitto's own migration tool wrote them before 2.1.3; they "
                "come as they were published"
            )
        if self.numbers:
            shown = ", ".join(self.numbers[:NAMED_AT_MOST])
            notes.append(f"SQLite took topics for numbers, and zeros in them may be gone: {shown}")
        if self.stripped:
            notes.append(f"{self.stripped} messages come without their properties, which cannot be read")


def client_of(row: Row) -> ClientRow:
    interval_s = number_of(row.get("session_expiry_interval"), FOREVER_S)
    if row.get("session_expiry_interval") == -1:  # a C integer of 32 bits, all ones
        interval_s = FOREVER_S
    return ClientRow(
        bytes_of(row.get("client_id")),
        bytes_of(row.get("username")),
        interval_s,
        number_of(row.get("session_expiry_time"), LATEST_S),
    )


def subscription_of(row: Row) -> SubscriptionRow:
    return SubscriptionRow(
        bytes_of(row.get("client_id")),
        bytes_of(row.get("topic")),
        number_of(row.get("subscription_options"), 0xFF),
        number_of(row.get("subscription_identifier"), 268_435_455),
    )


def client_message_of(row: Row) -> ClientMessageRow:
    identifier = number_of(row.get("subscription_identifier"), 268_435_455)
    return ClientMessageRow(
        bytes_of(row.get("client_id")),
        row.get("store_id"),
        number_of(row.get("mid"), 65535),
        number_of(row.get("qos"), 3),
        bool(row.get("retain")),
        number_of(row.get("direction"), 0xFF),
        number_of(row.get("state"), 0xFF),
        (identifier,) if identifier else (),
    )


def bytes_of(value: Any) -> bytes:
    """Whatever SQLite has made of it, as bytes; texts without UTF-8 come as they are."""
    if isinstance(value, bytes):
        return value
    if value is None:
        return b""
    return str(value).encode("utf-8", "surrogateescape")


def number_of(value: Any, most: int) -> int:
    """A number in its bounds; 0 for what is none."""
    return value if isinstance(value, int) and 0 <= value <= most else 0


def properties_from(given: Any) -> Properties:
    """Properties as mosquitto writes them in JSON: an array of identifier, value and, for a user property, name."""
    properties = Properties()
    pairs: list[tuple[str, str]] = []
    for one in given:
        name, value = one["identifier"], one["value"]
        if name == "content-type":
            properties.content_type = text_of(value)
        elif name == "response-topic":
            properties.response_topic = text_of(value).encode()
            if not is_topic(properties.response_topic):
                raise ValueError("a response topic with wildcards")
        elif name == "correlation-data":
            properties.correlation_data = bytes.fromhex(text_of(value))
        elif name == "payload-format-indicator":
            if not isinstance(value, int) or value not in (0, 1):
                raise ValueError("a payload format that is neither 0 nor 1")
            properties.payload_format = value
        elif name == "user-property":
            pairs.append((text_of(one["name"]), text_of(value)))
    properties.user_properties = pairs or None
    return properties


def text_of(value: Any) -> str:
    """Text as a property can carry it. Raises ValueError."""
    if not isinstance(value, str) or "\0" in value or len(value.encode()) > 65535:
        raise ValueError("expected text of up to 65535 bytes without NUL")
    return value
