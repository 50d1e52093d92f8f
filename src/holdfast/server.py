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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import __version__, diagnostics
from holdfast.broker.core import Broker
from holdfast.broker.log import Log
from holdfast.broker.settings import Settings as BrokerSettings
from holdfast.broker.system import SystemTopics
from holdfast.config import ConfigError, Listener, Loaded, Settings
from holdfast.config.listener import Endpoint
from holdfast.core_settings import (
    broker_settings,
    fill_banned,
    fill_retainer,
    needs_restart,
    retainer_policies,
    sensor_settings,
)
from holdfast.entry import access_rules, fill_bans, login_methods, password_file
from holdfast.errors import UsageError
from holdfast.identity.passwords import PasswordFile
from holdfast.net.authentication import LoginAuthenticator
from holdfast.net.bans import Bans
from holdfast.net.commit import Commits
from holdfast.net.crowd import Crowd
from holdfast.net.gate import Gate
from holdfast.net.hub import Hub
from holdfast.net.origins import Origins
from holdfast.net.peer import StreamPeer
from holdfast.net.proxied import ProxiedStart
from holdfast.net.tls import Certificates
from holdfast.net.udp import UdpEndpoint, open_socket
from holdfast.net.websocket import WebSocketPeer
from holdfast.storage.disk import DiskStorage
from holdfast.storage.folder import DataFolder

if TYPE_CHECKING:
    from holdfast.api.app import HttpService

log = logging.getLogger("holdfast")

BACKLOG = 4096
# How long clients may take to swallow their goodbye, and how long the whole end may take.
SHUTDOWN_GRACE_S = 2.0
SHUTDOWN_S = 4.5
# The core makes no reference cycles. What others make is collected in small, frequent portions; a full collection
# would look at every retained message there is and stop the loop for it. Where very much is new, that is retained
# messages: they are put out of the collector's sight unseen.
COLLECT_EVERY_S = 5.0
COLLECT_AT_MOST = 100_000
# So many retained messages gone are worth asking the system to take their memory back.
TRIM_AFTER = 100_000
CONNECTION_WEIGHT = 50  # what a connection leaves behind, in retained messages


def run(loaded: Loaded) -> int:
    """Serve until told to stop; the process's exit code."""
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
    return 0


@asynccontextmanager
async def open_offline(root: Path, settings: BrokerSettings | None = None) -> AsyncIterator[Hub]:
    """A broker without listeners on a data folder, which it keeps locked. What was published through it is in journal,
    state and history when the context ends.

    Without settings nothing is refused for its size or number: limits stand in the configuration, not in the folder.
    Raises StoreError when another broker has the folder.
    """
    if settings is None:
        settings = BrokerSettings()
        settings.max_retained_payload = 0
    loop = asyncio.get_running_loop()
    history = DataFolder(root).has_history()
    broker = Broker(settings, "")
    keeps = Log(True, True, [b"#"] if history else [])
    broker.log = keeps
    hub = Hub(broker, loop)
    storage = DiskStorage(root, broker, keeps, loop)
    recovered = storage.open(history, hub.now_ms(), True)
    hub.keep(Commits(broker, keeps, recovered.journal, False))
    storage.start(history, 1.0, 0, 0)
    try:
        yield hub
    finally:
        await storage.stop(None)  # for as long as it takes: the next reader is to find everything


class Server:
    """A broker with its listeners, signals and periodic work."""

    def __init__(self, loaded: Loaded, loop: asyncio.AbstractEventLoop) -> None:
        self.loaded = loaded
        self.loop = loop
        self.stopping = asyncio.Event()
        settings = loaded.settings
        self.broker = Broker(broker_settings(settings), f"hf-{secrets.token_hex(4)}-")
        self.broker.set_access(access_rules(settings))
        self.hub = Hub(self.broker, loop)
        self.authenticator = LoginAuthenticator(self.hub, login_methods(settings))
        self.bans = Bans()
        fill_bans(self.bans, settings)
        self.crowd = Crowd(settings.limits.max_connections_per_address, settings.limits.connect_rate_per_address)
        self.certificates: list[Certificates] = []
        self.servers: list[asyncio.Server] = []
        self.gates: list[Gate] = []
        self.sensors: list[UdpEndpoint] = []
        self.system = SystemTopics(__version__, self.hub.now_ms())
        self.timers: list[asyncio.TimerHandle] = []
        self.storage: DiskStorage | None = None
        self.trimmed_at = 0
        self.http: HttpService | None = None

    async def start(self) -> None:
        self.open_storage()
        listeners = self.loaded.settings.listeners()
        if self.loaded.settings.has_logins or any(not listener.allow_anonymous for listener in listeners):
            # Where names are kept, a name is never taken unproven, not even where one need not give any.
            self.broker.authenticator = self.authenticator
        self.loop.add_signal_handler(signal.SIGTERM, self.stopping.set)
        self.loop.add_signal_handler(signal.SIGINT, self.stopping.set)
        self.loop.add_signal_handler(signal.SIGHUP, self.reload)
        for listener in listeners:
            await self.listen(listener)
        self.hub.start()
        if self.storage is not None:
            self.every(1.0, self.storage.tick)
        interval = self.loaded.settings.sys.interval
        if interval > 0:
            self.every(interval, self.publish_system)
        gc.freeze()
        gc.disable()
        self.every(COLLECT_EVERY_S, self.tidy)

    def open_storage(self) -> None:
        """Take up the data folder: the retained set and sessions of before, and a journal for what comes."""
        settings = self.loaded.settings
        storage_type = settings.retainer.storage_type
        if storage_type == "ram":
            return
        history = settings.history.enable and can_write_history()
        filters = [topic_filter.encode() for topic_filter in settings.history.filter] if history else []
        keeps = Log(settings.durability != "none", True, filters)
        self.broker.log = keeps
        self.storage = DiskStorage(settings.data, self.broker, keeps, self.loop)
        recovered = self.storage.open(history, self.hub.now_ms(), storage_type == "disc")
        self.hub.keep(Commits(self.broker, keeps, recovered.journal, settings.durability == "deliver"))
        table = settings.history
        self.storage.start(history, float(table.flush_interval), int(table.retention), table.retention_bytes)

    async def listen(self, listener: Listener) -> None:
        settings = self.loaded.settings
        if listener.scheme == "udp":
            self.listen_for_sensors(listener)
            return
        if listener.scheme in ("http", "https"):
            self.listen_http(listener)
            return
        gate = self.make_gate(listener)
        context = self.tls_context(listener)
        try:
            server = await self.loop.create_server(
                self.peer_factory(listener, gate),
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
        self.gates.append(gate)
        for sock in server.sockets:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            say_listening(listener.scheme, *sock.getsockname()[:2])

    def tls_context(self, listener: Listener) -> ssl.SSLContext | None:
        """None where the listener speaks in the clear."""
        if not listener.is_tls:
            return None
        tls = self.loaded.settings.tls
        certificates = Certificates(
            listener.cert,
            listener.key,
            listener.ca,
            listener.require_client_certificate,
            tls.min_version,
            tls.ciphers,
            listener.crl,
        )
        self.certificates.append(certificates)
        return certificates.context

    def listen_http(self, listener: Listener) -> None:
        """Serve API and dashboard on this listener too."""
        if not can_serve_http():
            return
        context = self.tls_context(listener)
        if self.http is None:
            self.http = self.make_http()
        try:
            host, port = self.http.listen(listener.host, listener.port, context, listener.max_connections)
        except OSError as error:
            raise UsageError(f"cannot listen on {listener.url}: {explain(error)}") from None
        say_listening(listener.scheme, host, port)

    def make_http(self) -> "HttpService":
        from holdfast.api.app import HttpService
        from holdfast.api.auth import ApiAuthenticator
        from holdfast.api.status import ServerStatus

        settings = self.loaded.settings
        storage = self.storage
        recovered = storage.recovered if storage is not None else None
        writes_history = storage is not None and any(follower.name == "history" for follower in storage.followers)
        status = ServerStatus(
            self.hub,
            journal=recovered.journal if recovered is not None else None,
            history=storage.folder.history if storage is not None and writes_history else None,
            reached=storage.reached if storage is not None else {},
            problems=storage.problems if storage is not None else {},
            version=__version__,
            started_at_ms=self.hub.now_ms(),
            storage_type=settings.retainer.storage_type,
        )
        keys, users = api_secrets(settings)
        authenticator = ApiAuthenticator(self.broker, keys, users, settings.api.admins, self.bans)
        return HttpService(status, authenticator, settings.api.cors)

    def make_gate(self, listener: Listener) -> Gate:
        settings = self.loaded.settings
        return Gate(
            listener.max_connections,
            settings.limits.message_rate,
            listener.allow_anonymous,
            self.bans,
            self.crowd,
            listener.proxy,
            settings.tls.identity,
        )

    def peer_factory(self, listener: Listener, gate: Gate) -> Callable[[], Any]:
        """What is made for each connection."""
        hub = self.hub
        settings = self.loaded.settings
        make: Callable[[], StreamPeer] = lambda: StreamPeer(hub, gate)  # noqa: E731
        if listener.is_websocket:
            origins = Origins(settings.websocket.origins, listener.is_loopback)
            make = lambda: WebSocketPeer(hub, gate, listener.path, origins)  # noqa: E731
        if listener.proxy:
            return lambda: ProxiedStart(hub, gate, make(), float(settings.limits.connect_timeout))
        return make

    def listen_for_sensors(self, listener: Listener) -> None:
        """MQTT-SN: every client of the listener is behind the one socket."""
        try:
            sock = open_socket(listener.host, listener.port)
        except OSError as error:
            raise UsageError(f"cannot listen on {listener.url}: {explain(error)}") from None
        settings = self.loaded.settings
        gate = self.make_gate(listener)
        endpoint = UdpEndpoint(self.hub, gate, sensor_settings(settings, listener), sock)
        self.sensors.append(endpoint)
        endpoint.start()
        say_listening(listener.scheme, *sock.getsockname()[:2])
        if settings.sn.advertise:
            to, _, to_port = settings.sn.advertise.rpartition(":")
            endpoint.advertise((to, int(to_port)), settings.sn.advertise_interval)

    def every(self, interval_s: float, act: Callable[[], object]) -> None:
        def again() -> None:
            self.timers[place] = self.loop.call_later(interval_s, again)
            act()

        place = len(self.timers)
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
        self.broker.now_ms = self.hub.now_ms()
        self.system.publish(self.broker)
        self.hub.carry_out()

    def reload(self) -> None:
        """SIGHUP: certificates, log level, users, access rules, retainer limits; says what could not be changed."""
        try:
            loaded = self.loaded.reload()
            rules = access_rules(loaded.settings)
            methods = login_methods(loaded.settings)
            keys, users = api_secrets(loaded.settings)
            for certificates in self.certificates:
                certificates.reload()
        except (ConfigError, OSError) as error:
            log.error("reload failed, everything stays as it was", extra={"error": str(error)})
            return
        diagnostics.configure(loaded.settings.log.level, loaded.settings.log.format)
        self.broker.set_access(rules)
        fill_retainer(self.broker.settings, loaded.settings)
        self.broker.set_policies(retainer_policies(loaded.settings))
        self.authenticator.configure(methods)
        fill_bans(self.bans, loaded.settings)
        fill_banned(self.broker.settings, loaded.settings)
        if self.http is not None:
            self.http.authenticator.replace(keys, users, loaded.settings.api.admins)
        left = needs_restart(self.loaded.settings, loaded.settings)
        self.loaded = loaded
        log.info("reloaded certificates, log level, users, access rules, bans, retainer limits and policies")
        if left:
            log.warning("these settings need a restart", extra={"settings": ", ".join(left)})

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
        self.hub.stop()
        log.info("stopping", extra={"clients": self.broker.counters.connected_now})
        self.broker.shut_down(self.hub.now_ms())
        self.hub.carry_out()
        deadline = begun_s + SHUTDOWN_GRACE_S
        while any(gate.peers for gate in self.gates) and self.loop.time() < deadline:
            for gate in self.gates:
                for peer in list(gate.peers):
                    peer.close("the server is shutting down")
            await asyncio.sleep(0.02)
        for gate in self.gates:
            for peer in list(gate.peers):
                peer.abort()
        self.authenticator.stop()
        if self.storage is not None:
            await self.storage.stop(begun_s + SHUTDOWN_S - self.loop.time())
        for endpoint in self.sensors:
            endpoint.close()
        await asyncio.sleep(0)
        log.info("stopped")


def can_write_history() -> bool:
    """Whether the parts that `holdfast[history]` brings are there; says so when they are not."""
    if importlib.util.find_spec("deltalake") is not None:
        return True
    log.warning("no history is written: install holdfast[history], or set history.enable=false")
    return False


def can_serve_http() -> bool:
    """Whether the parts that `holdfast[ui]` brings are there; says so when they are not."""
    if all(importlib.util.find_spec(name) is not None for name in ("fastapi", "uvicorn", "prometheus_client")):
        return True
    log.warning("no HTTP API and no dashboard: install holdfast[ui], or leave http:// out of the listeners")
    return False


def give_memory_back() -> None:
    """Ask the C library to return what is free; not every one knows how."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def say_listening(scheme: str, host: str, port: int) -> None:
    """With the port that the system chose where the configuration has 0."""
    log.info(f"listening {Endpoint(scheme, host, port).url}")


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


def api_secrets(settings: Settings) -> tuple[PasswordFile | None, PasswordFile | None]:
    """API keys, and the users of the broker."""
    path = settings.api.key_file
    return PasswordFile(path) if path is not None else None, password_file(settings)
