"""Authentication beside the event loop: hashes are checked and services asked in a few threads, the answer comes later.

The ways to log in are tried in a fixed order, and the first that knows the user decides: a token if the password is
one, then the password file, then the HTTP service. When nothing answers, nobody gets in. Addresses take turns, and one
that is banned meanwhile is not looked at any more.

Each connection remembers what it was let in by. When that is no more after a reload, it ends.
"""

import asyncio
import hashlib
import heapq
import logging
import secrets
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.broker.lifecycle import is_banned
from holdfast.broker.ports import Authenticator, Peer
from holdfast.broker.session import Connection
from holdfast.identity import scram
from holdfast.identity.passwords import PasswordFile
from holdfast.identity.turns import WAITING_MOST, Crew, TooManyWait
from holdfast.net.driver import Driver
from holdfast.net.login import ANONYMOUS, BY_CALLBACK, BY_PASSWORD, BY_TOKEN, UNPROVEN, Login
from holdfast.net.peer import StreamPeer
from holdfast.net.udp import SnPeer
from holdfast.protocol.mqtt.reasons import (
    BAD_USERNAME_OR_PASSWORD,
    BANNED,
    NOT_AUTHORIZED,
    SERVER_BUSY,
    SERVER_UNAVAILABLE,
    SUCCESS,
)

if TYPE_CHECKING:
    from holdfast.identity.callback import Callback
    from holdfast.identity.tokens import Tokens

log = logging.getLogger("holdfast.net")

CHECKS_AT_ONCE: Final = 2
EXPIRY_CHECK_S: Final = 1.0
NAMES_MOST: Final = 10_000
SHOWN_OF_A_NAME: Final = 2

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Methods:
    """The ways to log in; None where one is not configured."""

    passwords: PasswordFile | None = None
    tokens: "Tokens | None" = None
    callback: "Callback | None" = None
    callbacks_at_once: int = 8

    @property
    def is_empty(self) -> bool:
        return self.passwords is None and self.tokens is None and self.callback is None

    def hold(self, login: Login, username: str) -> bool:
        """Returns whether what a user was let in by is still there: the same hash, key or service."""
        if login.way == BY_PASSWORD:
            return self.passwords is not None and self.passwords.users.get(username) == login.by
        if login.way == BY_TOKEN:
            return self.tokens is not None and login.by in self.tokens.digests
        return login.way == BY_CALLBACK and self.callback is not None and self.callback.url.geturl() == login.by


@dataclass(frozen=True)
class Attempt:
    """A login that waits to be checked."""

    ticket: int
    client_id: str
    username: str | None
    password: bytes | None
    peer: StreamPeer | SnPeer


@dataclass(frozen=True)
class Verdict:
    """`username` is who it is, or for a refusal who it said; `expires_at_ms` ends the connection, 0 is never."""

    reason: int
    username: str = ""
    login: Login = UNPROVEN
    expires_at_ms: int = 0
    data: bytes = b""


class Unchecked(Exception):
    """A login that is not looked at, and the reason to refuse it with."""

    def __init__(self, reason: int) -> None:
        super().__init__(reason)
        self.reason = reason


class LoginAuthenticator(Authenticator):
    def __init__(self, driver: Driver, methods: Methods, knows_users: bool) -> None:
        self.driver = driver
        self.hashing = Crew("holdfast-password", CHECKS_AT_ONCE)
        self.asking = Crew("holdfast-callback", methods.callbacks_at_once)
        self.tasks: set[asyncio.Task[None]] = set()
        self.exchanges: dict[int, scram.ScramExchange] = {}
        self.seed = secrets.token_bytes(32)  # the made-up answers stay the same over a reload
        # When, the ticket of the login, and who; weakly, so that nothing here keeps a closed connection.
        self.expiring: list[tuple[int, int, weakref.ref[StreamPeer | SnPeer]]] = []
        self.ender: asyncio.TimerHandle | None = None
        self.names: OrderedDict[str, None] = OrderedDict()
        self.configure(methods, knows_users)

    def configure(self, methods: Methods, knows_users: bool) -> None:
        """Puts new users and keys in force, for logins from now on and for those under way.

        `knows_users`: somebody is known by name here, be it only by certificate or in a rule, so that no name is taken
        unproven. Call `end_unproven` next.
        """
        self.methods = methods
        self.knows_users = knows_users
        self.exchanges.clear()
        verifiers: dict[str, scram.Verifier] = {}
        if methods.passwords is not None:
            for name in methods.passwords.users:
                verifier = methods.passwords.scram(name)
                if verifier is not None:
                    verifiers[name] = verifier
        self.lookup = scram.Lookup(verifiers, self.seed) if verifiers else None

    # What the core asks.

    def name_unasked(self, username: str | None, password: bytes | None, peer: Peer) -> str | None:
        assert isinstance(peer, StreamPeer | SnPeer)
        if not peer.policy.allow_anonymous:
            return None
        if username is None and password is None:
            peer.login = ANONYMOUS
            return ""
        if not self.methods.is_empty:
            return None
        if self.knows_users:
            # A name means something here and cannot be proven: the client is one without a name.
            peer.login = ANONYMOUS
            return ""
        # Nobody is known by name: it is taken as a label, like mosquitto does.
        peer.login = UNPROVEN
        return username or ""

    def begin(self, ticket: int, client_id: str, username: str | None, password: bytes | None, peer: Peer) -> None:
        assert isinstance(peer, StreamPeer | SnPeer)
        if self.methods.is_empty or (username is None and not self.is_token(password)):
            self.answer_soon(ticket, Verdict(NOT_AUTHORIZED, username or ""), peer)
            return
        task = self.driver.loop.create_task(self.check(Attempt(ticket, client_id, username, password, peer)))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def knows(self, method: str) -> bool:
        return method == scram.METHOD and self.lookup is not None

    def exchange(self, ticket: int, data: bytes, first: bool, peer: Peer) -> None:
        """SCRAM costs this side three hashes of a few bytes: no thread is needed."""
        assert isinstance(peer, StreamPeer | SnPeer)
        self.driver.loop.call_soon(self.go_on, ticket, data, first, peer)

    # Carrying it out.

    def is_token(self, password: bytes | None) -> bool:
        return self.methods.tokens is not None and self.methods.tokens.recognises(password)

    async def check(self, attempt: Attempt) -> None:
        name = attempt.username or ""
        try:
            verdict = await self.judge(attempt)
            if self.is_banned(attempt.peer):  # by what others of its address were told meanwhile
                verdict = Verdict(BANNED, name)
        except Unchecked as unchecked:
            verdict = Verdict(unchecked.reason, name)
        except Exception:
            # Whatever went wrong, it is no reason to let anyone in, nor to leave them waiting.
            log.exception("a login could not be checked")
            verdict = Verdict(SERVER_UNAVAILABLE, name)
        self.answer(attempt.ticket, verdict, attempt.peer)

    async def judge(self, attempt: Attempt) -> Verdict:
        """Returns what becomes of a login, by the users and keys of the moment that it ends in."""
        while True:
            methods = self.methods
            verdict = await self.judge_by(methods, attempt)
            if methods is self.methods:
                return verdict

    async def judge_by(self, methods: Methods, attempt: Attempt) -> Verdict:
        password = attempt.password
        name = attempt.username or ""
        refused = Verdict(BAD_USERNAME_OR_PASSWORD, name)
        if methods.tokens is not None and methods.tokens.recognises(password):
            token = await self.in_turn(self.hashing, attempt, partial(methods.tokens.check, attempt.username, password))
            if token is None:
                return refused
            return Verdict(SUCCESS, token.username, Login(BY_TOKEN, token.key_digest), token.expires_at_ms)
        passwords = methods.passwords
        is_known = False
        if passwords is not None:
            if await self.in_turn(self.hashing, attempt, partial(passwords.check, name, password)):
                return Verdict(SUCCESS, name, Login(BY_PASSWORD, passwords.users[name]))
            is_known = name in passwords.users
        callback = methods.callback
        if callback is None:
            return refused
        # A name that is refused took the same way whether the file has it or not. What a user of the file may have
        # mistyped is not for the service to see.
        shown = self.disguise(password) if is_known else password
        asking = partial(callback.ask, attempt.client_id, name, shown, attempt.peer.address)
        answer = await self.in_turn(self.asking, attempt, asking)
        if answer.trouble:
            log.warning("the login service did not answer", extra={"error": answer.trouble})
            return Verdict(SERVER_UNAVAILABLE, name)
        if is_known or not answer.allow:
            return refused
        expires = self.driver.now_ms() + int(answer.expires_in_s * 1000) if answer.expires_in_s > 0 else 0
        return Verdict(SUCCESS, answer.username or name, Login(BY_CALLBACK, callback.url.geturl()), expires)

    async def in_turn(self, crew: Crew, attempt: Attempt, work: Callable[[], Answer]) -> Answer:
        """Have work done in a thread when it is this address's turn, unless it need not be done any more."""
        try:
            return await crew.do(attempt.peer.host, work, partial(self.object_to, attempt))
        except TooManyWait:
            raise Unchecked(SERVER_BUSY) from None

    def object_to(self, attempt: Attempt) -> None:
        if attempt.ticket not in self.driver.broker.tickets:
            raise Unchecked(SERVER_UNAVAILABLE)  # which nobody hears: the connection is gone
        if self.is_banned(attempt.peer):
            raise Unchecked(BANNED)

    def disguise(self, password: bytes | None) -> bytes | None:
        """Another password that nobody has, always the same one for the same."""
        return None if password is None else hashlib.blake2b(password, key=self.seed).hexdigest().encode()

    def is_banned(self, peer: StreamPeer | SnPeer) -> bool:
        return peer.policy.bans.bans(peer.host, self.driver.loop.time())

    def go_on(self, ticket: int, data: bytes, first: bool, peer: StreamPeer | SnPeer) -> None:
        if ticket not in self.driver.broker.tickets or (first and self.lookup is None):
            self.exchanges.pop(ticket, None)
            return
        if first and len(self.exchanges) >= WAITING_MOST:
            # Those who began a login and went away.
            self.exchanges = {t: e for t, e in self.exchanges.items() if t in self.driver.broker.tickets}
        exchange: scram.ScramExchange | None = None
        try:
            if first and not data:
                challenge = b""  # the client lets the server begin, which has nothing to say yet
                assert self.lookup is not None
                self.exchanges[ticket] = scram.ScramExchange(self.lookup)
            else:
                exchange = self.exchanges.pop(ticket, None)
                if exchange is None:
                    assert self.lookup is not None
                    exchange = scram.ScramExchange(self.lookup)
                if exchange.verifier is not None:
                    proof = exchange.final(data)
                    self.answer(ticket, self.verdict_of(exchange, proof, peer), peer)
                    return
                challenge = exchange.first(data)
                self.exchanges[ticket] = exchange
        except ValueError:
            self.answer(ticket, Verdict(NOT_AUTHORIZED, exchange.username if exchange is not None else ""), peer)
            return
        self.driver.on_challenge(ticket, challenge)

    def verdict_of(self, exchange: scram.ScramExchange, proof: bytes, peer: StreamPeer | SnPeer) -> Verdict:
        name = exchange.username
        passwords = self.methods.passwords
        stored = passwords.users.get(name) if passwords is not None else None
        if stored is None:
            return Verdict(NOT_AUTHORIZED, name)
        if self.is_banned(peer):
            return Verdict(BANNED, name)
        return Verdict(SUCCESS, name, Login(BY_PASSWORD, stored), data=proof)

    def answer_soon(self, ticket: int, verdict: Verdict, peer: StreamPeer | SnPeer) -> None:
        self.driver.loop.call_soon(self.answer, ticket, verdict, peer)

    def answer(self, ticket: int, verdict: Verdict, peer: StreamPeer | SnPeer) -> None:
        if 0 < verdict.expires_at_ms <= self.driver.now_ms():
            verdict = Verdict(BAD_USERNAME_OR_PASSWORD, verdict.username)
        connection = peer.connection
        name = verdict.username
        if verdict.reason == SUCCESS:
            peer.login = verdict.login
            self.remember(name)
        else:
            name = self.presentable(name)
        self.driver.on_authenticated(ticket, verdict.reason, name, verdict.data)
        if verdict.reason in (BAD_USERNAME_OR_PASSWORD, NOT_AUTHORIZED):
            self.note_failure(peer)
        elif verdict.expires_at_ms > 0 and connection.session is not None:
            heapq.heappush(self.expiring, (verdict.expires_at_ms, ticket, weakref.ref(peer)))
            if self.ender is None:
                self.ender = self.driver.loop.call_later(EXPIRY_CHECK_S, self.end_expired)

    def remember(self, name: str) -> None:
        """Keeps the names that came in last, as many as are worth it."""
        self.names.pop(name, None)
        self.names[name] = None
        if len(self.names) > NAMES_MOST:
            self.names.popitem(last=False)

    def presentable(self, name: str) -> str:
        """Returns the name of somebody who exists, and of any other only how it begins: people also type their password
        where their name should stand.
        """
        passwords = self.methods.passwords
        is_known = name in self.names or (passwords is not None and name in passwords.users)
        return name if is_known or not name else f"{name[:SHOWN_OF_A_NAME]}***"

    def note_failure(self, peer: StreamPeer | SnPeer) -> None:
        # A datagram may name any sender: a ban for that would be a weapon.
        if isinstance(peer, StreamPeer) and peer.policy.bans.on_failure(peer.host, self.driver.loop.time()):
            log.warning("address banned after repeated failures to log in", extra={"address": peer.host})

    def end_unproven(self) -> int:
        """Ends connections of clients that would not be let in any more; returns how many there were."""
        ended = 0
        for session in list(self.driver.broker.sessions.values()):
            connection = session.connection
            if connection is not None and not self.holds(connection):
                self.driver.expel(connection, "the login does not hold any more")
                ended += 1
        return ended

    def holds(self, connection: Connection) -> bool:
        peer = connection.peer
        if is_banned(self.driver.broker, connection.username, connection.client_id):
            return False
        if not isinstance(peer, StreamPeer | SnPeer):
            return True
        login = peer.login
        if login is None:
            return isinstance(peer, StreamPeer) and not peer.is_revoked()
        if login is ANONYMOUS:
            return peer.policy.allow_anonymous
        if login is UNPROVEN:
            return peer.policy.allow_anonymous and self.methods.is_empty and not self.knows_users
        return self.methods.hold(login, connection.username)

    def end_expired(self) -> None:
        """Disconnects clients whose token has run out."""
        now_ms = self.driver.now_ms()
        while self.expiring and self.expiring[0][0] <= now_ms:
            peer = heapq.heappop(self.expiring)[2]()
            connection = peer.connection if peer is not None else None
            if (
                connection is not None
                and connection.session is not None
                and connection.session.connection is connection
            ):
                self.driver.kick(connection.client_id, NOT_AUTHORIZED, "the login has expired")
        self.ender = self.driver.loop.call_later(EXPIRY_CHECK_S, self.end_expired) if self.expiring else None

    def stop(self) -> None:
        if self.ender is not None:
            self.ender.cancel()
        for task in self.tasks:
            task.cancel()
        self.hashing.stop()
        self.asking.stop()
