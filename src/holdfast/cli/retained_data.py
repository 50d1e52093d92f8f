"""A data folder as the source of `holdfast retained`: each command is one call of a service, in this process."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from holdfast.cli.retained_source import Source
from holdfast.errors import NotFound, StoreError, UsageError
from holdfast.service.caller import OPERATOR
from holdfast.service.folder import FolderSource
from holdfast.service.history import HistoryService
from holdfast.service.hygiene import HygieneService
from holdfast.service.messages import row_of, summary_of, whole_of
from holdfast.service.requests import RestoreRequest, check_filter, conditions_from, publications_from
from holdfast.service.retained import RetainedService
from holdfast.service.source import BrokerHandle

SAMPLE = 20

T = TypeVar("T")


class DataSource(Source):
    batch = 100_000  # a broker is opened for each

    def __init__(self, root: Path) -> None:
        self.folder = FolderSource(root, open_broker)
        self.past = HistoryService(self.folder)
        self.retained = RetainedService(self.folder, self.past)

    @property
    def reads_history(self) -> bool:  # type: ignore[override]
        return self.folder.reads_history

    def find(self, topic_filter: str, payload: bool, **conditions: Any) -> Iterator[dict[str, Any]]:
        found = run(self.retained.find(conditions_from({"filter": topic_filter, **conditions}), OPERATOR))
        for message in sorted(found, key=lambda one: one.topic):
            yield whole_of(message) if payload else summary_of(message)

    def get(self, topic: str) -> dict[str, Any] | None:
        try:
            return whole_of(self.retained.get(topic, OPERATOR))
        except NotFound:
            return None

    def remove(self, topic_filter: str, really: bool, **conditions: Any) -> dict[str, Any]:
        found = run(self.retained.find(conditions_from({"filter": topic_filter, **conditions}), OPERATOR))
        found.sort(key=lambda message: message.topic)
        seen = {
            "dry_run": True,
            "count": len(found),
            "bytes": sum(message.size() for message in found),
            "sample": [message.topic.decode() for message in found[:SAMPLE]],
        }
        if not really or not found:
            return seen
        return {**seen, "dry_run": False, **asdict(run(self.retained.remove(found, OPERATOR)))}

    def history(self, topic: str, limit: int) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = run(self.past.of_topic(topic, 0, limit))["rows"]
        return rows

    def at(self, at_ms: int, offset: int, topic_filter: str) -> Iterator[dict[str, Any]]:
        check_filter(topic_filter)
        found = run(self.past.at(at_ms, offset, topic_filter))
        return map(row_of, found.rows.to_pylist())

    def restore(self, topic_filter: str, at_ms: int, offset: int, replace: bool, really: bool) -> dict[str, Any]:
        asked = RestoreRequest(filter=topic_filter, at_ms=at_ms, offset=offset, replace=replace, dry_run=not really)
        return asdict(run(self.retained.restore(asked, OPERATOR)))

    def undo(self, operation: str) -> dict[str, Any]:
        return asdict(run(self.retained.undo(operation, OPERATOR)))

    def publish(self, messages: list[dict[str, Any]]) -> int:
        return run(self.retained.publish(publications_from(messages), OPERATOR)).refused

    def ghosts(self, days: float, limit: int) -> dict[str, Any]:
        return run(HygieneService(self.folder).report(days, limit))


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@asynccontextmanager
async def open_broker(root: Path) -> AsyncIterator[BrokerHandle]:
    """A broker on the folder. It is loaded only here: reading needs none."""
    from holdfast.server import open_offline

    async with AsyncExitStack() as stack:
        try:
            handle = await stack.enter_async_context(open_offline(root))
        except StoreError as error:
            raise UsageError(f"{error}; to change what a running broker holds, use --url instead of --data") from None
        yield handle
