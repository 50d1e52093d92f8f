"""Where `holdfast retained` finds its messages: a running broker through its HTTP API, or a data folder in this
process. Both answer in the API's JSON.
"""

import asyncio
import base64
import http.client
import json
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from holdfast.broker.message import Message
from holdfast.errors import HoldfastError, NotFound, StoreError, UsageError
from holdfast.service.caller import OPERATOR
from holdfast.service.folder import FolderSource
from holdfast.service.history import HistoryService
from holdfast.service.hygiene import HygieneService
from holdfast.service.messages import row_of, summary_of, whole_of
from holdfast.service.past import Moment
from holdfast.service.requests import Conditions, RestoreRequest, check_filter, conditions_from, publications_from
from holdfast.service.retained import RetainedService
from holdfast.service.source import BrokerHandle

TIMEOUT_S = 120


class ApiError(HoldfastError):
    """The broker answered, and the answer is no. `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


WRONG_KEY = "the name or the secret of --key (or HOLDFAST_KEY) is wrong"
NO_KEY = "give --key NAME:SECRET, or set HOLDFAST_KEY, with an API key or a user of the broker"


class ApiClient:
    def __init__(self, url: str, key: str, instead: str = "--url names another one, --data a folder") -> None:
        """`key` is `name:secret`, or empty; `instead` is what to try when there is no answer."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"expected a URL such as http://127.0.0.1:18083, got {url!r}")
        self.url = url.rstrip("/")
        self.instead = instead
        # A connection for each call: there are few, and none is left open for a broker that ends to wait for.
        self.headers = {"Accept": "application/json", "Connection": "close"}
        if key and ":" not in key:
            raise UsageError("expected --key NAME:SECRET (or HOLDFAST_KEY), got one without a colon")
        if key:
            self.headers["Authorization"] = "Basic " + base64.b64encode(key.encode()).decode()
        self.connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            self.connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=TIMEOUT_S, context=context
            )
        else:
            self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)

    def call(self, method: str, path: str, body: object = None, **query: object) -> Any:
        given = {name: text(value) for name, value in query.items() if value is not None}
        target = f"/api/v1{path}" + (f"?{urlencode(given)}" if given else "")
        data = None if body is None else json.dumps(body).encode()
        headers = self.headers if data is None else {**self.headers, "Content-Type": "application/json"}
        try:
            self.connection.request(method, target, data, headers)
            response = self.connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            raise UsageError(
                f"no answer from {self.url}: {getattr(error, 'strerror', None) or error}; is the broker running? "
                f"{self.instead}"
            ) from None
        if response.status == http.client.UNAUTHORIZED:
            has_key = "Authorization" in self.headers
            raise ApiError(response.status, WRONG_KEY if has_key else f"{self.url} asks for a login: {NO_KEY}")
        if response.status >= 400:
            raise ApiError(response.status, explained(content, response.status))
        return json.loads(content) if content else None

    def pages(self, path: str, items: str, cursor: str, **query: object) -> Iterator[Any]:
        """Everything of a paged answer, one by one. `cursor` is the parameter that takes `next`."""
        while True:
            page = self.call("GET", path, **query)
            yield from page[items]
            if page["next"] is None:
                return
            query[cursor] = page["next"]


def text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def explained(content: bytes, status: int) -> str:
    try:
        problem = json.loads(content)
        return f"{problem['detail']}"
    except (ValueError, KeyError, TypeError):
        return f"the server answered with status {status}"


PAGE = 1000
MOMENT_PAGE = 20_000  # of a past moment: each page is looked for in the table, and bounded in bytes too
BATCH_BYTES = 512 * 1024


class Source(ABC):
    """Messages are dictionaries as the API's JSON has them. `reads_history`: the table was read in this process.
    `batch` is how many messages are published at once.
    """

    reads_history = False
    batch = 500

    @abstractmethod
    def find(self, topic_filter: str, payload: bool, **conditions: Any) -> Iterator[dict[str, Any]]: ...

    @abstractmethod
    def get(self, topic: str) -> dict[str, Any] | None: ...

    @abstractmethod
    def remove(self, topic_filter: str, really: bool, **conditions: Any) -> dict[str, Any]:
        """`count`, `bytes` and `sample` of what matches; with `really` it is deleted, and `operation` undoes that."""

    @abstractmethod
    def history(self, topic: str, limit: int) -> list[dict[str, Any]]:
        """Newest first."""

    @abstractmethod
    def reach(self) -> dict[str, Any]:
        """How far the history goes: `from_ms`, `upto` (an offset), and `live_from`."""

    def records_live(self) -> bool:
        """Whether publishes without RETAIN go to the history."""
        return bool(self.reach()["live_from"])

    @abstractmethod
    def at(self, at_ms: int, offset: int, topic_filter: str) -> Iterator[dict[str, Any]]: ...

    @abstractmethod
    def restore(self, topic_filter: str, at_ms: int, offset: int, replace: bool, really: bool) -> dict[str, Any]: ...

    @abstractmethod
    def undo(self, operation: str) -> dict[str, Any]: ...

    @abstractmethod
    def publish(self, messages: list[dict[str, Any]]) -> int:
        """Publish; returns how many were refused."""

    @abstractmethod
    def ghosts(self, days: float, limit: int) -> dict[str, Any]: ...


class ApiSource(Source):
    """A running broker, asked over HTTP."""

    def __init__(self, url: str, key: str) -> None:
        self.api = ApiClient(url, key)

    def find(self, topic_filter: str, payload: bool, **conditions: Any) -> Iterator[dict[str, Any]]:
        return self.api.pages(
            "/retained", "messages", "cursor", filter=topic_filter, payload=payload, limit=PAGE, **conditions
        )

    def get(self, topic: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self.api.call("GET", "/retained/message", topic=topic)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found

    def remove(self, topic_filter: str, really: bool, **conditions: Any) -> dict[str, Any]:
        seen: dict[str, Any] = self.api.call("DELETE", "/retained", filter=topic_filter, dry_run=True, **conditions)
        if not really or not seen["count"]:
            return seen
        done = self.api.call(
            "DELETE", "/retained", filter=topic_filter, dry_run=False, token=seen["token"], **conditions
        )
        return {**seen, **done}

    def history(self, topic: str, limit: int) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        pages = self.api.pages("/history", "rows", "before", topic=topic, limit=min(limit, PAGE))
        for row in pages:
            rows.append(row)
            if len(rows) == limit:
                break
        return rows

    def reach(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.call("GET", "/history/span")
        return found

    def at(self, at_ms: int, offset: int, topic_filter: str) -> Iterator[dict[str, Any]]:
        return self.api.pages(
            "/retained/at", "messages", "after", filter=topic_filter, at_ms=at_ms, offset=offset, limit=PAGE
        )

    def restore(self, topic_filter: str, at_ms: int, offset: int, replace: bool, really: bool) -> dict[str, Any]:
        asked = {
            "filter": topic_filter,
            "at_ms": at_ms,
            "offset": offset,
            "replace": replace,
            "dry_run": not really,
        }
        found: dict[str, Any] = self.api.call("POST", "/retained/restore", asked)
        return found

    def undo(self, operation: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.call("POST", f"/operations/{operation}/undo")
        return found

    def publish(self, messages: list[dict[str, Any]]) -> int:
        refused = 0
        for batch in portions(messages):
            refused += self.api.call("POST", "/publish/batch", batch)["refused"]
        return refused

    def ghosts(self, days: float, limit: int) -> dict[str, Any]:
        found: dict[str, Any] = self.api.call("GET", "/hygiene", days=days, limit=limit)
        return found


def portions(messages: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The messages in order, in batches of so few bytes, or of one message, that every broker takes them."""
    batch: list[dict[str, Any]] = []
    size = 0
    for message in messages:
        own = len(json.dumps(message))
        if batch and size + own > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += own
    if batch:
        yield batch


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
        found = run(self.find_all(conditions_from({"filter": topic_filter, **conditions})))
        for message in sorted(found, key=lambda one: one.topic):
            yield whole_of(message) if payload else summary_of(message)

    async def find_all(self, conditions: Conditions) -> list[Message]:
        return [message async for portion in self.retained.find(conditions, OPERATOR) for message in portion]

    def get(self, topic: str) -> dict[str, Any] | None:
        try:
            return whole_of(self.retained.get(topic, OPERATOR))
        except NotFound:
            return None

    def remove(self, topic_filter: str, really: bool, **conditions: Any) -> dict[str, Any]:
        found = run(self.retained.find_writable(conditions_from({"filter": topic_filter, **conditions}), OPERATOR))
        found.sort()
        seen = {
            "dry_run": True,
            "count": len(found),
            "bytes": sum(one.size for one in found),
            "sample": [one.topic.decode() for one in found[:SAMPLE]],
        }
        if not really or not found:
            return seen
        return {**seen, "dry_run": False, **asdict(run(self.retained.remove(found, OPERATOR)))}

    def history(self, topic: str, limit: int) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        before: int | None = 0
        while before is not None and len(rows) < limit:
            found = run(self.past.of_topic(topic, before, limit - len(rows)))
            rows += found["rows"]
            before = found["next"]
        return rows

    def reach(self) -> dict[str, Any]:
        return run(self.past.span())

    def at(self, at_ms: int, offset: int, topic_filter: str) -> Iterator[dict[str, Any]]:
        check_filter(topic_filter)
        moment = Moment(at_ms, offset, topic_filter)
        after: str | None = ""
        while after is not None:
            rows, after, _ = run(self.past.page_at(moment, after, MOMENT_PAGE, OPERATOR))
            yield from map(row_of, rows)

    def restore(self, topic_filter: str, at_ms: int, offset: int, replace: bool, really: bool) -> dict[str, Any]:
        asked = RestoreRequest(
            filter=topic_filter, at_ms=at_ms, offset=offset, replace=replace, remove=False, dry_run=not really
        )
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
