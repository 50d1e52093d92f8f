"""A data folder as the source of `holdfast retained`: read while a broker may run on it, written only when none does.

Reading takes the state on disk and what the journal holds beyond it. Writing takes the folder's lock and goes through a
broker without listeners, so that every change is in journal, state and history like any other.
"""

import asyncio
import base64
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.api import survey as surveys
from holdfast.api.message import forwarded_of, summary_of, whole_of
from holdfast.broker.core import Broker
from holdfast.broker.message import CLEARED, SET, Message, Publisher
from holdfast.broker.record_shape import sound_only
from holdfast.broker.records import PUBLISH as PUBLISH_RECORD
from holdfast.broker.records import Publishers, decode_publish, publish_outcome, record_kind
from holdfast.broker.settings import Settings
from holdfast.broker.topics import matches
from holdfast.broker.views import ANY, Query
from holdfast.cli.retained_source import Source
from holdfast.errors import StoreError, UsageError
from holdfast.journal.reader import Reader
from holdfast.journal.watermark import Watermark
from holdfast.protocol.mqtt.properties import Properties
from holdfast.state.store import StateStore
from holdfast.storage.folder import DataFolder

PORTION = 500


class FolderSource(Source):
    def __init__(self, root: Path) -> None:
        self.folder = DataFolder(root)
        if not self.folder.state.is_dir():
            raise UsageError(f"{root} is not a data folder, expected one that a broker has used")
        self.now_ms = int(time.time() * 1000)

    def messages(self) -> dict[bytes, Message]:
        """The retained set: the state, brought up to the end of the journal."""
        store = StateStore(self.folder.state, readonly=True)
        found: dict[bytes, Message] = {}
        try:
            for stretch in store.retained.all():
                for message in stretch:
                    found[message.topic] = message
            applied = store.applied
        finally:
            store.close()
        try:
            watermark = Watermark(self.folder.journal)
        except OSError:
            return found  # a state without a journal is all there is
        limit = watermark.get()
        watermark.close()
        reader = Reader(self.folder.journal, applied)
        publishers = Publishers()
        while records := reader.read(limit):
            for record in sound_only(records):
                if record_kind(record) == PUBLISH_RECORD and publish_outcome(record) in (SET, CLEARED):
                    message = decode_publish(record, publishers)
                    found.pop(message.topic, None)
                    if publish_outcome(record) == SET:
                        found[message.topic] = message
        reader.close()
        return {topic: message for topic, message in found.items() if not message.expired(self.now_ms)}

    def matching(self, topic_filter: str, conditions: dict[str, Any]) -> list[Message]:
        query = query_of(conditions, self.now_ms)
        levels = topic_filter.encode().split(b"/")
        found = [
            message
            for topic, message in self.messages().items()
            if (query.hidden or matches(levels, topic.split(b"/"))) and query.wants(message, self.now_ms)
        ]
        return sorted(found, key=lambda message: message.topic)

    def find(self, topic_filter: str, payload: bool, **conditions: Any) -> Iterator[dict[str, Any]]:
        for message in self.matching(topic_filter, conditions):
            yield whole_of(message) if payload else summary_of(message)

    def get(self, topic: str) -> dict[str, Any] | None:
        message = self.messages().get(topic.encode())
        return None if message is None else whole_of(message)

    def remove(self, topic_filter: str, really: bool, **conditions: Any) -> dict[str, Any]:
        found = self.matching(topic_filter, conditions)
        size = sum(message.size() for message in found)
        seen = {
            "count": len(found),
            "bytes": size,
            "sample": [message.topic.decode() for message in found[:20]],
            "dry_run": not really,
        }
        if not really or not found:
            return seen
        operation = new_operation()
        rows = [(message.topic, b"", message.qos, b"", -1) for message in found]
        self.write(operation, rows)
        return {**seen, "operation": operation}

    def history(self, topic: str, limit: int) -> list[dict[str, Any]]:
        from holdfast.api.rows import whole_row

        rows = self.reader().of_topic(topic, most=limit).to_pylist()
        return [whole_row(row) for row in reversed(rows)]

    def at(self, at_ms: int, offset: int, topic_filter: str) -> Iterator[dict[str, Any]]:
        from holdfast.api.rows import whole_row

        for row in self.rows_at(at_ms, offset, topic_filter):
            yield whole_row(row)

    def rows_at(self, at_ms: int, offset: int, topic_filter: str) -> list[dict[str, Any]]:
        reader = self.reader()
        table = (
            reader.retained_upto(offset, self.now_ms, topic_filter)
            if offset
            else reader.retained_at(at_ms, topic_filter)
        )
        found: list[dict[str, Any]] = table.to_pylist()
        return found

    def reader(self) -> Any:
        try:
            from holdfast.history.reader import HistoryReader
        except ImportError:
            raise UsageError("the history cannot be read: install holdfast[history]") from None
        if not self.folder.has_history():
            raise UsageError(f"there is no history in {self.folder.root}")
        self.read_history = True
        return HistoryReader(self.folder.history)

    def restore(self, topic_filter: str, at_ms: int, offset: int, replace: bool, really: bool) -> dict[str, Any]:
        return self.bring_back(self.rows_at(at_ms, offset, topic_filter), replace, really)

    def undo(self, operation: str) -> dict[str, Any]:
        from holdfast.api.rows import removed_by

        rows = removed_by(self.reader(), operation)
        if not rows:
            raise UsageError(f"no delete named {operation!r} is in the history")
        return self.bring_back(rows, False, True)

    def bring_back(self, rows: list[dict[str, Any]], replace: bool, really: bool) -> dict[str, Any]:
        from holdfast.history.rows import forwarded

        now = self.messages()
        counts = {"restored": 0, "present": 0, "expired": 0, "refused": 0}
        writes: list[tuple[bytes, bytes, int, bytes, int]] = []
        for row in rows:
            topic = row["topic"].encode()
            stored = now.get(topic)
            left_s = -1 if row["expires_at"] is None else int(row["expires_at"].timestamp() - self.now_ms / 1000)
            if row["expires_at"] is not None and left_s <= 0:
                counts["expired"] += 1
            elif stored is not None and (not replace or stored.payload == row["payload"]):
                counts["present"] += 1
            else:
                counts["restored"] += 1
                writes.append((topic, row["payload"], row["qos"], forwarded(row), left_s))
        operation = new_operation()
        if really and writes:
            self.write(operation, writes)
        return {"operation": operation, "dry_run": not really, **counts}

    def publish(self, messages: list[dict[str, Any]]) -> int:
        rows = []
        for one in messages:
            properties = Properties()
            properties.content_type = one.get("content_type")
            properties.payload_format = one.get("payload_format")
            if one.get("response_topic") is not None:
                properties.response_topic = one["response_topic"].encode()
            if one.get("correlation_data") is not None:
                properties.correlation_data = base64.b64decode(one["correlation_data"])
            if one.get("user_properties"):
                properties.user_properties = [(key, value) for key, value in one["user_properties"]]
            expiry_s = one.get("expiry_s")
            rows.append(
                (
                    one["topic"].encode(),
                    base64.b64decode(one["payload"]),
                    one["qos"],
                    forwarded_of(properties),
                    -1 if expiry_s is None else expiry_s,
                )
            )
        self.write(new_operation(), rows)
        return 0

    def ghosts(self, days: float, limit: int) -> dict[str, Any]:
        survey = surveys.begin(self.now_ms, days, 3600, 2, limit)
        messages = self.messages()
        for message in messages.values():
            if not message.topic.startswith(b"$"):
                survey.add(message)
        store = StateStore(self.folder.state, readonly=True)
        try:
            known = {session.record.client_id for session in store.sessions.all()}
        finally:
            store.close()
        return surveys.report(survey, days, limit, known, messages.get)

    def write(self, operation: str, rows: list[tuple[bytes, bytes, int, bytes, int]]) -> None:
        """Publish rows of (topic, payload, qos, properties, seconds to live) with RETAIN."""
        asyncio.run(write_rows(self.folder.root, operation, rows, self.folder.has_history()))


async def write_rows(
    root: Path, operation: str, rows: list[tuple[bytes, bytes, int, bytes, int]], history: bool
) -> None:
    from holdfast.net.driver import Driver
    from holdfast.storage.disk import DiskStorage

    settings = Settings()
    settings.max_retained_payload = 0  # whoever works on the folder is past the limits for clients
    broker = Broker(settings, "")
    loop = asyncio.get_running_loop()
    driver = Driver(broker, loop)
    storage = DiskStorage(root, loop)
    try:
        driver.use_log(storage.open("ack", ["#"] if history else None))
    except StoreError as error:
        raise UsageError(f"{error}; to change what a running broker holds, use --url instead of --data") from None
    driver.carry_out(storage.load(broker, driver.now_ms(), True))
    storage.start(history, 1.0, 0, 0)
    publisher = Publisher(operation, "", "api")
    try:
        for start in range(0, len(rows), PORTION):
            for topic, payload, qos, properties, expiry_s in rows[start : start + PORTION]:
                driver.publish(publisher, topic, payload, qos, True, properties, expiry_s)
            await driver.durable()
    finally:
        await storage.stop(None)  # who asked waits for the state to be current


def query_of(conditions: dict[str, Any], now_ms: int) -> Query:
    query = Query()
    query.contains = (conditions.get("contains") or "").encode()
    query.client_id = conditions.get("client_id") or ""
    query.username = conditions.get("username") or ""
    query.min_size = conditions.get("min_size", ANY) if conditions.get("min_size") is not None else ANY
    older_than, newer_than = conditions.get("older_than"), conditions.get("newer_than")
    if older_than is not None:
        query.stored_before_ms = now_ms - int(older_than * 1000)
    if newer_than is not None:
        query.stored_after_ms = now_ms - int(newer_than * 1000)
    query.hidden = bool(conditions.get("hidden"))
    return query


def new_operation() -> str:
    return f"api-{secrets.token_hex(6)}"
