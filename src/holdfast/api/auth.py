"""Who may call: asked for every request before anything else sees it.

Three ways to say who one is: HTTP Basic with an API key or a user of the broker, a bearer token, or the cookie of a
login. Where nobody logs in at all only this machine is answered, and only under a name of this machine, so that a web
page cannot reach the API through a host name of its own that points here. Where clients log in by a way that the API
does not know (token, HTTP service, certificate) it answers nobody until it has keys.

No request may come from another site, pages that are opened excepted: browsers say where a request comes from.
"""

import asyncio
import base64
import binascii
import hashlib
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.api.problem import Problem, response
from holdfast.broker.core import Broker
from holdfast.identity.turns import Crew, TooManyWait
from holdfast.service.caller import Caller

log = logging.getLogger("holdfast.api")

COOKIE = "holdfast"
LOGIN_S = 12 * 3600
LOGINS_MOST = 10_000
LOGINS_MOST_OF_ONE = 100  # of one name: nobody can push others out
CHECKS_AT_ONCE = 2
REMEMBER_S = 60.0
SAFE = ("GET", "HEAD", "OPTIONS")
OPEN_PATHS = ("/healthz", "/readyz", "/api/v5/status", "/api/v1/login", "/api/v5/login", "/api/v1/whoami")
OPEN_PREFIXES = ("/static/",)
HEALTH_PATHS = ("/healthz", "/readyz", "/api/v5/status")
PAGES = ("/", "/docs")
NO_KEYS = (
    "nobody may use the API yet: clients log in, and there are no API keys. Make one with "
    "`holdfast passwd -c FILE NAME` and name the file as api.key_file"
)


class Secrets(Protocol):
    """Names with their password hashes. `check` is slow on purpose."""

    def check(self, username: str | None, password: bytes | None) -> bool: ...


class Bans(Protocol):
    """Addresses that are turned away, shared with the other listeners. Times are the event loop's."""

    def bans(self, host: str, now: float) -> bool: ...

    def on_failure(self, host: str, now: float) -> bool: ...


@dataclass(frozen=True)
class Identity:
    """Why a caller is believed: by the `token` of a login, or by what came with the request where that is empty.
    `generation` is that of the keys and users it was held against.
    """

    caller: Caller
    generation: int
    token: str = ""


class ApiAuthenticator:
    """Knows keys, users and who is logged in. `keys` and `users` may be exchanged while it works. `others_log_in`:
    there are logins that the API does not know.
    """

    def __init__(
        self,
        broker: Broker,
        keys: Secrets | None,
        users: Secrets | None,
        admins: list[str],
        bans: Bans,
        others_log_in: bool = False,
    ) -> None:
        self.broker = broker
        self.bans = bans
        self.keys = keys
        self.users = users
        self.admins = admins
        self.others_log_in = others_log_in
        self.generation = 0
        self.crew = Crew("holdfast-login", CHECKS_AT_ONCE)
        self.salt = secrets.token_bytes(16)
        self.logins: dict[str, tuple[Caller, float]] = {}
        self.remembered: dict[bytes, tuple[Caller, float]] = {}
        self.on_failure: Callable[[str, str], object] = lambda name, host: None  # a login that failed

    @property
    def is_open(self) -> bool:
        """Whether nobody has to say who they are."""
        return self.keys is None and self.users is None and not self.others_log_in

    @property
    def is_closed(self) -> bool:
        """Whether nobody can say who they are."""
        return self.keys is None and self.users is None and self.others_log_in

    def replace(self, keys: Secrets | None, users: Secrets | None, admins: list[str], others_log_in: bool) -> None:
        """New keys and users: everyone who is logged in, or on the live channel, says again who they are."""
        self.keys = keys
        self.users = users
        self.admins = admins
        self.others_log_in = others_log_in
        self.generation += 1
        self.logins.clear()
        self.remembered.clear()

    async def check(self, name: str, password: bytes, host: str) -> Caller | None:
        """Slow hashing happens in a thread, one address after the other; an answer that was yes is remembered for a
        minute. Raises when too many wait, and for an address that is banned meanwhile, whatever the answer.
        """
        try:
            caller = await self.find(name, password, host)
        except TooManyWait:
            raise Problem(503, "too many logins at once, try again later") from None
        self.refuse_banned(host)
        if caller is None:
            self.on_failure(name, host)
        if caller is None and self.bans.on_failure(host, asyncio.get_running_loop().time()):
            log.warning("address banned after repeated failures to log in", extra={"address": host})
        return caller

    def refuse_banned(self, host: str) -> None:
        if self.bans.bans(host, asyncio.get_running_loop().time()):
            raise Problem(403, "the address is banned")

    async def matches(self, known: Secrets, name: str, password: bytes, host: str) -> bool:
        return await self.crew.do(host, partial(known.check, name, password), partial(self.refuse_banned, host))

    async def find(self, name: str, password: bytes, host: str) -> Caller | None:
        digest = hashlib.sha256(self.salt + name.encode() + b"\0" + password).digest()
        known = self.remembered.get(digest)
        if known is not None and known[1] > time.monotonic():
            return None if known[0].is_banned else known[0]
        generation = self.generation
        caller = None
        if self.keys is not None and await self.matches(self.keys, name, password, host):
            caller = Caller(name, True, self.broker)
        elif self.users is not None and await self.matches(self.users, name, password, host):
            caller = Caller(name, name in self.admins, self.broker, is_user=True)
        if generation != self.generation:
            return await self.find(name, password, host)  # held against keys and users that are no more
        if caller is not None and caller.is_banned:
            return None
        if caller is not None:
            if len(self.remembered) > 1000:
                self.remembered.clear()
            self.remembered[digest] = (caller, time.monotonic() + REMEMBER_S)
        return caller

    def log_in(self, caller: Caller) -> str:
        now = time.monotonic()
        # Oldest first. Those who log in again and again lose their own logins, and only then anybody's.
        live = {token: login for token, login in self.logins.items() if login[1] > now}
        own = [token for token, login in live.items() if login[0].name == caller.name]
        for token in own[: max(0, len(own) + 1 - LOGINS_MOST_OF_ONE)]:
            del live[token]
        for token in list(live)[: max(0, len(live) + 1 - LOGINS_MOST)]:
            del live[token]
        self.logins = live
        token = secrets.token_urlsafe(32)
        self.logins[token] = (caller, now + LOGIN_S)
        return token

    def log_out(self, token: str) -> None:
        self.logins.pop(token, None)

    def logged_in(self, token: str) -> Identity | None:
        login = self.logins.get(token)
        if login is None or login[1] <= time.monotonic() or login[0].is_banned:
            return None
        return Identity(login[0], self.generation, token)

    def still_believes(self, identity: Identity, host: str) -> bool:
        """Whether the same request would be believed again: no other keys and users meanwhile, the login neither ended
        nor expired, neither the user nor the address banned.
        """
        if identity.generation != self.generation or identity.caller.is_banned:
            return False
        if self.bans.bans(host, asyncio.get_running_loop().time()):
            return False
        return not identity.token or self.logged_in(identity.token) is not None

    async def identify(self, connection: HTTPConnection) -> Identity | None:
        """The caller, or None: unknown. Raises when this machine alone is answered and it is not this machine, when
        nobody is, and for an address that is banned.
        """
        address = address_of(connection)
        self.refuse_banned(address)
        if self.is_closed:
            raise Problem(403, NO_KEYS)
        if self.is_open:
            if not is_loopback(address) or not is_loopback(host_of(connection.headers)):
                raise Problem(
                    403, "only this machine is answered, under its own name, until api.key_file or users are configured"
                )
            return Identity(Caller("", True, self.broker), self.generation)
        if token := token_of(connection):
            return self.logged_in(token)
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            name, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        generation = self.generation
        caller = await self.check(name, password.encode(), address) if colon else None
        return None if caller is None else Identity(caller, generation)

    def stop(self) -> None:
        self.crew.stop()


def address_of(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client is not None else ""


def token_of(connection: HTTPConnection) -> str:
    """The token of a login, from the header or, where there is no such header, from the cookie; empty when none."""
    authorization = connection.headers.get("authorization")
    if authorization is None:
        return connection.cookies.get(COOKIE, "")
    scheme, _, given = authorization.partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


class AuthMiddleware:
    """The outermost part of the application: says who calls, and turns away those who may not. Pages of the sites in
    `cors` may read.
    """

    def __init__(self, app: ASGIApp, authenticator: ApiAuthenticator, cors: list[str]) -> None:
        self.app = app
        self.authenticator = authenticator
        self.cors = cors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        path = scope["path"]
        identity = None
        try:
            self.refuse_other_sites(scope, connection.headers)
            if path not in HEALTH_PATHS or not self.authenticator.is_closed:
                identity = await self.authenticator.identify(connection)
        except Problem as problem:
            await refuse(scope, receive, send, problem)
            return
        state = scope.setdefault("state", {})
        state["identity"] = identity
        state["caller"] = None if identity is None else identity.caller
        if identity is None and path != "/" and path not in OPEN_PATHS and not path.startswith(OPEN_PREFIXES):
            await refuse(scope, receive, send, Problem(401, "log in first, or send an API key"))
            return
        await self.app(scope, receive, send)

    def refuse_other_sites(self, scope: Scope, headers: Headers) -> None:
        """Raises Problem for what a page of another site has sent. A link that leads to one of our pages is no such."""
        origin = headers.get("origin")
        reads = scope["type"] == "http" and scope["method"] in SAFE
        if reads and origin is not None and ("*" in self.cors or origin in self.cors):
            return
        if reads and scope["path"] in PAGES and headers.get("sec-fetch-mode") == "navigate":
            return
        site = headers.get("sec-fetch-site")
        if site is not None and site not in ("same-origin", "none"):
            raise Problem(403, f"the request comes from another site ({site}), expected this one")
        # A browser that says no more than this hides the answer of a GET from the page.
        if not reads and origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise Problem(403, f"the request comes from {origin!r}, expected this site")


async def refuse(scope: Scope, receive: Receive, send: Send, problem: Problem) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 4000 + problem.status % 1000, "reason": problem.detail[:100]})
        return
    # A browser that is told of Basic would open a window of its own over the page's login.
    from_script = b"x-requested-with" in dict(scope["headers"])
    headers = {} if problem.status != 401 or from_script else {"WWW-Authenticate": 'Basic realm="holdfast"'}
    await response(problem.status, problem.detail, headers=headers)(scope, receive, send)


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
