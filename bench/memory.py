"""What a broker takes when little happens: all its processes together, with all defaults and with the least.

Processes share their libraries. *All processes* counts each page of a file once, however many of them have it: that is
what the machine has less of while the broker runs. *Resident sets added up* is what a list of processes shows.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from disk import ended
from holdfast_bench.connection import LoadError
from holdfast_bench.plan import Plan
from holdfast_bench.retained import RetainedSet
from peers import START_S, Running, await_answer
from scenario import Figure, Figures, Scenario

MIB = 1 << 20
TOPICS = 18_500
WITHIN_S = 180.0
SETTLING_S = 5.0
SETTLING_LOOKS = 20
DEFAULT_LISTENERS = ("tcp", "ws", "udp", "http")
HEAD = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ (\S+) \S+ \S+\s+(/.*)$")
LIBRARIES = ("libarrow", "deltalake")


@dataclass(frozen=True)
class Memory:
    together: int
    added_up: int

    def figures(self, name: str) -> Figures:
        return {f"{name}_mib": self.together / MIB, f"{name}_added_mib": self.added_up / MIB}


def idle(_: Running) -> Figures:
    figures: Figures = {}
    with broker(DEFAULT_LISTENERS) as (running, http):
        publish(running, 1)
        ask_the_past(http, 1)
        until(lambda: not has_libraries(running.pid), "the libraries of the history were not given back")
        figures |= settled(running.pid).figures("idle")
        publish(running, TOPICS)
        ask_the_past(http, 1 + TOPICS)
        figures |= memory_of(running.pid).figures("busy")
        until(lambda: not has_libraries(running.pid), "the libraries of the history were not given back")
        figures |= settled(running.pid).figures("topics")
    with broker(("tcp", "ws", "udp"), "history.enable=false") as (running, http):
        publish(running, 1)
        figures |= settled(running.pid).figures("least")
    return figures


@contextmanager
def broker(listeners: tuple[str, ...], *settings: str) -> "Iterator[tuple[Running, str]]":
    """A broker with its defaults on free ports, and the address of its API."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True) as name:
        log = Path(name) / "log"
        command = [sys.executable, "-m", "holdfast.cli.main", "serve", "--data", f"{name}/data"]
        for scheme in listeners:
            command += ["--listen", f"{scheme}://127.0.0.1:0"]
        for setting in settings:
            command += ["--set", setting]
        with log.open("w") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, text=True)
        deadline = time.monotonic() + START_S
        while len(found := dict(re.findall(r"listening (\w+)://(\S+)", log.read_text()))) < len(listeners):
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise LoadError(f"Holdfast did not start:\n{log.read_text()}")
            time.sleep(0.05)
        with ended(Running(process, int(found["tcp"].rpartition(":")[2]), Path(name))) as running:
            await_answer(running, "Holdfast")
            yield running, f"http://{found.get('http', '')}"


def publish(running: Running, count: int) -> None:
    RetainedSet(Plan(port=running.port, topic=""), count).fill()


def ask_the_past(http: str, rows: int) -> None:
    """Until the history has these rows."""

    def has_them() -> bool:
        with urllib.request.urlopen(f"{http}/api/v1/history/span", timeout=WITHIN_S) as answer:
            return bool(json.load(answer)["rows"] >= rows)

    until(has_them, f"the history has not come to {rows} rows")


def until(condition: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            raise LoadError(f"{problem} after {WITHIN_S:g} s")
        time.sleep(0.5)


def settled(pid: int) -> Memory:
    """What they take once that does not change any more: a process that begins takes little."""
    before = Memory(0, 0)
    for _ in range(SETTLING_LOOKS):
        now = memory_of(pid)
        if abs(now.added_up - before.added_up) < MIB:
            break
        before = now
        time.sleep(SETTLING_S)
    return now


def processes(pid: int) -> list[int]:
    """A process and what it has started."""
    children = [
        int(child)
        for thread in os.listdir(f"/proc/{pid}/task")
        for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
    ]
    return [pid, *(found for child in children for found in processes(child))]


def has_libraries(pid: int) -> bool:
    return any(name in Path(f"/proc/{each}/maps").read_text() for each in processes(pid) for name in LIBRARIES)


def memory_of(pid: int) -> Memory:
    own = added_up = 0
    files: dict[tuple[str, str], int] = defaultdict(int)
    for each in processes(pid):
        place = ("", "")
        resident = 0
        for line in Path(f"/proc/{each}/smaps").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "Rss":
                resident = int(value.split()[0]) * 1024
                added_up += resident
            elif name == "Anonymous":
                private = int(value.split()[0]) * 1024
                own += private
                files[place] = max(files[place], resident - private)
            elif head := HEAD.match(line):
                place = (head[2], head[1])
    return Memory(own + sum(files.values()), added_up)


SCENARIOS = (
    Scenario(
        "memory",
        f"all processes of a broker that is left alone, and with {TOPICS:,} topics",
        idle,
        (
            Figure("idle_mib", "defaults, all processes", "MiB", more_is_better=False, at_most=150),
            Figure("idle_added_mib", "resident sets added up", "MiB", more_is_better=False),
            Figure("least_mib", "no history, no dashboard, all processes", "MiB", more_is_better=False, at_most=60),
            Figure("least_added_mib", "resident sets added up", "MiB", more_is_better=False),
            Figure("busy_mib", f"{TOPICS:,} topics, history written and read", "MiB", more_is_better=False),
            Figure("busy_added_mib", "resident sets added up", "MiB", more_is_better=False),
            Figure("topics_mib", f"{TOPICS:,} topics, left alone again", "MiB", more_is_better=False),
            Figure("topics_added_mib", "resident sets added up", "MiB", more_is_better=False),
        ),
        rounds=1,
        peers=("Holdfast",),
    ),
)
