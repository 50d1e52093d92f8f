"""A broker without a process: the core in this one, a clock that moves only when told, and clients on it.

    broker = CoreBroker(retainer__expiry_interval="10s")
    client = broker.join("me")
    client.publish("a", b"1", retain=True)
    broker.pass_time(10)
    client.subscribe("a")
    assert client.arrived() == []

Clients are those of `wire`, on something that looks like a socket to them. Whoever waits for bytes that are not there
lets the told time pass, up to the time-out, so a test reads the same whether the broker is here or behind a socket.
Settings have the names of the configuration, with `__` for a dot. What tests may know of the core's inside, `World`
says; nothing here reaches past it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, cast

from holdfast.config import Settings as Configuration
from holdfast.from_settings import broker_settings
from model.disk_world import DiskOnlyWorld
from model.fold import Limits
from model.steps import Plan
from model.world import Link, LoggedWorld, World
from wire import Closed, Packet, Publish, WireClient
from wire_properties import P, Property

WORLDS = {"ram": World, "disc": LoggedWorld, "disc_only": DiskOnlyWorld}
TICK_MS = 100  # how often the network room looks for what is due
AN_INSTANT_S = 0.0001  # less than the clock can tell
A_LONG_TIME_S = 1_000_000


def world_of(configuration: Configuration) -> World:
    """A world whose broker has these settings, and makes durable what they say, without ever having to wait for it."""
    kind = WORLDS[configuration.retainer.storage_type]
    world = kind(Plan(Limits(), []), broker_settings(configuration))
    if configuration.access:
        set_access(world, configuration)
    return world


def set_access(world: World, configuration: Configuration) -> None:
    from holdfast.from_settings import access_rules  # with it comes every way to log in, which few tests need

    world.set_access(access_rules(configuration))


class CoreSocket:
    """The client's end of a connection: as much of a socket as the client of the tests uses."""

    def __init__(self, core: CoreBroker, name: str, link: Link) -> None:
        self.core = core
        self.name = name
        self.link = link
        self.timeout_s = 0.0

    def sendall(self, data: bytes) -> None:
        self.core.world.send(self.link, data)
        self.core.world.work_off()

    def recv(self, most: int) -> bytes:
        """What has arrived; nothing once the connection has ended. Time passes while there is nothing to say."""
        arrived = self.link.peer.data
        deadline_ms = self.core.world.now_ms + round(self.timeout_s * 1000)
        while not arrived and not self.link.peer.closed:
            left_ms = deadline_ms - self.core.world.now_ms
            if left_ms <= 0:
                raise TimeoutError
            self.core.pass_ms(min(left_ms, TICK_MS))
        data = bytes(arrived[:most])
        del arrived[:most]
        return data

    def settimeout(self, seconds: float) -> None:
        self.timeout_s = seconds

    def setsockopt(self, *_: object) -> None:
        pass

    def shutdown(self, how: int) -> None:
        self.close()

    def close(self) -> None:
        """The broker sees the connection end, which is no goodbye."""
        if self.name in self.core.world.links:
            self.core.world.lose(self.name)
            self.core.world.work_off()
            self.link.peer.closed = self.link.peer.closed or "by the client"


class CoreClient(WireClient):
    """A client that can see what has arrived without waiting for more."""

    patience_s = 5.0  # of a clock that is told, which no machine slows down

    def __init__(self, end: CoreSocket, version: int, now: Callable[[], float]) -> None:
        super().__init__(0, version, sock=cast("Any", end), now=now)
        self.link = end.link

    @property
    def closed(self) -> bool:
        """Whether the broker has ended the connection."""
        return bool(self.link.peer.closed)

    def arrived(self) -> list[Packet]:
        """Everything that is there, in order; no time passes."""
        found: list[Packet] = []
        with contextlib.suppress(TimeoutError, Closed):
            while True:
                found.append(self.recv(AN_INSTANT_S))
        return found

    def copies(self) -> list[tuple[str, str, int, bool]]:
        """Topic, payload, QoS and RETAIN of the messages that are there, and nothing else may be there."""
        found = self.arrived()
        assert all(isinstance(packet, Publish) for packet in found), f"expected only messages, got {found}"
        return [(p.topic, p.payload.decode(), p.qos, p.retain) for p in found if isinstance(p, Publish)]

    def payloads(self) -> list[str]:
        return [payload for _, payload, _, _ in self.copies()]


class CoreBroker:
    """Offers what a `BrokerProcess` offers to tests that only speak MQTT to it."""

    quiet_s = 0.0  # every answer is there when `sendall` returns

    def __init__(self, **settings: Any) -> None:
        self.configuration = Configuration.model_validate(nested(settings))
        self.world = world_of(self.configuration)
        self.opened = 0

    def close(self) -> None:
        self.world.close()

    def client(self, version: int = 4, **_: Any) -> CoreClient:
        """A connection on which nothing has been sent yet."""
        self.opened += 1
        name = f"connection {self.opened}"
        return CoreClient(CoreSocket(self, name, self.world.open(name, version)), version, self.now)

    def join(
        self,
        client_id: str,
        version: int = 5,
        *,
        keep: bool = False,
        properties: Iterable[Property] = (),
        **fields: Any,
    ) -> CoreClient:
        """A connected client that may be silent for ever. `keep` gives it a session that outlives the connection."""
        given = list(properties)
        if keep and version == 5:
            given.append((P.SESSION_EXPIRY, A_LONG_TIME_S))
        client = self.client(version)
        client.connect(client_id, **{"keep_alive": 0, "clean": not keep, "properties": given, **fields})
        return client

    def set_rules(self, rules: list[dict[str, Any]]) -> None:
        """Put other access rules in force while it runs."""
        auth = self.configuration.auth.model_dump()
        set_access(self.world, Configuration.model_validate({"auth": auth, "access": rules}))

    def is_running(self) -> bool:
        return True

    # Its clock.

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.world.now_ms / 1000

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with all that falls due in it carried out as it does."""
        left_ms = round(seconds * 1000)
        while left_ms > 0:
            step_ms = min(left_ms, TICK_MS)
            self.pass_ms(step_ms)
            left_ms -= step_ms

    def pass_ms(self, ms: int) -> None:
        self.world.advance(ms)
        self.world.tick()
        self.world.work_off()


def nested(settings: dict[str, Any]) -> dict[str, Any]:
    """`{"retainer__enable": False}` as the configuration has it: `{"retainer": {"enable": False}}`."""
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        *sections, key = name.replace(".", "__").split("__")
        at = tree
        for section in sections:
            at = at.setdefault(section, {})
        at[key] = value
    return tree
