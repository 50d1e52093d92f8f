"""Authentication beside the event loop: hashes are checked and services asked in a few threads, the answer comes later.

The ways to log in are tried in a fixed order, and the first that knows the user decides: a token if the password is
one, then the password file, then the HTTP service. When nothing answers, nobody gets in.
"""

import asyncio
import heapq
import logging
import secrets
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.broker.ports import Authenticator, Peer
from holdfast.identity import scram
from holdfast.identity.callback import Callback
from holdfast.identity.passwords import PasswordFile
from holdfast.net.driver import Driver
from holdfast.net.peer import StreamPeer
from holdfast.net.udp import SnPeer
from holdfast.protocol.mqtt.reasons import (
    BAD_USERNAME_OR_PASSWORD,
    NOT_AUTHORIZED,
    SERVER_BUSY,
    SERVER_UNAVAILABLE,
    SUCCESS,
)

if TYPE_CHECKING:
    from holdfast.identity.tokens import Tokens

log = logging.getLogger("holdfast.net")

CHECKS_AT_ONCE = 2
# Logins that wait for their turn. More of them are told to come back, so that a flood of logins costs no memory.
WAITING_MOST = 10_000
EXPIRY_CHECK_S = 1.0


@dataclass(frozen=True)
class Methods:
    """The ways to log in; None where one is not configured."""

    passwords: PasswordFile | None = None
    tokens: "Tokens | None" = None
    callback: Callback | None = None
    callbacks_at_once: int = 8

    @property
    def is_empty(self) -> bool:
        return self.passwords is None and self.tokens is None and self.callback is None


@dataclass(frozen=True)
class Verdict:
    """`expires_at_ms` ends the connection; 0 is never."""

    reason: int
    username: str = ""
    expires_at_ms: int = 0
    data: bytes = b""


class LoginAuthenticator(Authenticator):
    def __init__(self, driver: Driver, methods: Methods) -> None:
        self.driver = driver
        self.pool = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="holdfast-password")
        self.callers = ThreadPoolExecutor(methods.callbacks_at_once, thread_name_prefix="holdfast-callback")
        self.tasks: set[asyncio.Task[None]] = set()
        self.exchanges: dict[int, scram.ScramExchange] = {}
        self.seed = secrets.token_bytes(32)  # the made-up answers stay the same over a reload
        # When, the ticket of the login, and who; weakly, so that nothing here keeps a closed connection.
        self.expiring: list[tuple[int, int, weakref.ref[StreamPeer | SnPeer]]] = []
        self.ender: asyncio.TimerHandle | None = None
        self.configure(methods)

    def configure(self, methods: Methods) -> None:
        """New users and keys, for logins from now on."""
        self.methods = methods
        verifiers: dict[str, scram.Verifier] = {}
        if methods.passwords is not None:
            for name in methods.passwords.users:
                verifier = methods.passwords.scram(name)
                if verifier is not None:
                    verifiers[name] = verifier
        self.lookup = scram.Lookup(verifiers, self.seed) if verifiers else None

    # What the core asks.

    def begin(self, ticket: int, client_id: str, username: str | None, password: bytes | None, peer: Peer) -> None:
        assert isinstance(peer, StreamPeer | SnPeer)
        methods = self.methods
        if username is None and password is None and peer.policy.allow_anonymous:
            self.answer_soon(ticket, Verdict(SUCCESS), peer)
        elif methods.is_empty and peer.policy.allow_anonymous:
            # Nobody keeps users here: a name is taken as a label, like mosquitto does.
            self.answer_soon(ticket, Verdict(SUCCESS, username or ""), peer)
        elif methods.is_empty or (username is None and not self.is_token(password)):
            self.answer_soon(ticket, Verdict(NOT_AUTHORIZED), peer)
        elif len(self.tasks) >= WAITING_MOST:
            self.answer_soon(ticket, Verdict(SERVER_BUSY), peer)
        else:
            task = self.driver.loop.create_task(self.check(ticket, client_id, username, password, peer))
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

    async def check(
        self, ticket: int, client_id: str, username: str | None, password: bytes | None, peer: StreamPeer | SnPeer
    ) -> None:
        try:
            verdict = await self.judge(client_id, username, password, peer.address)
        except Exception:
            # Whatever went wrong, it is no reason to let anyone in, nor to leave them waiting.
            log.exception("a login could not be checked")
            verdict = Verdict(SERVER_UNAVAILABLE)
        self.answer(ticket, verdict, peer)

    async def judge(self, client_id: str, username: str | None, password: bytes | None, address: str) -> Verdict:
        loop = self.driver.loop
        methods = self.methods
        if methods.tokens is not None and methods.tokens.recognises(password):
            token = await loop.run_in_executor(self.pool, methods.tokens.check, username, password)
            if token is None:
                return Verdict(BAD_USERNAME_OR_PASSWORD)
            return Verdict(SUCCESS, token.username, token.expires_at_ms)
        passwords = methods.passwords
        name = username or ""
        if passwords is not None and (methods.callback is None or name in passwords.users):
            good = await loop.run_in_executor(self.pool, passwords.check, name, password)
            return Verdict(SUCCESS, name) if good else Verdict(BAD_USERNAME_OR_PASSWORD)
        if methods.callback is not None:
            answer = await loop.run_in_executor(self.callers, methods.callback.ask, client_id, name, password, address)
            if answer.trouble:
                log.warning("the login service did not answer", extra={"error": answer.trouble})
                return Verdict(SERVER_UNAVAILABLE)
            if not answer.allow:
                return Verdict(BAD_USERNAME_OR_PASSWORD)
            expires = self.driver.now_ms() + int(answer.expires_in_s * 1000) if answer.expires_in_s > 0 else 0
            return Verdict(SUCCESS, answer.username or name, expires)
        return Verdict(BAD_USERNAME_OR_PASSWORD)

    def go_on(self, ticket: int, data: bytes, first: bool, peer: StreamPeer | SnPeer) -> None:
        if ticket not in self.driver.broker.tickets or (first and self.lookup is None):
            self.exchanges.pop(ticket, None)
            return
        if first and len(self.exchanges) >= WAITING_MOST:
            # Those who began a login and went away.
            self.exchanges = {t: e for t, e in self.exchanges.items() if t in self.driver.broker.tickets}
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
                    self.answer(ticket, Verdict(SUCCESS, exchange.username, data=proof), peer)
                    return
                challenge = exchange.first(data)
                self.exchanges[ticket] = exchange
        except ValueError:
            self.answer(ticket, Verdict(NOT_AUTHORIZED), peer)
            return
        self.driver.on_challenge(ticket, challenge)

    def answer_soon(self, ticket: int, verdict: Verdict, peer: StreamPeer | SnPeer) -> None:
        self.driver.loop.call_soon(self.answer, ticket, verdict, peer)

    def answer(self, ticket: int, verdict: Verdict, peer: StreamPeer | SnPeer) -> None:
        if 0 < verdict.expires_at_ms <= self.driver.now_ms():
            verdict = Verdict(BAD_USERNAME_OR_PASSWORD)
        connection = peer.connection
        self.driver.on_authenticated(ticket, verdict.reason, verdict.username, verdict.data)
        if verdict.reason in (BAD_USERNAME_OR_PASSWORD, NOT_AUTHORIZED):
            self.note_failure(peer)
        elif verdict.expires_at_ms > 0 and connection.session is not None:
            heapq.heappush(self.expiring, (verdict.expires_at_ms, ticket, weakref.ref(peer)))
            if self.ender is None:
                self.ender = self.driver.loop.call_later(EXPIRY_CHECK_S, self.end_expired)

    def note_failure(self, peer: StreamPeer | SnPeer) -> None:
        # A datagram may name any sender: a ban for that would be a weapon.
        if isinstance(peer, StreamPeer) and peer.policy.bans.on_failure(peer.host, self.driver.loop.time()):
            log.warning("address banned after repeated failures to log in", extra={"address": peer.host})

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
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.callers.shutdown(wait=False, cancel_futures=True)
