"""`holdfast bench`: the load generator on the command line."""

import json
import sys
from typing import Annotated

import typer


def scenarios(incomplete: str) -> list[str]:
    from holdfast_bench.plan import SCENARIOS

    return [name for name in SCENARIOS if name.startswith(incomplete)]


def bench(
    scenario: Annotated[
        str, typer.Argument(help="pub, sub, conn, pair, fanout, latency or retained", autocompletion=scenarios)
    ],
    host: Annotated[str, typer.Option("-h", "--host", help="the broker's address")] = "127.0.0.1",
    port: Annotated[int, typer.Option("-p", "--port", help="the broker's port")] = 1883,
    version: Annotated[str, typer.Option("-V", "--version", help="MQTT version: 3.1.1 (or 4) or 5")] = "3.1.1",
    clients: Annotated[int, typer.Option("-c", "--clients", min=1, help="connections, or pairs of them")] = 1,
    count: Annotated[int, typer.Option("-n", "--count", min=0, help="messages in all; 0 = run for --duration")] = 0,
    duration: Annotated[float, typer.Option("--duration", min=0.1, help="seconds to measure")] = 5.0,
    qos: Annotated[int, typer.Option("-q", "--qos", min=0, max=2, help="QoS of publishes and subscriptions")] = 0,
    size: Annotated[int, typer.Option("-s", "--size", min=0, help="payload size in bytes")] = 64,
    topic: Annotated[
        str, typer.Option("-t", "--topic", help="topic; %i is the client's number, in retained the message's")
    ] = "",
    retain: Annotated[bool, typer.Option("-r", "--retain", help="publish with the RETAIN flag")] = False,
    rate: Annotated[float, typer.Option("--rate", min=0, help="messages a second in all; 0 = flat out")] = 0.0,
    interval: Annotated[
        float, typer.Option("-I", "--interval", min=0, help="milliseconds between two messages of one client")
    ] = 0.0,
    inflight: Annotated[
        int, typer.Option("--inflight", help="unacknowledged messages per publisher, QoS 1 and 2")
    ] = 200,
    username: Annotated[str | None, typer.Option("-u", "--username", help="user name")] = None,
    password: Annotated[str | None, typer.Option("-P", "--password", help="password")] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="start of the client ids")] = "bench",
    topic_filter: Annotated[str, typer.Option("--filter", help="retained: the filter to subscribe")] = "#",
    keep: Annotated[bool, typer.Option("--keep", help="retained: leave the messages on the broker")] = False,
    pid: Annotated[int, typer.Option("--pid", help="the broker's process: how busy it is, and its memory")] = 0,
    cpu: Annotated[int | None, typer.Option("--cpu", help="keep the generator on this core")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON, without a progress bar")] = False,
) -> None:
    """
    Puts load on any MQTT broker and says what came through.

    Scenarios: pub, sub, conn (open and hold connections), pair (one subscriber for each publisher), fanout (one
    publisher, all clients subscribe), latency (pairs at a given rate), retained (set, snapshot, single topics, clear).

    Exit code 1 when messages are lost at QoS 1 or 2, when nothing is received or when the broker cannot be reached.

    Examples:

        holdfast bench pair -p 1883

        holdfast bench pair -c 20 -q 1 --inflight 200

        holdfast bench fanout -c 50 --duration 10

        holdfast bench latency --rate 5000 --json

        holdfast bench conn -c 10000 --pid 4242

        holdfast bench retained -n 1000000 --filter 'site/+/line/3/#'
    """
    # not at the top: `holdfast --help` must not load the generator, nor fail where it cannot run
    from rich.console import Console

    from holdfast.errors import HoldfastError, UsageError
    from holdfast_bench.plan import SCENARIOS, VERSIONS, Plan
    from holdfast_bench.report import Bar, bounds, summary
    from holdfast_bench.scenarios import Extras, run_scenario

    try:
        if scenario not in SCENARIOS:
            raise UsageError(f"unknown scenario {scenario!r}, expected one of {', '.join(SCENARIOS)}")
        if version not in VERSIONS:
            raise UsageError(f"MQTT version is {version!r}, expected one of {', '.join(VERSIONS)}")
        if interval and rate:
            raise UsageError("got both --rate and --interval, expected one of them")
        plan = Plan(
            host=host,
            port=port,
            version=VERSIONS[version],
            qos=qos,
            size=size,
            topic=topic,
            retain=retain,
            inflight=inflight,
            rate=rate or (1000 * clients / interval if interval else 0.0),
            count=count,
            duration_s=duration,
            stamped=bool(rate or interval) and scenario in ("pair", "fanout", "latency"),
            username=username,
            password=password,
            prefix=prefix,
            cpu=cpu,
        )
        with Bar(f"{scenario} {host}:{port}", quiet=as_json or not sys.stderr.isatty()) as bar:
            result = run_scenario(scenario, plan, clients, Extras(topic_filter, keep, pid), bar.watch)
    except HoldfastError as error:
        print(f"holdfast bench: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    if as_json:
        print(json.dumps(result.as_dict(), indent=2))
    else:
        print(f"{scenario} against {host}:{port}")
        Console().print(summary(result))
        for bound in bounds(result):
            print(bound)
    for problem in result.problems:
        print(f"holdfast bench: {problem}", file=sys.stderr)
    if result.problems:
        raise typer.Exit(1)
