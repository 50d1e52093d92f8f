"""Who may call: asked for every request before anything else sees it.

Three ways to say who one is: HTTP Basic with an API key or a user of the broker, a bearer token, or the cookie of a
login. Where neither keys nor users are configured only this machine is answered, and only under a name of this machine,
so that a web page cannot reach the API through a host name of its own that points here.

What changes something, and the live channel, must not come from another site: browsers say where a request comes from.
"""

import asyncio
import base64
import binascii
import hashlib
import logging
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.api.problem import Problem, response
from holdfast.broker.core import Broker
from holdfast.service.caller import Caller

log = logging.getLogger("holdfast.api")

COOKIE = "holdfast"
LOGIN_S = 12 * 3600
LOGINS_MOST = 10_000
# Logins that wait for their turn. More of them are told to come back, so that a flood of logins costs no memory.
WAITING_MOST = 1000
REMEMBER_S = 60.0
SAFE = ("GET", "HEAD", "OPTIONS")
OPEN_PATHS = ("/healthz", "/readyz", "/api/v1/login", "/api/v5/login", "/api/v1/whoami")
OPEN_PREFIXES = ("/static/",)


class Secrets(Protocol):
    """Names with their password hashes. `check` is slow on purpose."""

    def check(self, username: str | None, password: bytes | None) -> bool: ...


class Bans(Protocol):
    """Addresses that are turned away, shared with the other listeners. Times are the event loop's."""

    def bans(self, host: str, now: float) -> bool: ...

    def on_failure(self, host: str, now: float) -> bool: ...


class ApiAuthenticator:
    """Knows keys, users and who is logged in. `keys` and `users` may be exchanged while it works."""

    def __init__(
        self, broker: Broker, keys: Secrets | None, users: Secrets | None, admins: list[str], bans: Bans
    ) -> None:
        self.broker = broker
        self.bans = bans
        self.waiting = 0  # logins that are being checked
        self.keys = keys
        self.users = users
        self.admins = admins
        self.pool = ThreadPoolExecutor(2, thread_name_prefix="holdfast-login")
        self.salt = secrets.token_bytes(16)
        self.logins: dict[str, tuple[Caller, float]] = {}
        self.remembered: dict[bytes, tuple[Caller, float]] = {}

    @property
    def is_open(self) -> bool:
        return self.keys is None and self.users is None

    def everyone(self) -> Caller:
        return Caller("", True, self.broker)

    def replace(self, keys: Secrets | None, users: Secrets | None, admins: list[str]) -> None:
        """New keys and users: everyone who is logged in says again who they are."""
        self.keys = keys
        self.users = users
        self.admins = admins
        self.logins.clear()
        self.remembered.clear()

    async def check(self, name: str, password: bytes, host: str) -> Caller | None:
        """Slow hashing happens in a thread; an answer that was yes is remembered for a minute."""
        if self.waiting >= WAITING_MOST:
            raise Problem(503, "too many logins at once, try again later")
        self.waiting += 1
        try:
            caller = await self.find(name, password)
        finally:
            self.waiting -= 1
        if caller is None and self.bans.on_failure(host, asyncio.get_running_loop().time()):
            log.warning("address banned after repeated failures to log in", extra={"address": host})
        return caller

    async def find(self, name: str, password: bytes) -> Caller | None:
        digest = hashlib.sha256(self.salt + name.encode() + b"\0" + password).digest()
        known = self.remembered.get(digest)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        loop = asyncio.get_running_loop()
        caller = None
        if self.keys is not None and await loop.run_in_executor(self.pool, self.keys.check, name, password):
            caller = Caller(name, True, self.broker)
        elif self.users is not None and await loop.run_in_executor(self.pool, self.users.check, name, password):
            if name not in self.broker.settings.banned_users:
                caller = Caller(name, name in self.admins, self.broker)
        if caller is not None:
            if len(self.remembered) > 1000:
                self.remembered.clear()
            self.remembered[digest] = (caller, time.monotonic() + REMEMBER_S)
        return caller

    def log_in(self, caller: Caller) -> str:
        now = time.monotonic()
        if len(self.logins) >= LOGINS_MOST:
            self.logins = {token: login for token, login in self.logins.items() if login[1] > now}
        token = secrets.token_urlsafe(32)
        self.logins[token] = (caller, now + LOGIN_S)
        return token

    def log_out(self, token: str) -> None:
        self.logins.pop(token, None)

    def logged_in(self, token: str) -> Caller | None:
        login = self.logins.get(token)
        if login is None or login[1] <= time.monotonic():
            return None
        return login[0]

    async def identify(self, connection: HTTPConnection) -> Caller | None:
        """The caller, or None: unknown. Raises when this machine alone is answered and it is not this machine, and
        for an address that is banned.
        """
        address = address_of(connection)
        if self.bans.bans(address, asyncio.get_running_loop().time()):
            raise Problem(403, "the address is banned")
        if self.is_open:
            if not is_loopback(address) or not is_loopback(host_of(connection.headers)):
                raise Problem(
                    403, "only this machine is answered, under its own name, until api.key_file or users are configured"
                )
            return self.everyone()
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            try:
                name, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                return None
            return await self.check(name, password.encode(), address) if colon else None
        if scheme.lower() == "bearer":
            return self.logged_in(given.strip())
        return self.logged_in(connection.cookies.get(COOKIE, ""))

    def stop(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)


def address_of(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client is not None else ""


class AuthMiddleware:
    """The outermost part of the application: says who calls, and turns away those who may not."""

    def __init__(self, app: ASGIApp, authenticator: ApiAuthenticator) -> None:
        self.app = app
        self.authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        path = scope["path"]
        try:
            if scope["type"] == "websocket" or scope["method"] not in SAFE:
                refuse_other_sites(connection)
            caller = await self.authenticator.identify(connection)
        except Problem as problem:
            await refuse(scope, receive, send, problem)
            return
        scope.setdefault("state", {})["caller"] = caller
        if caller is None and path != "/" and path not in OPEN_PATHS and not path.startswith(OPEN_PREFIXES):
            await refuse(scope, receive, send, Problem(401, "log in first, or send an API key"))
            return
        await self.app(scope, receive, send)


async def refuse(scope: Scope, receive: Receive, send: Send, problem: Problem) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 4000 + problem.status % 1000, "reason": problem.detail[:100]})
        return
    # A browser that is told of Basic would open a window of its own over the page's login.
    from_script = b"x-requested-with" in dict(scope["headers"])
    headers = {} if problem.status != 401 or from_script else {"WWW-Authenticate": 'Basic realm="holdfast"'}
    await response(problem.status, problem.detail, headers=headers)(scope, receive, send)


def refuse_other_sites(connection: HTTPConnection) -> None:
    headers = connection.headers
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        raise Problem(403, f"the request comes from another site ({site}), expected this one")
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
        raise Problem(403, f"the request comes from {origin!r}, expected this site")


def host_of(headers: Headers) -> str:
    """The host name that was asked for, without its port."""
    try:
        return urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
