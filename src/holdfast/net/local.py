"""A client in the broker's own process: the same connection as all others have, with memory in the place of a socket.

`LocalPeer` is the broker's end, and `LocalTransport` what it takes for its socket. The other end reads with `read` and
writes with `feed`. What the broker writes is held up to the same mark as in a socket's buffer; then it has to wait.
"""

import asyncio

from holdfast.net.admission import ListenerPolicy
from holdfast.net.driver import Driver
from holdfast.net.peer import WRITE_HIGH_WATER, StreamPeer

LOCAL_ADDRESS = "in process"


class LocalPeer(StreamPeer):
    """`username` is who the client is: nobody has to prove that to himself. Empty: a client without a name."""

    def __init__(self, driver: Driver, policy: ListenerPolicy, username: str) -> None:
        super().__init__(driver, policy)
        self.username = username
        self.address = LOCAL_ADDRESS

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, LocalTransport)
        self.transport = transport
        self.connection = self.driver.open(self, self.username)
        self.policy.peers.add(self)

    def is_revoked(self) -> bool:
        return False


class LocalTransport(asyncio.Transport):
    def __init__(self, driver: Driver, policy: ListenerPolicy, username: str) -> None:
        super().__init__()
        self.loop = driver.loop
        self.peer = LocalPeer(driver, policy, username)
        self.to_client: list[bytes] = []
        self.to_client_size = 0
        self.to_broker: list[bytes] = []
        self.blocked = False
        self.paused = False
        self.closed = False
        self.feeding = False
        self.changed = asyncio.Event()
        self.drained = asyncio.Event()
        self.drained.set()
        self.peer.connection_made(self)

    # The client's end.

    async def read(self) -> bytes:
        """Some bytes; none when the broker has closed."""
        while not self.to_client and not self.closed:
            self.changed.clear()
            await self.changed.wait()
        data = b"".join(self.to_client)
        self.to_client.clear()
        self.to_client_size = 0
        if self.blocked:
            self.blocked = False
            self.loop.call_soon(self.resume_peer)
        return data

    def feed(self, data: bytes) -> None:
        """Bytes of the client, for the broker's next turn: it is never called from within itself."""
        if self.closed:
            return
        self.to_broker.append(data)
        self.drained.clear()
        self.schedule()

    def hang_up(self) -> None:
        """The client is gone."""
        if not self.closed:
            self.closed = True
            self.changed.set()
            self.drained.set()
            self.loop.call_soon(self.peer.connection_lost, None)

    def schedule(self) -> None:
        if not self.feeding:
            self.feeding = True
            self.loop.call_soon(self.hand_over)

    def hand_over(self) -> None:
        self.feeding = False
        if self.paused or not self.to_broker or self.peer.transport is None:
            return
        data = b"".join(self.to_broker)
        self.to_broker.clear()
        self.drained.set()
        self.peer.data_received(data)

    def resume_peer(self) -> None:
        if self.peer.transport is not None:
            self.peer.resume_writing()

    # The broker's end: what StreamPeer asks of its transport.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.closed:
            return
        self.to_client.append(bytes(data))
        self.to_client_size += len(data)
        self.changed.set()
        if self.to_client_size > WRITE_HIGH_WATER and not self.blocked:
            self.blocked = True
            self.peer.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self.to_client_size

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        self.schedule()

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.hang_up()

    def abort(self) -> None:
        self.hang_up()
