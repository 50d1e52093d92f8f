"""The way of one retained publish at QoS 1 through our code, from the socket to its PUBACK, as it is really taken.

    python tests/publish_walk.py

prints it: every function of ours that is called, in the order of first calls, and how many they are in how many files.
It is the shortest way there is: MQTT 3.1.1, no access rules, no policy, no subscriber, `durability = "ack"`, every
publish in the history. Driver, log, journal and file are the real ones; only the socket is not.

How it counts. A function counts once for each thread that calls it, however often that is. Methods, constructors,
properties, lambdas and functions inside functions are functions; a comprehension or generator expression is part of the
function in which it stands, as not every Python makes a call of it. What a dataclass generates, and what other
packages do meanwhile, does not count.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

import holdfast
from holdfast.broker.core import Broker
from holdfast.broker.settings import Settings
from holdfast.build import is_compiled
from holdfast.journal.log import JournalLog
from holdfast.journal.writer import Journal
from holdfast.net.admission import ListenerPolicy
from holdfast.net.driver import Driver
from holdfast.net.peer import StreamPeer
from wire_packets import connect, publish

PACKAGE = Path(holdfast.__file__).parent
PUBACK = b"\x40\x02\x00\x01"
INSIDE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
LOOP, JOURNAL = "loop", "journal"


@dataclass(frozen=True)
class Hop:
    """A function of ours that a thread calls for the first time; `file` is below `src/holdfast`."""

    thread: str
    file: str
    name: str


class Calls:
    """A profiler that keeps our functions in the order in which each thread first calls them, while `open`."""

    def __init__(self) -> None:
        self.hops: dict[Hop, None] = {}
        self.open = False
        self.loop_thread = threading.get_ident()

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if not self.open or event != "call" or not frame.f_code.co_filename.startswith(str(PACKAGE)):
            return
        name = frame.f_code.co_qualname
        while name.endswith(INSIDE):
            name = name.rpartition(".<locals>.")[0]
        file = Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix()
        thread = LOOP if threading.get_ident() == self.loop_thread else JOURNAL
        self.hops[Hop(thread, file, name.replace(".<locals>.", "."))] = None


class Wire(asyncio.Transport):
    """Stands where the socket would: what is written here has left. With the PUBACK the walk is over."""

    def __init__(self, calls: Calls) -> None:
        super().__init__({"peername": ("127.0.0.1", 50000)})
        self.calls = calls
        self.acknowledged = asyncio.Event()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data == PUBACK:
            self.calls.open = False
            self.acknowledged.set()


async def publish_once(folder: Path) -> list[Hop]:
    """Publish to a broker whose journal is in this folder; returns what was called until its PUBACK left."""
    loop = asyncio.get_running_loop()
    journal = Journal(folder, consumers={"state": 0, "history": 0}, schedule=loop.call_soon_threadsafe)
    driver = Driver(Broker(Settings(), "auto-"), loop)
    driver.use_log(JournalLog(journal, waits=True, waits_to_deliver=False, history_filters=[b"#"]))
    peer = StreamPeer(driver, ListenerPolicy())
    calls = Calls()
    wire = Wire(calls)
    peer.connection_made(wire)
    peer.data_received(connect("sensor"))
    calls.open = True
    sys.setprofile(calls)
    threading.setprofile(calls)
    try:
        peer.data_received(publish("site/1/temp", b"21.5", qos=1, retain=True, packet_id=1))
        sys.setprofile(None)
        journal.start()  # not before: so its thread is seen from the step on in which the record reaches it
        sys.setprofile(calls)
        async with asyncio.timeout(60):
            await wire.acknowledged.wait()
    finally:
        calls.open = False
        sys.setprofile(None)
        threading.setprofile(None)
        journal.close()
    return list(calls.hops)


def walk() -> list[Hop]:
    """The walk; one through compiled functions would not be seen, so then a process of its own takes the others."""
    if is_compiled():
        command, env = [sys.executable, __file__, "--json"], {**os.environ, "HOLDFAST_PURE": "1"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=True)
        return [Hop(**hop) for hop in json.loads(done.stdout)]
    return walk_here()


def walk_here() -> list[Hop]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(publish_once(Path(folder)))


def count(hops: list[Hop]) -> tuple[int, int]:
    """How many functions these are, and in how many files they stand."""
    return len({(hop.file, hop.name) for hop in hops}), len({hop.file for hop in hops})


def main() -> None:
    if sys.argv[1:] == ["--json"]:
        print(json.dumps([asdict(hop) for hop in walk_here()]))
        return
    hops = walk()
    for number, hop in enumerate(hops, 1):
        print(f"{number:3}  {hop.thread:7}  {hop.file:22}  {hop.name}")
    for title, part in [(name, [hop for hop in hops if hop.thread == name]) for name in (LOOP, JOURNAL)]:
        print("{}: {} functions in {} files".format(title, *count(part)))
    print("together: {} functions in {} files".format(*count(hops)))


if __name__ == "__main__":
    main()
