"""Where `holdfast retained` finds its messages: a running broker, or a data folder. Both answer in the API's JSON."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from holdfast.cli.api_client import ApiClient, ApiError

PAGE = 1000


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
        refused: int = self.api.call("POST", "/publish/batch", messages)["refused"]
        return refused

    def ghosts(self, days: float, limit: int) -> dict[str, Any]:
        found: dict[str, Any] = self.api.call("GET", "/hygiene", days=days, limit=limit)
        return found
