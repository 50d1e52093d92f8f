"""The HTTP API as tests call it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx

from broker_process import BrokerProcess

LISTEN = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")


class Api(httpx.Client):
    """Calls that must succeed are `ok`; the rest is httpx."""

    def __init__(self, broker: BrokerProcess, **options: Any) -> None:
        super().__init__(base_url=f"http://127.0.0.1:{broker.ports['http']}", timeout=120, **options)
        self.broker = broker

    def ok(self, method: str, path: str, **options: Any) -> Any:
        answer = self.request(method, path, **options)
        assert answer.status_code < 300, f"{answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def set(self, topic: str, payload: str = "1", **fields: Any) -> int:
        """Retain a message; its version."""
        body = {"topic": topic, "payload": payload, "retain": True, "qos": 1, **fields}
        version: int = self.ok("POST", "/api/v1/publish", json=body)["version"]
        return version

    def set_many(self, topics: list[str], payload: str = "1") -> None:
        for start in range(0, len(topics), 1000):
            batch = [{"topic": topic, "payload": payload, "retain": True} for topic in topics[start : start + 1000]]
            self.ok("POST", "/api/v1/publish/batch", json=batch)

    def topics(self, **query: Any) -> list[str]:
        """All pages of a listing."""
        found: list[str] = []
        while True:
            page = self.ok("GET", "/api/v1/retained", params=query)
            found += [message["topic"] for message in page["messages"]]
            if page["next"] is None:
                return found
            query["cursor"] = page["next"]

    def history(self, topic: str, rows: int) -> list[dict[str, Any]]:
        """The rows of a topic once there are so many: the table is a moment behind."""
        found: list[dict[str, Any]] = until(
            lambda: self.ok("GET", "/api/v1/history", params={"topic": topic})["rows"], lambda found: len(found) >= rows
        )
        return found


def until(ask: Callable[[], Any], enough: Callable[[Any], bool], timeout: float = 120) -> Any:
    deadline = time.monotonic() + timeout
    while True:
        found = ask()
        if enough(found):
            return found
        assert time.monotonic() < deadline, f"still {found} after {timeout} s"
        time.sleep(0.1)
