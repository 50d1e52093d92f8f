"""What a comparison looks like: a table for each scenario in the terminal, one table over all of them for the README.

Behind a figure stands how many times better it is than mosquitto's of the same run; in a cluster's, than nats-server's.
"""

from rich import box
from rich.table import Table

from peers import AS_SHIPPED, HOLDFASTS, MEMORY_ONLY, Peer
from scenario import SHARE, Figure, Outcome, Scenario

# (scenario, figure, what the README calls it)
LINES = (
    ("qos0", "received_per_s", "QoS 0, one to one, messages/s"),
    ("qos1", "received_per_s", "QoS 1, 200 in flight, messages/s"),
    ("fanout", "received_per_s", "QoS 0, one to fifty, messages/s"),
    ("pairs", "received_per_s", "twenty pairs, messages/s"),
    ("latency", "p99_ms", "latency at 5 000 messages/s, p99, ms"),
    ("retained-set", "set_per_s", "setting 200 000 retained messages at QoS 1, /s"),
    ("durable", "durable_1_per_s", "one retained topic at QoS 1, 200 in flight, /s"),
    ("durable", "durable_10_per_s", "ten publishers of the same, /s"),
    ("durable", "one_at_a_time_ms", "one in flight, ms each"),
    ("snapshot", "snapshot_per_s", "sending 200 000 retained messages to a new subscriber, /s"),
    ("retained", "snapshot_per_s", "sending 1 000 000, /s"),
    ("retained", "ping_max_ms", "another client's slowest ping meanwhile, ms"),
    ("retained", "overhead_bytes", "memory for each, beyond topic and payload, bytes"),
    ("roundtrip", "set_and_receive_ms", "setting one topic until it is received, ms"),
    ("idle", "bytes_per_connection", "memory of an idle connection, bytes"),
    ("start", "start_s", "start with 1 000 000 retained messages and 10 000 sessions, s"),
    (
        "cluster-publish",
        "acknowledged_per_s",
        "retained at QoS 1, ten publishers with 200 in flight over all nodes, /s",
    ),
    ("cluster-roundtrip", "p50_ms", "retained at QoS 1, one in flight, p50, ms"),
    ("cluster-roundtrip", "p95_ms", "the same, p95, ms"),
    ("cluster-roundtrip", "to_bare", "p50 to that of a bare JetStream publish, times"),
    ("cluster-live", "received_per_s", "QoS 0 from one node to a subscriber on each other node, messages/s"),
    ("cluster-snapshot", "snapshot_per_s", "sending 200 000 retained messages to a new subscriber of any node, /s"),
    ("cluster-node", "gap_ms", "a node is killed: longest wait for a PUBACK on another, ms"),
    ("cluster-node", "resumed_s", "its client's session resumed on another node, s"),
    ("cluster-leader", "standstill_s", "the stream's leader is killed: until writes go on, s"),
    ("cluster-leader", "lost", "acknowledged writes that are not there afterwards"),
    ("cluster-join", "join_s", "a node joins with 1 000 000 retained messages: until it is ready, s"),
    ("cluster-join", "slower", "how much slower the others' writes are meanwhile, %"),
)


NOTE = (
    "Payloads of 64 bytes, medians of one run. In parentheses: how many times better than {}. "
    "`>=`: the generator was at its limit."
)


def table(scenario: Scenario, outcome: Outcome, names: list[str]) -> Table:
    title = f"{scenario.title}  ({', '.join((scenario.name, *scenario.settings))})"
    shown = Table(title=title, title_justify="left", box=box.SIMPLE)
    shown.add_column("")
    columns = [name for name in names if name in scenario.peers]
    for name in columns:
        shown.add_column(titled(name).replace(", ", ",\n"), justify="right", no_wrap=True)
    shown.add_column("target", justify="right", no_wrap=True)
    for figure in scenario.figures:
        cells = [f"{figure.label}, {figure.unit}" if figure.unit else figure.label]
        cells += [cell(outcome, name, figure) for name in columns]
        shown.add_row(*cells, target(outcome, figure))
    return shown


def titled(name: str) -> str:
    return f"{name}, as shipped" if name == AS_SHIPPED else name


def target(outcome: Outcome, figure: Figure) -> str:
    if not figure.target():
        return ""
    verdict = figure.verdict(outcome.median(figure.of, figure.key), outcome.median(figure.beside, figure.key))
    mark = {True: " [green]met[/green]", False: " [red]missed[/red]", None: ""}[verdict]
    return figure.target() + (", memory only" if figure.of == MEMORY_ONLY else "") + mark


def cell(outcome: Outcome, name: str, figure: Figure) -> str:
    value = outcome.median(name, figure.key)
    if value is None:
        return "-"
    shown = (">= " if outcome.is_lower_bound(name, figure) else "") + amount(value)
    ratio = figure.ratio(value, outcome.median(figure.beside, figure.key))
    if name == figure.beside or ratio is None or figure.unit in (SHARE, "times"):
        return shown
    return f"{shown} ({ratio:.0f}x)" if ratio >= 10 else f"{shown} ({ratio:.2g}x)"


def amount(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def markdown(outcomes: dict[str, Outcome], scenarios: list[Scenario], peers: list[Peer], settings: list[str]) -> str:
    """The README's table, of the lines that were measured."""
    columns = [peer for peer in peers if any(peer.name in outcome.rounds for outcome in outcomes.values())]
    lines = [
        "<!-- measured: `make bench` wrote this into build/bench.md, in one run -->",
        "| | " + " | ".join(heading(peer) for peer in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    besides: dict[str, None] = {}  # in the order of the lines
    known = {(scenario.name, figure.key): figure for scenario in scenarios for figure in scenario.figures}
    for name, key, label in LINES:
        figure = known.get((name, key))
        if figure is not None:
            cells = [cell(outcomes[name], peer.name, figure) for peer in columns]
            lines.append(f"| {label} | {' | '.join(cells)} |")
            besides[figure.beside] = None
    lines += [
        "",
        NOTE.format(" or ".join(titled(name) for name in besides)),
        "",
        *(f"- {line}" for line in settings),
        "<!-- /measured -->",
    ]
    return "\n".join(lines) + "\n"


def heading(peer: Peer) -> str:
    number = peer.version().partition(",")[0]
    if peer.on_all_cores:
        return f"{peer.name}<br>{peer.described().replace('; ', ', ').replace(', ', '<br>')}"
    if peer.name in HOLDFASTS:
        settings = "<br>".join(peer.described().split(", ")[:3])
        return f"{titled(peer.name)}<br>{settings}"
    return f"{peer.name} {number}<br>{'JetStream' if peer.name == 'nats-server' else 'in memory only'}"
