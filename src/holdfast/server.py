"""The composition root: configuration in, running broker out. The only place that names concrete parts."""

import asyncio
import ctypes
import errno
import gc
import importlib.util
import logging
import os
import resource
import secrets
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import __version__, diagnostics
from holdfast.bridge.bridges import Bridges, start_bridges
from holdfast.broker.core import Broker
from holdfast.broker.settings import Settings as BrokerSettings
from holdfast.broker.settings import shared_settings
from holdfast.broker.shared import SharedLog
from holdfast.broker.system import SystemTopics
from holdfast.config import ConfigError, Listener, Loaded, Settings, problems_of
from holdfast.config.checks import exposed_secrets
from holdfast.config.listener import Endpoint
from holdfast.config.shown import shown_settings
from holdfast.errors import UsageError
from holdfast.from_settings import (
    access_rules,
    bridges,
    broker_settings,
    fill_bans,
    fill_clients,
    fill_retainer,
    history_options,
    keep_fixed,
    knows_users,
    log_servers,
    login_methods,
    needs_restart,
    node_options,
    parse_bridge,
    password_file,
    place_history,
    retainer_policies,
    sensor_settings,
    what_is_recorded,
)
from holdfast.identity.passwords import PasswordFile
from holdfast.journal.log import JournalLog
from holdfast.net.admission import Bans, ConnectionLimits, ListenerPolicy
from holdfast.net.authentication import LoginAuthenticator
from holdfast.net.driver import Driver
from holdfast.net.peer import StreamPeer
from holdfast.net.proxy_protocol import ProxyHeaderReader
from holdfast.net.tls import Certificates, Trust
from holdfast.net.udp import UdpEndpoint, open_socket
from holdfast.net.websocket import Origins, WebSocketPeer
from holdfast.node.place import ClusterPlace, leave_cluster, need_no_node
from holdfast.storage.disk import DiskStorage
from holdfast.storage.folder import DataFolder
from holdfast.storage.history_options import HistoryOptions

if TYPE_CHECKING:
    from holdfast.api.app import HttpService
    from holdfast.node.cluster_node import ClusterNode
    from holdfast.node.operations import Operations

log = logging.getLogger("holdfast")

BACKLOG = 4096
# How long clients may take to swallow their goodbye, and how long the whole end may take.
SHUTDOWN_GRACE_S = 2.0
SHUTDOWN_S = 4.5
# The core makes no reference cycles. What others make is collected in small, frequent portions; a full collection
# would look at every retained message there is and stop the loop for it. When very many objects are new, they are
# retained messages, and are frozen without a look: the collector leaves them out from then on.
COLLECT_EVERY_S = 5.0
COLLECT_AT_MOST = 100_000
# This many retained messages gone are worth asking the system to take their memory back.
TRIM_AFTER = 100_000
CONNECTION_WEIGHT = 50  # what a connection leaves behind, in retained messages


def run(loaded: Loaded) -> int:
    """Serves until told to stop, and returns the process's exit code."""
    import uvloop

    raise_file_limit()
    os.umask(0o077)  # what the broker writes holds what its clients said: for its own user alone
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(loaded))


async def serve(loaded: Loaded) -> int:
    server = Server(loaded, asyncio.get_running_loop())
    try:
        await server.start()
        await server.stopping.wait()
    finally:
        await server.stop()
    if server.node is not None and server.node.failed.done():
        raise server.node.failed.result()
    return 0


@asynccontextmanager
async def open_offline(
    root: Path, settings: BrokerSettings | None = None, *, begin_history: bool = False
) -> AsyncIterator[Driver]:
    """A broker without listeners on a data folder, which it keeps locked. What was published through it is in journal,
    state and history when the context ends.

    Without settings nothing is refused for its size or number: limits stand in the configuration, not in the folder.
    A folder without a history gets one with `begin_history`, where the parts for it are installed. Raises StoreError
    when another broker has the folder, UsageError when it is a node's.
    """
    need_no_node(root)
    if settings is None:
        settings = BrokerSettings()
        settings.max_retained_payload = 0
    loop = asyncio.get_running_loop()
    history = DataFolder(root).has_history() or (begin_history and can_write_history())
    broker = Broker(settings, "")
    driver = Driver(broker, loop)
    storage = DiskStorage(root, loop)
    driver.use_log(storage.open("ack", ["#"] if history else None, records_live=False))
    driver.carry_out(storage.load(broker, driver.now_ms(), True))
    storage.start(HistoryOptions() if history else None)
    try:
        yield driver
    finally:
        await storage.stop(None)  # for as long as it takes: the next reader is to find everything


@dataclass(frozen=True)
class Door:
    """What a listener asks of connections, and what it trusts and shows where it speaks TLS; `number` is its place in
    the configuration.
    """

    number: int
    policy: ListenerPolicy
    certificates: Certificates | None


class Server:
    """A broker with its listeners, signals and periodic work."""

    def __init__(self, loaded: Loaded, loop: asyncio.AbstractEventLoop) -> None:
        self.loaded = loaded
        self.loop = loop
        self.stopping = asyncio.Event()
        settings = loaded.settings
        self.broker = Broker(broker_settings(settings), f"hf-{secrets.token_hex(4)}-")
        access = access_rules(settings)
        self.broker.set_access(access)
        self.driver = Driver(self.broker, loop)
        self.authenticator = LoginAuthenticator(self.driver, login_methods(settings), knows_users(settings, access))
        self.broker.authenticator = self.authenticator
        self.bans = Bans()
        fill_bans(self.bans, settings)
        limits = settings.limits
        self.limits = ConnectionLimits(limits.max_connections_per_address, limits.connect_rate_per_address)
        self.doors: list[Door] = []
        self.addresses: dict[int, str] = {}  # by the number of the listener: what it has become
        self.servers: list[asyncio.Server] = []
        self.sensors: list[UdpEndpoint] = []
        self.system = SystemTopics(__version__, self.driver.now_ms())
        self.timers: list[asyncio.TimerHandle] = []
        self.storage: DiskStorage | None = None
        self.trimmed_at = 0
        self.http: HttpService | None = None
        self.node: ClusterNode | None = None
        self.operations: Operations | None = None
        kept = settings.retainer.storage_type != "ram"
        self.bridges = Bridges(self.driver, DataFolder(settings.data).bridges if kept else None, parse_bridge)
        self.reloads: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        if self.loaded.settings.cluster.url:
            self.import_http()
            await self.join_cluster()
        else:
            self.open_storage()
        warn_of_secrets(self.loaded.settings)
        self.loop.add_signal_handler(signal.SIGTERM, self.stopping.set)
        self.loop.add_signal_handler(signal.SIGINT, self.stopping.set)
        self.loop.add_signal_handler(signal.SIGHUP, self.reload)
        await self.listen_on(lambda listener: not (self.node is not None and listener.is_http))
        self.doors.sort(key=lambda door: door.number)
        if self.node is None:
            self.driver.start()
        if self.storage is not None:
            self.every(1.0, self.storage.tick)
        await start_bridges(self.bridges, bridges(self.loaded.settings))
        interval = self.loaded.settings.sys.interval
        if interval > 0:
            self.every(interval, self.publish_system)
        gc.freeze()
        gc.disable()
        give_memory_back()
        self.every(COLLECT_EVERY_S, self.tidy)
        if self.node is not None:
            self.node.failed.add_done_callback(lambda _: self.stopping.set())

    async def join_cluster(self) -> None:
        """Take up the data folder as one of many nodes, read the log to its end, and become a member."""
        # 2 MB that a broker alone does not need
        from holdfast.cluster.connection import Connection
        from holdfast.node.cluster_node import ClusterNode
        from holdfast.node.joining import needs_state, set_aside, take_state
        from holdfast.node.operations import Operations

        settings = self.loaded.settings
        options = node_options(settings)
        connection = Connection(log_servers(settings), self.loop)
        connection.on_trouble = say_once("no log server was reached, trying again")
        log.info("looking for the log servers", extra={"urls": connection.options.servers})
        await connection.open()
        most = min(connection.max_payload, 64 << 20)
        connection.options = replace(connection.options, max_message=most)  # of every server from now on
        self.broker.settings.max_entry_size = most
        table = settings.history
        history = table.enable and can_write_history()
        filters = list(table.filter) if history else []
        records_live = table.record == "all"
        place_history(settings)
        place = ClusterPlace(settings.data, options.stream.name, options.node)

        def open_folder() -> tuple[DiskStorage, JournalLog]:
            storage = DiskStorage(settings.data, self.loop)
            return storage, storage.open("ack", filters if history else None, records_live, own_history=not table.path)

        storage, local = open_folder()
        if storage.recovered is not None and storage.recovered.losses:
            await set_aside(storage)
            storage, local = open_folder()
        if await needs_state(storage, place, connection, options):
            await storage.stop(None)
            await take_state(storage, place, connection, options)
            storage, local = open_folder()
        self.storage = storage
        storage.shares = True
        shared_log = SharedLog(local, [text.encode() for text in filters], records_live)
        fresh = settings.cluster.reads == "fresh"
        shared = self.broker.use_shared_log(shared_log, options.node, fresh)
        self.driver.use_log(shared_log)
        local.at_end_of_turn = self.driver.at_end_of_turn
        in_memory = settings.retainer.storage_type == "disc"
        storage.load_shared(self.broker, in_memory)
        # A node that has taken the state of another has no history of what was before: the others have. A journal from
        # the first offset on has all of it, and the table of a node that was killed may lack some.
        before = max(0, storage.folder.first_in_journal() - 1)
        own = replace(history_options(settings, shared_log.position + 1), begins_after=before)
        # The journal has it, and a node that reads a long log leaves more to the others on its machine.
        storage.start(own if history else None, follow=not in_memory)
        self.node = ClusterNode(self.driver, shared, connection, options)
        self.operations = Operations(self.node)
        self.node.save_state = storage.save_state
        self.driver.start()
        await self.listen_on(lambda listener: listener.is_http)  # to be asked how far it is
        await self.node.start(place.identity)
        if in_memory:
            storage.follow()
        place.write(self.node.stream.identity)
        if history:
            log.info(what_is_recorded(settings))

    def open_storage(self) -> None:
        """Take up the data folder: the retained set and sessions of before, and a journal for what comes."""
        settings = self.loaded.settings
        storage_type = settings.retainer.storage_type
        if storage_type == "ram":
            return
        table = settings.history
        history = table.enable and can_write_history()
        place_history(settings)
        storage = self.storage = DiskStorage(settings.data, self.loop)
        filters = list(table.filter) if history else None
        self.driver.use_log(storage.open(settings.durability, filters, records_live=table.record == "all"))
        leave_cluster(storage)
        self.driver.carry_out(storage.load(self.broker, self.driver.now_ms(), storage_type == "disc"))
        storage.start(history_options(settings, self.broker.log.position + 1) if history else None)
        if history:
            log.info(what_is_recorded(settings))

    async def listen_on(self, wanted: Callable[[Listener], bool]) -> None:
        for number, listener in enumerate(self.loaded.settings.listeners()):
            if wanted(listener):
                await self.listen(number, listener)

    async def listen(self, number: int, listener: Listener) -> None:
        settings = self.loaded.settings
        certificates = Certificates(make_trust(settings, listener)) if listener.is_tls else None
        context = certificates.context if certificates is not None else None
        policy = self.make_policy(listener, certificates)
        self.doors.append(Door(number, policy, certificates))
        if listener.scheme == "udp":
            self.addresses[number] = self.listen_for_sensors(listener, policy)
            return
        if listener.is_http:
            self.addresses[number] = self.listen_http(listener, policy, context)
            return
        try:
            server = await self.loop.create_server(
                self.peer_factory(listener, policy),
                listener.host,
                listener.port,
                ssl=context,
                backlog=BACKLOG,
                reuse_address=True,
                ssl_handshake_timeout=float(settings.limits.connect_timeout) if context is not None else None,
            )
        except OSError as error:
            raise UsageError(f"cannot listen on {listener.url}: {explain(error)}") from None
        self.servers.append(server)
        for sock in server.sockets:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.addresses[number] = say_listening(listener.scheme, *sock.getsockname()[:2])

    def listen_http(self, listener: Listener, policy: ListenerPolicy, context: ssl.SSLContext | None) -> str:
        """Serve API and dashboard on this listener too; returns where that is."""
        if not can_serve_http():
            return listener.url
        if self.http is None:
            self.http = self.make_http()
        try:
            host, port = self.http.listen(listener.host, listener.port, context, policy)
        except OSError as error:
            raise UsageError(f"cannot listen on {listener.url}: {explain(error)}") from None
        return say_listening(listener.scheme, host, port)

    def import_http(self) -> None:
        """Read the code of the API, which takes seconds, in which the others would hear nothing of a node."""
        schemes = [listener.scheme for listener in self.loaded.settings.listeners()]
        if ("http" in schemes or "https" in schemes) and can_serve_http():
            importlib.import_module("holdfast.api.app")

    def make_http(self) -> "HttpService":
        from holdfast.api.app import HttpService
        from holdfast.api.auth import NO_KEYS, ApiAuthenticator
        from holdfast.api.status import ServerStatus

        settings = self.loaded.settings
        storage = self.storage
        recovered = storage.recovered if storage is not None else None
        writes_history = storage is not None and any(follower.name == "history" for follower in storage.followers)
        status = ServerStatus(
            self.driver,
            journal=recovered.journal if recovered is not None else None,
            history=storage.folder.table if storage is not None and writes_history else None,
            erasures=storage.folder.erasures if storage is not None else None,
            reached=storage.reached if storage is not None else {},
            problems=storage.problems if storage is not None else {},
            paused=storage.paused if storage is not None else {},
            version=__version__,
            started_at_ms=self.driver.now_ms(),
            storage_type=settings.retainer.storage_type,
            cluster=self.operations,
            folder=storage.folder.root if storage is not None else None,
            heard=storage.folder.heard if storage is not None else None,
            skipped=storage.skipped if storage is not None and self.node is None else (0, 0),
            denials=self.driver.sightings.denials,
            configuration=Shown(self),
            bridges=self.bridges,
            on_denied=self.driver.on_denied,
        )
        keys, users = api_secrets(settings)
        others = others_log_in(settings)
        authenticator = ApiAuthenticator(self.broker, keys, users, settings.api.admins, self.bans, others)
        if authenticator.is_closed:
            log.warning(NO_KEYS)
        return HttpService(status, authenticator, settings.api.cors, settings.api.max_connections)

    def make_policy(self, listener: Listener, certificates: Certificates | None) -> ListenerPolicy:
        settings = self.loaded.settings
        return ListenerPolicy(
            listener.max_connections,
            settings.limits.message_rate,
            listener.allow_anonymous,
            self.bans,
            self.limits,
            listener.proxy,
            settings.tls.identity,
            certificates,
        )

    def peer_factory(self, listener: Listener, policy: ListenerPolicy) -> Callable[[], Any]:
        """What is made for each connection."""
        driver = self.driver
        settings = self.loaded.settings
        make: Callable[[], StreamPeer] = lambda: StreamPeer(driver, policy)  # noqa: E731
        if listener.is_websocket:
            origins = Origins(settings.websocket.origins, listener.is_loopback)
            make = lambda: WebSocketPeer(driver, policy, listener.path, origins)  # noqa: E731
        if listener.proxy:
            return lambda: ProxyHeaderReader(driver, policy, make(), float(settings.limits.connect_timeout))
        return make

    def listen_for_sensors(self, listener: Listener, policy: ListenerPolicy) -> str:
        """MQTT-SN: every client of the listener is behind the one socket. Returns where that is."""
        try:
            sock = open_socket(listener.host, listener.port)
        except OSError as error:
            raise UsageError(f"cannot listen on {listener.url}: {explain(error)}") from None
        settings = self.loaded.settings
        endpoint = UdpEndpoint(self.driver, policy, sensor_settings(settings, listener), sock)
        self.sensors.append(endpoint)
        endpoint.start()
        address = say_listening(listener.scheme, *sock.getsockname()[:2])
        if settings.sn.advertise:
            to, _, to_port = settings.sn.advertise.rpartition(":")
            endpoint.advertise((to, int(to_port)), settings.sn.advertise_interval)
        return address

    def every(self, interval_s: float, act: Callable[[], object]) -> None:
        def again() -> None:
            self.timers[number] = self.loop.call_later(interval_s, again)
            act()

        number = len(self.timers)
        self.timers.append(self.loop.call_later(interval_s, again))
        self.loop.call_soon(act)

    def tidy(self) -> None:
        if gc.get_count()[0] > COLLECT_AT_MOST:
            gc.freeze()
        else:
            gc.collect(1)
        retained = self.broker.retained
        removed = retained.deletes + retained.expired + self.broker.counters.connections_opened * CONNECTION_WEIGHT
        if removed - self.trimmed_at > TRIM_AFTER:
            self.trimmed_at = removed
            give_memory_back()

    def publish_system(self) -> None:
        more = self.operations.system_topics() if self.operations is not None else {}
        self.driver.carry_out(self.system.publish(self.broker, self.driver.now_ms(), more))

    def reload(self) -> None:
        """SIGHUP: certificates, log level, users, access rules, retainer limits; says what could not be changed."""
        try:
            loaded = self.loaded.reload()
            left = needs_restart(self.loaded.settings, loaded.settings)
            settings = keep_fixed(self.loaded.settings, loaded.settings)
            problems = problems_of(settings, loaded.origins)
            if problems:  # without what needs a restart it would not do
                raise ConfigError(f"before a restart: {'; '.join(str(problem) for problem in problems)}")
            access = access_rules(settings)
            methods = login_methods(settings)
            keys, users = api_secrets(settings)
            listeners = settings.listeners()
            trusts = [make_trust(settings, listener) if listener.is_tls else None for listener in listeners]
        except (ConfigError, OSError) as error:
            log.error("reload failed, nothing was changed", extra={"error": str(error)})
            return
        diagnostics.configure(settings.log.level, settings.log.format)
        self.broker.set_access(access)
        if self.node is None:
            fill_retainer(self.broker.settings, settings)
            self.broker.set_policies(retainer_policies(settings))
        else:  # they are the same for all nodes: the log says when they change
            self.node.shared.change_settings(shared_settings(broker_settings(settings)))
            self.node.propose()
        fill_bans(self.bans, settings)
        fill_clients(self.broker.settings, settings)
        for door, listener, trust in zip(self.doors, listeners, trusts, strict=True):
            door.policy.allow_anonymous = listener.allow_anonymous
            door.policy.identity = settings.tls.identity
            if door.certificates is not None and trust is not None:
                door.certificates.use(trust)
        gone = names_of(self.authenticator.methods.passwords) - names_of(methods.passwords)
        self.authenticator.configure(methods, knows_users(settings, access))
        ended = self.authenticator.end_unproven()
        self.driver.drop_wills(gone)
        if self.http is not None:
            self.http.authenticator.replace(keys, users, settings.api.admins, others_log_in(settings))
            self.http.room.end_revoked()
            if self.http.authenticator.is_closed:
                log.warning("the API answers nobody: clients log in, but there is no api.key_file")
        self.loaded = replace(loaded, settings=settings)
        reload = self.loop.create_task(self.bridges.apply(bridges(settings)), name="reload-bridges")
        self.reloads.add(reload)
        reload.add_done_callback(self.reloads.discard)
        log.info("reloaded certificates, log level, users, access rules, bans, retainer limits, policies and bridges")
        if ended:
            log.info("closed connections whose login is no longer valid", extra={"count": ended})
        if left:
            log.warning("these settings need a restart and keep their old values", extra={"settings": ", ".join(left)})
        warn_of_secrets(settings)

    async def stop(self) -> None:
        begun_s = self.loop.time()
        for server in self.servers:
            server.close()
        for endpoint in self.sensors:
            endpoint.stop_reading()
        for timer in self.timers:
            timer.cancel()
        if self.http is not None:
            await self.http.stop()
        await self.bridges.stop()
        log.info("stopping", extra={"clients": self.broker.counters.connected_now})
        self.driver.stop()
        if self.node is not None:
            await self.node.stop()
        deadline = begun_s + SHUTDOWN_GRACE_S
        while any(door.policy.peers for door in self.doors) and self.loop.time() < deadline:
            for door in self.doors:
                for peer in list(door.policy.peers):
                    peer.close("the server is shutting down")
            await asyncio.sleep(0.02)
        for door in self.doors:
            for peer in list(door.policy.peers):
                peer.abort()
        self.authenticator.stop()
        if self.storage is not None:
            await self.storage.stop(begun_s + SHUTDOWN_S - self.loop.time())
        for endpoint in self.sensors:
            endpoint.close()
        await asyncio.sleep(0)
        log.info("stopped")


class Shown:
    """The configuration as the API shows it: what is in force now."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def settings(self) -> list[dict[str, Any]]:
        return shown_settings(self.server.loaded)

    def listeners(self) -> list[dict[str, Any]]:
        listeners = self.server.loaded.settings.listeners()
        return [
            {
                "address": self.server.addresses.get(door.number, listeners[door.number].url),
                "scheme": listeners[door.number].scheme,
                "connections": len(door.policy.peers),
                "max_connections": door.policy.max_connections,
                "anonymous": door.policy.allow_anonymous,
                "tls": door.certificates is not None,
            }
            for door in self.server.doors
        ]

    def users(self) -> list[dict[str, Any]]:
        settings = self.server.loaded.settings
        http = self.server.http
        groups = settings.auth.group
        found = [
            {
                "name": name,
                "kind": "user",
                "admin": name in settings.api.admins,
                "groups": [group.name for group in groups if name in group.users],
            }
            for name in sorted(names_of(self.server.authenticator.methods.passwords))
        ]
        keys = http.authenticator.keys if http is not None else None
        for name in sorted(names_of(keys if isinstance(keys, PasswordFile) else None)):
            found.append({"name": name, "kind": "key", "admin": True, "groups": []})
        return found

    def logins(self) -> list[str]:
        settings = self.server.loaded.settings
        ways = {
            "password file": settings.auth.password_file is not None,
            "token": settings.jwt.key_file is not None or settings.jwt.jwks_file is not None,
            "HTTP service": settings.callback.url != "",
            "client certificate": settings.asks_certificates,
        }
        return [name for name, there in ways.items() if there]


def can_write_history() -> bool:
    """Whether the parts that `holdfast-mqtt[history]` brings are there; says so when they are not."""
    if importlib.util.find_spec("deltalake") is not None:
        return True
    log.warning("no history is written: `pip install 'holdfast-mqtt[history]'`, or set history.enable=false")
    return False


def can_serve_http() -> bool:
    """Whether the parts that `holdfast-mqtt[ui]` brings are there; says so when they are not."""
    if all(importlib.util.find_spec(name) is not None for name in ("fastapi", "uvicorn", "prometheus_client")):
        return True
    log.warning("no HTTP API and no dashboard: `pip install 'holdfast-mqtt[ui]'`, or listen without http://")
    return False


def give_memory_back() -> None:
    """Ask the C library to return what is free; not every one knows how."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def say_once(what: str) -> Callable[[str], None]:
    """What says why something does not work, whenever the reason is another one."""
    said = ""

    def say(why: str) -> None:
        nonlocal said
        if why != said:
            said = why
            log.warning(what, extra={"detail": why})

    return say


def say_listening(scheme: str, host: str, port: int) -> str:
    """With the port that the system chose where the configuration has 0; returns the address."""
    url = Endpoint(scheme, host, port).url
    log.info(f"listening {url}")
    return url


def explain(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "address already in use - is another broker running?"
    if error.errno == errno.EACCES:
        return "permission denied - ports below 1024 need privileges"
    return (error.strerror or str(error)).lower()


def raise_file_limit() -> None:
    """As many connections as the system lets this process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def make_trust(settings: Settings, listener: Listener) -> Trust:
    """Raises ConfigError when a file of the listener's cannot be used."""
    tls = settings.tls
    return Trust(
        listener.cert,
        listener.key,
        listener.ca,
        listener.require_client_certificate,
        tls.min_version,
        tls.ciphers,
        listener.crl,
    )


def names_of(passwords: PasswordFile | None) -> frozenset[str]:
    return frozenset(passwords.users) if passwords is not None else frozenset()


def warn_of_secrets(settings: Settings) -> None:
    for key, path in exposed_secrets(settings):
        log.warning(
            "every user of this machine can read a secret, expected mode 0600", extra={"key": key, "file": path}
        )


def others_log_in(settings: Settings) -> bool:
    """Whether there are logins, of which the API may know none."""
    return settings.has_logins or settings.asks_certificates


def api_secrets(settings: Settings) -> tuple[PasswordFile | None, PasswordFile | None]:
    """API keys, and the users of the broker."""
    path = settings.api.key_file
    return PasswordFile(path) if path is not None else None, password_file(settings)
