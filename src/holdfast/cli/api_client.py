"""The HTTP API as the command line calls it, with the standard library alone."""

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

from holdfast.errors import HoldfastError, UsageError

TIMEOUT_S = 120


class ApiError(HoldfastError):
    """The broker answered, and the answer is no. `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ApiClient:
    def __init__(self, url: str, key: str) -> None:
        """`key` is `name:secret`, or empty."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"expected a URL such as http://127.0.0.1:18083, got {url!r}")
        self.url = url.rstrip("/")
        self.headers = {"Accept": "application/json"}
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
                "--url names another one, --data a folder"
            ) from None
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
