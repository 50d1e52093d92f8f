"""The options by which a command finds its configuration; those that read it share them."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.completion import assignments, listener_urls

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Configuration file (TOML). Environment: HOLDFAST_CONFIG."),
]
Listen = Annotated[
    list[str] | None,
    typer.Option(
        "--listen",
        metavar="URL",
        help="Where to listen; can be repeated: tcp:// tls:// ws:// wss:// udp:// http:// https://, each with "
        "host:port. Replaces all listeners of the configuration, including the dashboard's. With a leading + "
        "(+tcp://0.0.0.0:1883) the listener is added, and replaces only one on the same port. Environment: "
        "HOLDFAST_LISTEN, separated by commas.",
        autocompletion=listener_urls,
    ),
]
Data = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="Data folder; default ./data. Environment: HOLDFAST_DATA.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set any configuration key; can be repeated.",
        autocompletion=assignments,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="URLS", help="NATS servers that keep the cluster's log, separated by commas."),
]
NodeName = Annotated[str | None, typer.Option("--node", metavar="NAME", help="The name of this node in the cluster.")]


def cluster_assignments(given: list[str] | None, cluster: str | None, node: str | None) -> list[str]:
    """What was set on the command line, the cluster's flags included."""
    flags = {"cluster.url": cluster, "cluster.node": node}
    return [*(given or ()), *(f"{key}={value}" for key, value in flags.items() if value is not None)]
