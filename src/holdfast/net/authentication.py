"""Authentication beside the event loop: password hashes are checked in a few threads, the answer comes back later."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from holdfast.broker.ports import Authenticator, Peer
from holdfast.net.hub import Hub
from holdfast.net.peer import StreamPeer
from holdfast.net.udp import SnPeer
from holdfast.passwords import PasswordFile
from holdfast.protocol.mqtt.reasons import BAD_USERNAME_OR_PASSWORD, NOT_AUTHORIZED, SUCCESS

CHECKS_AT_ONCE = 2


class PasswordAuthenticator(Authenticator):
    """Users of a password file, and anonymous clients where the listener allows them."""

    def __init__(self, hub: Hub, passwords: PasswordFile | None) -> None:
        self.hub = hub
        self.passwords = passwords
        self.pool = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="holdfast-password")
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, ticket: int, client_id: str, username: str | None, password: bytes | None, peer: Peer) -> None:
        assert isinstance(peer, StreamPeer | SnPeer)
        if username is None and peer.gate.allow_anonymous:
            self.hub.loop.call_soon(self.answer, ticket, SUCCESS, "")
        elif username is not None and self.passwords is None and peer.gate.allow_anonymous:
            # Nobody keeps users here: a name is taken as a label, like mosquitto does.
            self.hub.loop.call_soon(self.answer, ticket, SUCCESS, username)
        elif username is None or self.passwords is None:
            self.hub.loop.call_soon(self.answer, ticket, NOT_AUTHORIZED, "")
        else:
            task = self.hub.loop.create_task(self.check(ticket, self.passwords, username, password))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def check(self, ticket: int, passwords: PasswordFile, username: str, password: bytes | None) -> None:
        good = await self.hub.loop.run_in_executor(self.pool, passwords.check, username, password)
        self.answer(ticket, SUCCESS if good else BAD_USERNAME_OR_PASSWORD, username if good else "")

    def answer(self, ticket: int, reason: int, username: str) -> None:
        self.hub.broker.on_authenticated(ticket, reason, username, self.hub.now_ms())
        self.hub.carry_out()

    def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        self.pool.shutdown(wait=False, cancel_futures=True)
