"""Holdfast beside the brokers that are installed, in one run: what `make bench` does.

Holdfast takes part twice, as shipped and in memory only. Rounds are interleaved (A B C A B C), so that a machine that
slows down slows all of them, and medians are compared. Each broker is started afresh for each round and held to one
core; the generator has the others (PIN=0: all share).
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

import clustered
import disk
import machine
import memory
import retained_scale
import scale
import sn
import throughput
from cluster_peers import CLUSTERS, NODES_NAME
from holdfast.errors import HoldfastError
from holdfast_bench.plan import lower_bound
from holdfast_bench.worker import allow_files
from peers import BROKER_CORES, GENERATOR_CORES, HOLDFASTS, PEERS, Peer, flashmq_problem
from scenario import Outcome, Scenario
from tables import markdown, table, titled

SCENARIOS: tuple[Scenario, ...] = (
    *throughput.SCENARIOS,
    *scale.SCENARIOS,
    *memory.SCENARIOS,
    *retained_scale.SCENARIOS,
    *disk.SCENARIOS,
    *sn.SCENARIOS,
)
ALL_SCENARIOS = (*SCENARIOS, *clustered.SCENARIOS)  # those of a cluster are run when they are asked for

LOADED = 0.7  # load average at the start above which figures are not to be trusted
WIDTH = 140  # of the tables in a file or a pipe


def main() -> int:
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the blocks that stop the brokers
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    wanted = chosen(arguments.only, arguments.quick)
    problem = flashmq_problem(os.environ.get("FLASHMQ", ""))
    if problem:
        sys.exit(problem)
    peers = present(arguments.peers, wanted, console)
    allow_files(scale.CONNECTIONS + 200)
    os.sched_setaffinity(0, GENERATOR_CORES)
    settings = described(peers)
    for line in settings:
        console.print(line, highlight=False, markup=False)
    if os.getloadavg()[0] > LOADED:
        console.print(f"[yellow]load average {os.getloadavg()[0]:.1f}: others use this machine, rates will be uneven")
    outcomes: dict[str, Outcome] = {}
    for scenario in wanted:
        outcomes[scenario.name] = compare(scenario, peers, arguments.rounds, console)
        tell(scenario, outcomes[scenario.name], peers, console)
    write(Path(arguments.json), figures(outcomes, peers))
    write(Path(arguments.markdown), markdown(outcomes, wanted, peers, settings))
    console.print(f"figures of every round: {arguments.json}; as a table for a page: {arguments.markdown}")
    return (
        1 if any(name in outcome.problems for outcome in outcomes.values() for name in (*HOLDFASTS, NODES_NAME)) else 0
    )


def parse() -> argparse.Namespace:
    names = ", ".join(scenario.name for scenario in ALL_SCENARIOS)
    parser = argparse.ArgumentParser(description="Compare Holdfast with the MQTT brokers that are installed.")
    parser.add_argument(
        "--only", default=os.environ.get("ONLY", ""), help=f"comma-separated, of: {names}; cluster: all of those"
    )
    parser.add_argument("--peers", default=os.environ.get("PEERS", ""), help="comma-separated names of brokers")
    parser.add_argument("--rounds", type=int, default=0, help="rounds of each scenario; 0 = what it asks for")
    parser.add_argument(
        "--quick", action="store_true", help="of a cluster only, and little of everything: does it run?"
    )
    parser.add_argument("--json", default="build/bench.json", help="where the figures of every round go")
    parser.add_argument("--markdown", default="build/bench.md", help="where the table of the README goes")
    return parser.parse_args()


def chosen(only: str, quick: bool = False) -> list[Scenario]:
    """Those that are named, by their own name or by the word that several begin with."""
    names = [name for name in only.replace(",", " ").split() if name]
    known = {scenario.name: scenario for scenario in (clustered.scenarios(clustered.QUICK) if quick else ALL_SCENARIOS)}
    if not names:
        return list(known.values()) if quick else list(SCENARIOS)
    found: list[Scenario] = []
    for name in names:
        group = [scenario for key, scenario in known.items() if key.startswith(f"{name}-")]
        if name in known:
            group = [known[name]]
        if not group:
            sys.exit(f"unknown scenario {name!r}, expected one of {', '.join(known)}")
        found += group
    return found


def present(only: str, wanted: list[Scenario], console: Console) -> list[Peer]:
    """The brokers that have a part in what is wanted, and can take it."""
    names = [name.lower() for name in only.replace(",", " ").split() if name]
    found: list[Peer] = []
    for peer in (*PEERS, *CLUSTERS):
        if names and not any(peer.name.lower().startswith(name) for name in names):
            continue
        if not any(peer.name in scenario.peers for scenario in wanted):
            continue
        reason = peer.missing()
        if reason:
            console.print(f"[yellow]{peer.name} is left out: {reason}[/yellow]")
        else:
            found.append(peer)
    return found


def described(peers: list[Peer]) -> list[str]:
    """The settings of every column: without them, its figures say nothing."""
    lines = [f"{titled(peer.name)} ({peer.version()}): {peer.described()}" for peer in peers]
    if BROKER_CORES != GENERATOR_CORES:
        lines.append(f"cores: {len(BROKER_CORES)} for the broker, {len(GENERATOR_CORES)} for the generator")
    else:
        lines.append(f"cores: broker and generator share {len(BROKER_CORES)}")
    if any(peer.on_all_cores for peer in peers):
        lines.append(f"cores of a cluster: all {len(BROKER_CORES | GENERATOR_CORES)}, the generator's too")
    kind = machine.file_system(Path(tempfile.gettempdir()))
    lines.append(f"data folders: on {kind}" + (", which keeps nothing" if kind == "tmpfs" else ""))
    lines.append(f"machine: {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start")
    return lines


def compare(scenario: Scenario, peers: list[Peer], rounds: int, console: Console) -> Outcome:
    outcome = Outcome()
    taking_part = [peer for peer in peers if peer.name in scenario.peers]
    with console.status("") as status:
        for turn in range(rounds or scenario.rounds):
            for peer in taking_part:
                if peer.name in outcome.problems:
                    continue
                status.update(f"{scenario.title}: round {turn + 1} of {rounds or scenario.rounds}, {peer.name}")
                try:
                    with peer.configured(scenario.settings).started(scenario.quick_answers) as running:
                        outcome.add(peer.name, scenario.run(running))
                except (HoldfastError, OSError) as error:
                    outcome.problems[peer.name] = str(error)
    return outcome


def tell(scenario: Scenario, outcome: Outcome, peers: list[Peer], console: Console) -> None:
    console.print(table(scenario, outcome, [peer.name for peer in peers]))
    for figure in scenario.figures:
        for name in outcome.rounds:
            if outcome.is_lower_bound(name, figure):
                bound = lower_bound((outcome.median(name, figure.limited_by) or 0) / 100)
                console.print(f"[yellow]{name}, {figure.label}: {bound}")
    for name, problem in outcome.problems.items():
        console.print(f"{name}: {problem}", style="red", markup=False)


def figures(outcomes: dict[str, Outcome], peers: list[Peer]) -> str:
    found = {
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.describe(),
        "brokers": {peer.name: {"version": peer.version(), "settings": peer.described()} for peer in peers},
        "scenarios": {
            name: {"rounds": outcome.rounds, "problems": outcome.problems} for name, outcome in outcomes.items()
        },
    }
    return json.dumps(found, indent=2) + "\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
