"""Bodies of requests: how many bytes, how slowly, how many large ones at once, and how they become JSON.

A body is read whole before anything looks at it, because every operation wants it whole. Who is not known yet has room
for a login and no more; who is known has room for what an operation needs. Only a few large bodies are held at the same
time, and the rest wait where they come from.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from json.decoder import JSONArray, JSONObject, scanstring  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api.problem import Problem, response

# Name and password, of a thousand characters each, however they are escaped.
UNKNOWN_BYTES = 16 * 1024
# A request that is no publish: a topic filter and a few numbers.
SMALL_BYTES = 512 * 1024
# Beside the payload of a publish: topic and properties, or many short messages in one batch.
PUBLISH_SLACK = 1 << 20
PUBLISH_PATHS = ("/api/v1/publish", "/api/v1/publish/batch", "/api/v5/publish")
# How fast a body has to come, in bytes a second, once the time for its first byte is over.
PACE = 32 * 1024
# From here on a body is large: it waits for its turn, and is parsed beside the event loop.
LARGE_BYTES = 256 * 1024
LARGE_AT_ONCE = 4
# Texts, numbers, lists and objects in a large body. A batch of a thousand messages with all they may carry has fewer.
VALUES_MOST = 500_000


class BoundedBodies:
    """`payload_bytes` is the largest payload that may be published. `wait_s` is the time for the first bytes."""

    def __init__(self, app: ASGIApp, payload_bytes: int, wait_s: float) -> None:
        self.app = app
        self.publish_bytes = payload_bytes * 4 // 3 + PUBLISH_SLACK
        self.wait_s = wait_s
        self.large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        if length in ("", "0") and "transfer-encoding" not in headers:
            await self.app(scope, receive, send)
            return
        body = Body(receive, self.most(scope), self.wait_s, self.large)
        try:
            if length.isascii() and length.isdigit() and int(length) > body.most:
                raise too_large(body.most)
            await body.read()
            await self.app(scope, body.replay, send)
        except Problem as problem:
            await response(problem.status, problem.detail)(scope, receive, send)
        finally:
            body.release()

    def most(self, scope: Scope) -> int:
        if scope["state"]["caller"] is None:
            return UNKNOWN_BYTES
        return self.publish_bytes if scope["path"] in PUBLISH_PATHS else SMALL_BYTES


def too_large(most: int) -> Problem:
    return Problem(413, f"the body is larger than this request may have, expected no more than {most} bytes")


class Body:
    """One body on its way in; afterwards `replay` hands it on as if it had come in one piece."""

    def __init__(self, receive: Receive, most: int, wait_s: float, large: asyncio.Semaphore) -> None:
        self.receive = receive
        self.most = most
        self.wait_s = wait_s
        self.large = large
        self.is_large = False
        self.data = bytearray()
        self.given = False

    async def read(self) -> None:
        """Raises Problem when there is too much of it, or when it comes too slowly."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.wait_s
        more = True
        while more:
            if not self.is_large and len(self.data) > LARGE_BYTES:
                waited_from = loop.time()
                await self.large.acquire()
                self.is_large = True
                deadline += loop.time() - waited_from
            try:
                async with asyncio.timeout_at(deadline + len(self.data) / PACE):
                    message = await self.receive()
            except TimeoutError:
                raise Problem(408, "the body arrived too slowly, or not at all") from None
            if message["type"] != "http.request":
                raise Problem(400, "the connection ended before the body did")
            self.data += message.get("body", b"")
            if len(self.data) > self.most:
                raise too_large(self.most)
            more = message.get("more_body", False)

    async def replay(self) -> Message:
        if self.given:
            return await self.receive()
        self.given = True
        body, self.data = bytes(self.data), bytearray()
        return {"type": "http.request", "body": body, "more_body": False}

    def release(self) -> None:
        if self.is_large:
            self.is_large = False
            self.large.release()


class StepwiseDecoder(json.JSONDecoder):
    """The standard decoder with the structure read in Python: its C twin holds the interpreter's lock from the first
    byte to the last, and then a thread is no help. Texts are still read by C, one at a time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left = VALUES_MOST
        self.parse_object = self.counted(JSONObject)
        self.parse_array = self.counted(JSONArray)
        self.parse_string = self.counted(scanstring)
        self.parse_int = self.counted(int)
        self.parse_float = self.counted(float)
        self.scan_once = py_make_scanner(self)

    def counted(self, parse: Callable[..., Any]) -> Callable[..., Any]:
        def one(*given: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Problem(413, f"the body has too many values, expected no more than {VALUES_MOST}")
            return parse(*given)

        return one


def parse_stepwise(body: bytes) -> Any:
    """Raises Problem for what is no JSON."""
    try:
        return StepwiseDecoder().decode(body.decode())
    except RecursionError:
        raise Problem(422, "the body is nested too deep") from None
    except ValueError as error:
        raise Problem(422, f"the body is not JSON: {error}") from None


parsers = ThreadPoolExecutor(1, thread_name_prefix="holdfast-json")


class LargeBodyRoute(APIRoute):
    """Operations whose large bodies are parsed beside the event loop."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def parse_and_handle(request: Request) -> Response:
            if request.method != "GET":
                body = await request.body()
                if len(body) > LARGE_BYTES:
                    loop = asyncio.get_running_loop()
                    # Where the framework looks for what it has parsed before.
                    request._json = await loop.run_in_executor(parsers, parse_stepwise, body)
            return await handle(request)

        return parse_and_handle
