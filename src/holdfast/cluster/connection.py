"""A connection to one of several NATS servers, made again whenever it is lost.

NATS speaks lines of text and counted bytes; all that is needed of it stands here. A library would decide two things
that must be decided by us: what happens to bytes that could not be sent (they are forgotten: whoever sent them knows
best whether to send them again), and how long a server that stands still is waited for (a connection that is given up
is aborted; one that is closed politely first waits until the peer has read everything, which it may never do).

Callbacks are called from within the read, in the order of arrival, and must not wait.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast
from urllib.parse import urlsplit

from holdfast.cluster.nkeys import Signer
from holdfast.cluster.options import ConnectionOptions
from holdfast.errors import ConfigError, ConnectionFailed, ConnectionLost, NoAnswer, Refused
from holdfast.problem import without_login

log = logging.getLogger("holdfast.cluster")

VERSION_FLOOR: Final = (2, 12, 6)  # before it a leader could commit what an older one had proposed [Raft 5.4.2]
DEFAULT_PORT: Final = 4222
PING_S: Final = 2.0
SILENCE_S: Final = 5.0  # a server that has said nothing for so long, not even PONG, is given up
CONNECT_S: Final = 5.0
FAREWELL_S: Final = 1.0
RETRY_S: Final = (0.05, 1.0)  # the first pause between two rounds over all servers, and the longest
NO_RESPONDERS: Final = 503


@dataclass(frozen=True, slots=True)
class Message:
    subject: str
    reply: str
    headers: bytes
    payload: bytes

    @property
    def status(self) -> int:
        """The number in the first line of the headers: NATS' own word about something; 0 for a message of a client."""
        digits = self.headers[9:12]
        return int(digits) if digits.isdigit() else 0

    @property
    def description(self) -> str:
        return self.headers.partition(b"\r\n")[0][13:].decode(errors="replace")

    def header(self, name: bytes) -> str:
        start = self.headers.find(b"\r\n" + name + b":")
        if start < 0:
            return ""
        start += len(name) + 3
        return self.headers[start : self.headers.find(b"\r\n", start)].strip().decode(errors="replace")


class Listener(Protocol):
    def on_connected(self) -> None: ...

    def on_lost(self, why: str) -> None: ...


OnMessage = Callable[[Message], None]


class Connection:
    """Keeps one connection. Subscriptions outlive it; what is published while there is none is not sent."""

    def __init__(self, options: ConnectionOptions, loop: asyncio.AbstractEventLoop) -> None:
        self.options = options
        self.loop = loop
        self.listeners: list[Listener] = []
        self.url = ""  # of the server that we are connected to, or were
        self.why = "not connected yet"  # the last thing that went wrong
        self.connects = 0
        self.server: dict[str, Any] = {}  # what the server said about itself
        self.on_trouble: Callable[[str], None] = lambda why: None
        self._signer = Signer(options.credentials_file, options.nkey_seed_file)
        self._tls = _tls_context(options)
        self._link: _Link | None = None
        self._subscriptions: dict[int, tuple[str, OnMessage]] = {}
        self._last_id = 0
        self._inbox = f"_INBOX.{random.randbytes(12).hex()}"
        self._requests: dict[str, asyncio.Future[Message]] = {}
        self._last_request = 0
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] | None = None
        if not options.urls:
            raise ConfigError("no log servers are named: expected one or more URLs such as nats://host:4222")
        for url in options.urls:
            _host_and_port(url)
        self.subscribe(f"{self._inbox}.*", self._on_reply)

    @property
    def is_connected(self) -> bool:
        return self._link is not None

    @property
    def max_payload(self) -> int:
        return int(self.server.get("max_payload", 0))

    @property
    def unsent_bytes(self) -> int:
        """What the socket has not taken yet."""
        return self._link.unsent_bytes if self._link is not None else 0

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, or one is being looked for."""
        return self._task is not None

    async def open(self) -> None:
        """Connect, however long that takes; `on_trouble` hears what is wrong. Raises when waiting is no use."""
        self._opened = self.loop.create_future()
        self._task = self.loop.create_task(self._keep(), name="log-connection")
        try:
            await self._opened
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """What was published is given a moment to leave."""
        deadline = self.loop.time() + FAREWELL_S
        await asyncio.sleep(0)
        while self.unsent_bytes and self.loop.time() < deadline:
            await asyncio.sleep(0.01)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def drop(self, why: str) -> None:
        """Give this connection up and make another."""
        if self._link is not None:
            self._link.abort(why)

    def publish(self, subject: str, payload: bytes, reply: str = "", headers: bytes = b"") -> bool:
        """Whether it was handed to the socket. That says nothing about its arrival."""
        if self._link is None:
            return False
        self._link.publish(subject, payload, reply, headers)
        return True

    def subscribe(self, subject: str, on_message: OnMessage) -> int:
        self._last_id += 1
        self._subscriptions[self._last_id] = (subject, on_message)
        if self._link is not None:
            self._link.write(b"SUB %b %d\r\n" % (subject.encode(), self._last_id))
        return self._last_id

    def unsubscribe(self, subscription: int) -> None:
        if self._subscriptions.pop(subscription, None) is not None and self._link is not None:
            self._link.write(b"UNSUB %d\r\n" % subscription)

    def new_inbox(self) -> str:
        self._last_request += 1
        return f"{self._inbox}x{self._last_request}"

    async def request(self, subject: str, payload: bytes = b"", timeout_s: float = 5.0) -> bytes:
        """The answer of whoever serves `subject`; NoAnswer when there is none."""
        self._last_request += 1
        reply = f"{self._inbox}.{self._last_request}"
        answer: asyncio.Future[Message] = self.loop.create_future()
        self._requests[reply] = answer
        try:
            if not self.publish(subject, payload, reply):
                raise NoAnswer(f"no connection to a log server: {self.why}")
            message = await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            raise NoAnswer(f"{subject} was not answered within {timeout_s:g} s") from None
        finally:
            del self._requests[reply]
        if message.status == NO_RESPONDERS:
            raise NoAnswer(f"nobody answers to {subject}")
        return message.payload

    def _on_reply(self, message: Message) -> None:
        answer = self._requests.get(message.subject)
        if answer is not None and not answer.done():
            answer.set_result(message)

    async def _keep(self) -> None:
        pause_s = RETRY_S[0]
        link: _Link | None = None
        try:
            while True:
                failed: dict[str, str] = {}
                for url in random.sample(self.options.urls, len(self.options.urls)):
                    link = await self._try(url, failed)
                    if link is not None:
                        failed.clear()
                        pause_s = RETRY_S[0]
                        await self._use(link)
                if failed:
                    self.why = "; ".join(
                        f"{without_login(url)}: {failed[url]}" for url in self.options.urls if url in failed
                    )
                    self.on_trouble(self.why)
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(pause_s * 2, RETRY_S[1])
        finally:
            self._link = None
            if link is not None:
                link.abort("closed")

    async def _try(self, url: str, failed: dict[str, str]) -> _Link | None:
        link = _Link(self.loop, self._dispatch)
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._greet(link, url)
        except (OSError, TimeoutError, ConnectionFailed) as e:
            link.abort(str(e))
            failed[url] = _said(e)
            if self._opened is not None and not self._opened.done() and isinstance(e, Refused | ssl.SSLError):
                self._opened.set_exception(Refused(f"{without_login(url)}: {failed[url]}"))
            return None
        except BaseException:
            link.abort("closed")
            raise
        self.url = url
        return link

    async def _greet(self, link: _Link, url: str) -> None:
        host, port, scheme = _host_and_port(url)
        await self.loop.create_connection(lambda: link, host, port)
        info = await link.greeting
        if scheme == "tls" or info.get("tls_required"):
            if not (info.get("tls_required") or info.get("tls_available")):
                raise Refused("expected TLS, and the server does not offer it")
            await link.start_tls(self._tls or ssl.create_default_context(), host)
        self._check_server(info)
        login = self._signer.answer(str(info.get("nonce", "")))
        parts = urlsplit(url)
        user, password, token = self.options.user, self.options.password, self.options.token
        if parts.username and not (user or token):
            user, password, token = (parts.username, parts.password, "") if parts.password else ("", "", parts.username)
        login |= {key: text for key, text in (("user", user), ("pass", password), ("auth_token", token)) if text}
        hello = {"verbose": False, "pedantic": False, "lang": "python3", "version": "1", "protocol": 1, "echo": True}
        hello |= {"headers": True, "no_responders": True, "name": self.options.name, **login}
        link.write(b"CONNECT %b\r\nPING\r\n" % json.dumps(hello).encode())
        await link.accepted
        self.server = info

    def _check_server(self, info: dict[str, Any]) -> None:
        version = str(info.get("version", "?"))
        if version_of(version) < VERSION_FLOOR:
            floor = ".".join(map(str, VERSION_FLOOR))
            raise Refused(f"expected nats-server {floor} or later, got {version}")
        if not info.get("jetstream"):
            raise Refused("expected a server with JetStream, and it is not enabled there")
        if int(info.get("max_payload", 0)) < self.options.max_message:
            raise Refused(
                f"expected messages of {self.options.max_message} bytes to be allowed, got max_payload "
                f"{info.get('max_payload')}: raise max_payload on the servers, or make cluster.batch smaller"
            )

    async def _use(self, link: _Link) -> None:
        """Until it is lost."""
        self._link = link
        self.connects += 1
        for number, (subject, _) in self._subscriptions.items():
            link.write(b"SUB %b %d\r\n" % (subject.encode(), number))
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)
        self._tell(lambda listener: listener.on_connected())
        await link.serve()
        self._link = None
        self.why = f"{without_login(self.url)}: {link.why}"
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(NoAnswer(f"the connection was lost: {self.why}"))
        self._tell(lambda listener: listener.on_lost(self.why))

    def _tell(self, news: Callable[[Listener], None]) -> None:
        for listener in list(self.listeners):
            try:
                news(listener)
            except Exception:
                log.exception("nats", extra={"detail": self.why})

    def _dispatch(self, number: int, message: Message) -> None:
        subscription = self._subscriptions.get(number)
        if subscription is None:
            return
        try:
            subscription[1](message)
        except Exception:  # it must not cost the others the connection
            log.exception("nats", extra={"subject": message.subject})


class _Link(asyncio.Protocol):
    """One TCP connection: bytes to messages and back."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_message: Callable[[int, Message], None]) -> None:
        self.loop = loop
        self.on_message = on_message
        self.greeting: asyncio.Future[dict[str, Any]] = loop.create_future()
        self.accepted: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.why = ""
        self.transport: asyncio.Transport | None = None
        self.heard_at = loop.time()
        self.buffer = bytearray()
        self.head: list[bytes] = []  # of the message whose bytes are still to come
        self.needed = 0

    @property
    def unsent_bytes(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport is not None else 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(str(exc) if exc else "the server closed the connection")

    def end(self, why: str) -> None:
        self.why = self.why or why
        if not self.closed.done():
            self.closed.set_result(None)
        for promise in (self.greeting, self.accepted):
            if not promise.done():
                promise.set_exception(ConnectionLost(self.why))
                promise.exception()  # it was looked at: nobody may be waiting any more

    def abort(self, why: str) -> None:
        self.end(why)
        if self.transport is not None:
            self.transport.abort()

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        assert self.transport is not None
        self.transport = await self.loop.start_tls(self.transport, self, context, server_hostname=host)

    async def serve(self) -> None:
        while not self.closed.done():
            await asyncio.wait([self.closed], timeout=PING_S)
            silent_s = self.loop.time() - self.heard_at
            if silent_s > SILENCE_S:
                self.abort(f"no sign of life for {silent_s:.0f} s")
            self.write(b"PING\r\n")

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.closed.done():
            self.transport.write(data)

    def publish(self, subject: str, payload: bytes, reply: str, headers: bytes) -> None:
        if self.transport is None or self.closed.done():
            return
        head = f"PUB {subject} {reply} {len(payload)}\r\n"
        if headers:
            head = f"HPUB {subject} {reply} {len(headers)} {len(headers) + len(payload)}\r\n"
        self.transport.write(b"".join((head.encode(), headers, payload, b"\r\n")))

    def data_received(self, data: bytes) -> None:
        self.heard_at = self.loop.time()
        buffer = self.buffer
        buffer += data
        at = 0
        while not self.closed.done():
            if self.head:
                end = at + self.needed
                if len(buffer) < end + 2:
                    break
                head, self.head = self.head, []
                split = at + (int(head[-2]) if head[0] == b"HMSG" else 0)
                with memoryview(buffer) as view:
                    headers, payload = bytes(view[at:split]), bytes(view[split:end])
                at = end + 2
                reply = head[3].decode() if len(head) == (6 if headers else 5) else ""
                self.on_message(int(head[2]), Message(head[1].decode(), reply, headers, payload))
            else:
                end = buffer.find(b"\r\n", at)
                if end < 0:
                    break
                line = bytes(buffer[at:end])
                at = end + 2
                if line.startswith((b"MSG", b"HMSG")):
                    self.head = line.split()
                    self.needed = int(self.head[-1])
                else:
                    self.on_line(line)
        del buffer[:at]

    def on_line(self, line: bytes) -> None:
        if line == b"PING":
            self.write(b"PONG\r\n")
        elif line == b"PONG":
            if not self.accepted.done():
                self.accepted.set_result(None)
        elif line.startswith(b"INFO"):
            if not self.greeting.done():
                self.greeting.set_result(json.loads(line[5:]))
        elif line.startswith(b"-ERR"):
            self.on_error(line[5:].decode(errors="replace").strip("'"))
        elif line != b"+OK":
            self.abort(f"expected the NATS protocol, got {line[:40]!r}")

    def on_error(self, said: str) -> None:
        if not self.accepted.done():
            self.why = said
            self.accepted.set_exception(Refused(f"the server refuses us: {said}"))
        else:
            self.abort(said)  # most of them the server ends itself; with a right missing nothing would come of staying


def version_of(text: str) -> tuple[int, ...]:
    """The numbers of a version, `2.12.6-RC.1` like 2.12.6; what has none is older than everything."""
    numbers = text.partition("-")[0].partition("+")[0].split(".")
    return tuple(int(number) for number in numbers) if all(number.isdigit() for number in numbers) else ()


def _host_and_port(url: str) -> tuple[str, int, str]:
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        if parts.scheme in ("nats", "tls") and parts.hostname:
            return parts.hostname, parts.port or DEFAULT_PORT, parts.scheme
    except ValueError:
        pass
    raise ConfigError(
        f"expected the URL of a log server such as nats://host:4222 or tls://host:4222, got {without_login(url)!r}"
    )


def _tls_context(options: ConnectionOptions) -> ssl.SSLContext | None:
    if not (options.tls_ca or options.tls_cert):
        return None
    try:
        context = ssl.create_default_context(cafile=options.tls_ca)
        if options.tls_cert:
            context.load_cert_chain(options.tls_cert, options.tls_key)
    except (OSError, ssl.SSLError) as e:
        raise ConfigError(f"TLS to the log servers cannot be set up from the files that are named: {e}") from e
    return context


def _said(e: Exception) -> str:
    if isinstance(e, TimeoutError):
        return f"no answer within {CONNECT_S:g} s"
    if isinstance(e, OSError) and e.strerror and not isinstance(e, ssl.SSLError):
        return e.strerror
    return str(e)
