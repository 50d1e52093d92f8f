"""Holdfast beside the brokers that are installed, in one run: what `make bench` does.

Rounds are interleaved (A B C A B C), so that a machine that slows down slows all of them, and medians are compared.
Each broker is started afresh for each round and held to one core; the generator has the others (PIN=0: all share).
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

import disk
import machine
import memory
import retained_scale
import scale
import sn
import throughput
from holdfast.errors import HoldfastError
from holdfast_bench.worker import allow_files
from peers import BROKER_CORES, GENERATOR_CORES, MOSQUITTO_SETTINGS, PEERS, Peer
from scenario import Outcome, Scenario

SCENARIOS: tuple[Scenario, ...] = (
    *throughput.SCENARIOS,
    *scale.SCENARIOS,
    *memory.SCENARIOS,
    *retained_scale.SCENARIOS,
    *disk.SCENARIOS,
    *sn.SCENARIOS,
)

OURS, YARDSTICK = "Holdfast", "mosquitto"
BUSY = 0.7  # load average at the start above which figures are not to be trusted
WIDTH = 110  # of the tables in a file or a pipe


def main() -> int:
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the blocks that stop the brokers
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    wanted = chosen(arguments.only)
    peers = present(arguments.peers, console)
    allow_files(scale.CONNECTIONS + 200)
    os.sched_setaffinity(0, GENERATOR_CORES)
    describe(peers, console)
    outcomes: dict[str, Outcome] = {}
    for scenario in wanted:
        outcomes[scenario.name] = compare(scenario, peers, arguments.rounds, console)
        console.print(table(scenario, outcomes[scenario.name], peers))
        for problem in outcomes[scenario.name].problems:
            console.print(f"[red]{problem}[/red]")
    write(Path(arguments.json), outcomes, peers)
    console.print(f"figures of every round: {arguments.json}")
    ours = [problem for outcome in outcomes.values() for problem in outcome.problems if problem.startswith(OURS)]
    return 1 if ours else 0


def parse() -> argparse.Namespace:
    names = ", ".join(scenario.name for scenario in SCENARIOS)
    parser = argparse.ArgumentParser(description="Compare Holdfast with the MQTT brokers that are installed.")
    parser.add_argument("--only", default=os.environ.get("ONLY", ""), help=f"comma-separated, of: {names}")
    parser.add_argument("--peers", default=os.environ.get("PEERS", ""), help="comma-separated names of brokers")
    parser.add_argument("--rounds", type=int, default=0, help="rounds of each scenario; 0 = what it asks for")
    parser.add_argument("--json", default="build/bench.json", help="where the figures of every round go")
    return parser.parse_args()


def chosen(only: str) -> list[Scenario]:
    names = [name for name in only.replace(",", " ").split() if name]
    known = {scenario.name: scenario for scenario in SCENARIOS}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"unknown scenario {unknown[0]!r}, expected one of {', '.join(known)}")
    return [known[name] for name in names] or list(SCENARIOS)


def present(only: str, console: Console) -> list[Peer]:
    names = [name.lower() for name in only.replace(",", " ").split() if name]
    found: list[Peer] = []
    for peer in PEERS:
        if names and not any(peer.name.lower().startswith(name) for name in names):
            continue
        reason = peer.missing()
        if reason:
            console.print(f"[yellow]{peer.name} is left out: {reason}[/yellow]")
        else:
            found.append(peer)
    return found


def describe(peers: list[Peer], console: Console) -> None:
    for peer in peers:
        console.print(f"{peer.name}: {peer.version()}")
    if YARDSTICK in [peer.name for peer in peers]:
        console.print(f"mosquitto has its defaults and: {', '.join(MOSQUITTO_SETTINGS)}")
    if BROKER_CORES != GENERATOR_CORES:
        console.print(f"cores: broker {sorted(BROKER_CORES)}, generator {sorted(GENERATOR_CORES)}")
    else:
        console.print(f"cores: broker and generator share {sorted(BROKER_CORES)}")
    busy = os.getloadavg()[0]
    if busy > BUSY:
        console.print(f"[yellow]load average {busy:.1f}: others use this machine, rates will be low and uneven")


def compare(scenario: Scenario, peers: list[Peer], rounds: int, console: Console) -> Outcome:
    outcome = Outcome()
    taking_part = [peer for peer in peers if peer.name in scenario.peers]
    with console.status("") as status:
        for turn in range(rounds or scenario.rounds):
            for peer in taking_part:
                if any(problem.startswith(peer.name) for problem in outcome.problems):
                    continue
                status.update(f"{scenario.title}: round {turn + 1} of {rounds or scenario.rounds}, {peer.name}")
                try:
                    with peer.configured(scenario.settings).started(scenario.quick_answers) as running:
                        outcome.add(peer.name, scenario.run(running))
                except (HoldfastError, OSError) as error:
                    outcome.problems.append(f"{peer.name}: {error}")
    return outcome


def table(scenario: Scenario, outcome: Outcome, peers: list[Peer]) -> Table:
    names = [peer.name for peer in peers if peer.name in scenario.peers]
    shown = Table(title=f"{scenario.title}  ({scenario.name})", title_justify="left", box=box.SIMPLE)
    shown.add_column("")
    for name in names:
        shown.add_column(name, justify="right", no_wrap=True)
    others = [name for name in names if name != OURS] if OURS in names else []
    for name in others:
        shown.add_column(f"to {name}", justify="right")
    shown.add_column("target", justify="right", no_wrap=True)
    for figure in scenario.figures:
        ours = outcome.median(OURS, figure.key)
        cells = [f"{figure.label}, {figure.unit}" if figure.unit else figure.label]
        cells += [amount(outcome.median(name, figure.key)) for name in names]
        for name in others:
            ratio = figure.ratio(ours, outcome.median(name, figure.key))
            cells.append("" if ratio is None else f"{ratio:.2f}x")
        verdict = figure.verdict(ours, outcome.median(YARDSTICK, figure.key))
        mark = {True: " [green]met[/green]", False: " [red]missed[/red]", None: ""}[verdict]
        shown.add_row(*cells, figure.target() + mark)
    return shown


def amount(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write(path: Path, outcomes: dict[str, Outcome], peers: list[Peer]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figures = {
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.describe(),
        "brokers": {peer.name: peer.version() for peer in peers},
        "scenarios": {
            name: {"rounds": outcome.rounds, "problems": outcome.problems} for name, outcome in outcomes.items()
        },
    }
    path.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
