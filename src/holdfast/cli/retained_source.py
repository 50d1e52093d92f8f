"""Where `holdfast retained` finds its messages: a running broker, or a data folder."""

from collections.abc import Iterator
from typing import Any

from holdfast.cli.api_client import ApiClient, ApiError

PAGE = 1000


class Source:
    """Messages are dictionaries as the API's JSON has them. `read_history`: the table was read in this process."""

    read_history = False

    def find(self, topic_filter: str, payload: bool, **conditions: Any) -> Iterator[dict[str, Any]]:
        raise NotImplementedError

    def get(self, topic: str) -> dict[str, Any] | None:
        raise NotImplementedError

    def remove(self, topic_filter: str, really: bool, **conditions: Any) -> dict[str, Any]:
        """`count` and `sample` of what matches; with `really` it is deleted, and `operation` says how to undo that."""
        raise NotImplementedError

    def history(self, topic: str, limit: int) -> list[dict[str, Any]]:
        """Newest first."""
        raise NotImplementedError

    def at(self, at_ms: int, offset: int, topic_filter: str) -> Iterator[dict[str, Any]]:
        raise NotImplementedError

    def restore(self, topic_filter: str, at_ms: int, offset: int, replace: bool, really: bool) -> dict[str, Any]:
        raise NotImplementedError

    def undo(self, operation: str) -> dict[str, Any]:
        raise NotImplementedError

    def publish(self, messages: list[dict[str, Any]]) -> int:
        """Publish with RETAIN; how many were refused."""
        raise NotImplementedError

    def ghosts(self, days: float, limit: int) -> dict[str, Any]:
        raise NotImplementedError


class ApiSource(Source):
    def __init__(self, url: str, key: str) -> None:
        self.api = ApiClient(url, key)

    def find(self, topic_filter: str, payload: bool, **conditions: Any) -> Iterator[dict[str, Any]]:
        limit = PAGE
        return self.api.pages(
            "/retained", "messages", "cursor", filter=topic_filter, payload=payload, limit=limit, **conditions
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
