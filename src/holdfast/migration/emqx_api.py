"""EMQX's HTTP API, version 5: the retained messages of a running broker, page by page, each with its payload.

The pages are taken from a table that may change meanwhile, and none of them says so: they are read until two passes in
a row bring the same topics. Properties, expiry and payloads beyond a size are not told by this API.
"""

import base64
import binascii
import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from holdfast.errors import UsageError
from holdfast.migration.inventory import DAMAGED, RETAINED, FoundMessage, Inventory

PAGE: Final = 1000
PAGES_MOST: Final = 1_000_000
ANSWER_MOST: Final = 64 << 20
TIMEOUT_S: Final = 60
GONE = "went away while it was read"

Progress = Callable[[str, int], None]


class EmqxApi:
    """`key` is an API key and its secret, `name:secret`."""

    def __init__(self, url: str, key: str, context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise UsageError(f"expected a URL such as http://emqx.example:18083, got {url!r}")
        if not key:
            raise UsageError("EMQX's API needs a key: --from-key NAME:SECRET, made in its dashboard under API Keys")
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self.base = parts.path.rstrip("/").removesuffix("/api/v5")
        self.headers = {
            "Accept": "application/json",
            "Authorization": "Basic " + base64.b64encode(key.encode()).decode(),
        }
        self.connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = context or ssl.create_default_context()
            self.connection = http.client.HTTPSConnection(parts.hostname, port, timeout=TIMEOUT_S, context=context)
        else:
            self.connection = http.client.HTTPConnection(parts.hostname, port, timeout=TIMEOUT_S)

    def get(self, path: str, **query: object) -> tuple[int, Any]:
        """Status and body. Raises UsageError when there is no answer that makes sense."""
        target = f"{self.base}/api/v5{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            self.connection.request("GET", target, headers=self.headers)
            response = self.connection.getresponse()
            content = response.read(ANSWER_MOST + 1)
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            raise UsageError(f"no answer from {self.url}: {getattr(error, 'strerror', None) or error}") from None
        if len(content) > ANSWER_MOST:
            raise UsageError(f"{self.url} answers with more than {ANSWER_MOST} bytes at once")
        if response.status in (401, 403):
            raise UsageError(f"{self.url} refuses the API key ({response.status}); see --from-key")
        try:
            return response.status, json.loads(content) if content else None
        except (ValueError, RecursionError):
            raise UsageError(f"{self.url}{target} answers with something that is not JSON; is it EMQX's API?") from None

    def topics(self) -> Iterator[str]:
        """The topics of all pages, as they come."""
        for page in range(1, PAGES_MOST):
            status, answer = self.get("/mqtt/retainer/messages", page=page, limit=PAGE)
            if status != 200 or not isinstance(answer, dict) or not isinstance(answer.get("data"), list):
                raise UsageError(f"{self.url} answers {status} for its retained messages: {said(answer)}")
            rows = answer["data"]
            for row in rows:
                if not isinstance(row, dict) or not isinstance(row.get("topic"), str):
                    raise UsageError(f"{self.url} lists something that has no topic; is it EMQX's API?")
                yield row["topic"]
            meta = answer.get("meta")
            has_next = meta.get("hasnext") if isinstance(meta, dict) else None
            if not rows or has_next is False or (has_next is None and len(rows) < PAGE):
                return

    def message(self, topic: str) -> dict[str, Any] | None:
        """One message; None when it is not there any more."""
        status, answer = self.get(f"/mqtt/retainer/message/{quote(topic, safe='')}")
        if status == 404:
            return None
        if status != 200 or not isinstance(answer, dict):
            raise UsageError(f"{self.url} answers {status} for topic {topic!r}: {said(answer)}")
        return answer

    def close(self) -> None:
        self.connection.close()


def said(answer: Any) -> str:
    return str(answer.get("message", answer))[:200] if isinstance(answer, dict) else str(answer)[:200]


def read_api(api: EmqxApi, passes: int, now_ms: int, on_progress: Progress = lambda what, count: None) -> Inventory:
    """Raises UsageError when the retained set cannot be had whole."""
    found = Inventory(f"EMQX at {api.url}")
    topics = agreed_topics(api, passes, on_progress)
    for count, topic in enumerate(sorted(topics), 1):
        message = api.message(topic)
        if message is None:
            found.leave(RETAINED, GONE)
        else:
            add(found, topic, message, now_ms)
        on_progress("reading", count)
    found.notes.append(
        "EMQX's API tells neither properties nor expiry: mqtt:// or an export (emqx ctl data export) brings them"
    )
    return found


def agreed_topics(api: EmqxApi, passes: int, on_progress: Progress) -> set[str]:
    before: set[str] | None = None
    latest: set[str] = set()
    for number in range(1, passes + 1):
        latest = set(api.topics())
        on_progress(f"pass {number}", len(latest))
        if before == latest:
            return latest
        before = latest
    raise UsageError(
        f"{api.url} lists other topics each time, the last time {len(latest)}: they come and go; --passes tries more "
        "often"
    )


def add(found: Inventory, topic: str, given: dict[str, Any], now_ms: int) -> None:
    payload, qos = given.get("payload"), given.get("qos", 0)
    if payload is None:
        found.leave(RETAINED, "its payload is too large for EMQX's API (mqtt:// or an export brings it)")
        return
    try:
        data = base64.b64decode(payload, validate=True)
        name = topic.encode()
    except (binascii.Error, ValueError, TypeError):
        found.leave(RETAINED, DAMAGED)
        return
    if qos not in (0, 1, 2):
        found.leave(RETAINED, DAMAGED)
        return
    found.add_retained(FoundMessage(name, data, qos, retain=True), now_ms)
