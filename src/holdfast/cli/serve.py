"""`holdfast serve`: read the configuration, start diagnostics, hand over to the server."""

import logging
import platform

import typer

from holdfast import __version__, build
from holdfast.cli.options import Assignments, Cluster, Config, Data, Listen, NodeName, cluster_assignments
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

    A flag wins over the environment, the environment over the file, the file over the default. Without any of
    them the broker answers on loopback only: 1883 (MQTT), 8083 (MQTT over WebSocket), 1884 (MQTT-SN over UDP) and
    18083 (HTTP API and dashboard). SIGTERM and Ctrl-C stop it, SIGHUP makes it read certificates, log level, users,
    access rules and retainer limits again.

    Examples:

        holdfast serve

        holdfast serve --config holdfast.toml --set log.level=debug

        holdfast serve --listen tcp://127.0.0.1:2883 --data /var/lib/holdfast

        HOLDFAST_RETAINER__STORAGE_TYPE=ram holdfast serve

        holdfast serve --cluster nats://h1:4222,nats://h2:4222,nats://h3:4222 --node a
    """
    from holdfast import diagnostics
    from holdfast.config import load
    from holdfast.server import run

    loaded = load(config, listen or (), data, cluster_assignments(assignments, cluster, node))
    diagnostics.configure(loaded.settings.log.level, loaded.settings.log.format)
    log = logging.getLogger("holdfast")
    details = {"version": __version__, "build": build.name(), "python": platform.python_version()}
    log.info("starting", extra=details)
    if not build.is_compiled():
        log.warning("the hot path is interpreted, not compiled: everything works, at a fraction of the speed")
    try:
        code = run(loaded)
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        raise UsageError(f"cannot start: {(error.strerror or str(error)).lower()}{place}") from error
    raise typer.Exit(code)
