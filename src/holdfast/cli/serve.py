"""`holdfast serve`: read the configuration, start diagnostics, hand over to the server."""

import contextlib
import logging
import platform
import socket
from collections.abc import Iterable

import typer

from holdfast import __version__, build
from holdfast.cli.options import Assignments, Cluster, Config, Data, Listen, NodeName, cluster_assignments
from holdfast.config.listener import Endpoint
from holdfast.errors import UsageError


def serve(
    config: Config = None,
    listen: Listen = None,
    data: Data = None,
    assignments: Assignments = None,
    cluster: Cluster = None,
    node: NodeName = None,
) -> None:
    """
    Run the broker.

    Flags take precedence over environment variables, those over the configuration file, and the file over the defaults.
    By default the broker listens on loopback only: 1883 (MQTT), 8083 (MQTT over WebSocket), 1884 (MQTT-SN over UDP) and
    18083 (HTTP API and dashboard). SIGTERM and Ctrl-C stop it; SIGHUP reloads certificates, log level, users, access
    rules and retainer limits.

    Examples:

        holdfast serve

        holdfast serve --config holdfast.toml --set log.level=debug

        holdfast serve --listen tcp://127.0.0.1:2883 --data /var/lib/holdfast

        HOLDFAST_RETAINER__STORAGE_TYPE=ram holdfast serve

        holdfast serve --cluster nats://h1:4222,nats://h2:4222,nats://h3:4222 --node a
    """
    from holdfast import diagnostics
    from holdfast.config import load
    from holdfast.config.checks import unanswered
    from holdfast.server import run

    loaded = load(config, listen or (), data, cluster_assignments(assignments, cluster, node))
    refuse_taken_addresses(loaded.settings.listeners())
    diagnostics.configure(loaded.settings.log.level, loaded.settings.log.format)
    log = logging.getLogger("holdfast")
    details = {"version": __version__, "build": build.name(), "python": platform.python_version()}
    log.info("starting", extra=details)
    if not build.is_compiled():
        log.warning("the hot path is interpreted, not compiled: everything works, but much more slowly")
    for key, message in unanswered(loaded.settings):
        log.warning(message, extra={"key": key})
    try:
        code = run(loaded)
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        raise UsageError(f"cannot start: {(error.strerror or str(error)).lower()}{place}") from error
    raise typer.Exit(code)


def refuse_taken_addresses(listeners: Iterable[Endpoint]) -> None:
    """Says that an address cannot be had before anything else is done or written. Raises UsageError."""
    from holdfast.server import explain

    for listener in listeners:
        kind = socket.SOCK_DGRAM if listener.scheme == "udp" else socket.SOCK_STREAM
        with contextlib.suppress(socket.gaierror):  # a name that is not found is the server's to tell
            [(family, _, _, _, address), *_] = socket.getaddrinfo(listener.host, listener.port, type=kind)
            with socket.socket(family, kind) as probe:
                if kind == socket.SOCK_STREAM:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as the listeners do
                try:
                    probe.bind(address)
                except OSError as error:
                    raise UsageError(f"cannot listen on {listener.url}: {explain(error)}") from None
