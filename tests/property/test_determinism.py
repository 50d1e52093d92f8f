"""Two brokers given the same input give the same output, byte for byte: nothing hidden decides.

Time comes in with each call, and neither the address of an object nor the hash of a string may show. A log that is
played again must add up to the same broker, so this is not only a matter of tidiness.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from model.fold import Limits
from model.steps import Plan, make_plan
from model.tape import digest, play, record
from model.world import World
from seeds import EFFORT
from wire_packets import connect, publish, subscribe
from wire_properties import P

TESTS = Path(__file__).parent.parent

FINGERPRINTS = """
import sys
from model.steps import Plan, make_plan
from model.fold import Limits
from model.tape import digest, record
for seed in map(int, sys.argv[1:]):
    print(seed, digest(record(make_plan(seed, 150)).peers))
"""


@settings(max_examples=20 * EFFORT)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 120))
def test_same_input_gives_the_same_bytes(seed: int, count: int) -> None:
    plan = make_plan(seed, count)
    first = record(plan)
    second = play(plan, first.tape)
    assert len(second) == len(first.peers)
    for number, (one, other) in enumerate(zip(first.peers, second, strict=True)):
        assert one.everything == other.everything, f"connection {number} of {plan.label} differs"


def fingerprints(hash_seed: str, seeds: list[int]) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(TESTS), str(TESTS.parent / "src"), os.environ.get("PYTHONPATH", "")]
    )
    done = subprocess.run(
        [sys.executable, "-c", FINGERPRINTS, *map(str, seeds)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_hash_seed_of_the_process_does_not_show() -> None:
    seeds = list(range(500, 510))
    first = fingerprints("1", seeds)
    assert len(first.splitlines()) == len(seeds)
    assert fingerprints("2", seeds) == first


def test_fingerprint_tells_different_output_apart() -> None:
    assert digest(record(make_plan(1, 60)).peers) != digest(record(make_plan(2, 60)).peers)


def test_a_changed_input_changes_the_output() -> None:
    """The comparison can fail: publishes that are left out show."""
    plan = make_plan(3, 120)
    first = record(plan)
    without = [event for event in first.tape if not (event.kind == "receive" and event.data[0] >> 4 == 3)]
    assert len(without) < len(first.tape)
    assert digest(play(plan, without)) != digest(first.peers)


def expiry_told(disturb: bool) -> bytes:
    """What a client that asks for changes is told after fifty messages expired in the same moment."""
    clutter: list[object] = []
    world = World(Plan(Limits(), []))
    link = world.open("reader", 5)
    mark = [(P.USER_PROPERTY, ("holdfast-snapshot", "mark"))]
    world.send(link, connect("reader", version=5, keep_alive=0, properties=mark))
    for number in range(50):
        if disturb:
            clutter += [bytearray(1 + number * 37 % 400) for _ in range(number % 5)]
        interval = [(P.MESSAGE_EXPIRY, 1)]
        world.send(link, publish(f"t/{number}", b"x", retain=True, properties=interval, version=5))
    before = world.broker.log.position
    world.advance(5000)
    world.tick()
    world.work_off()
    link.peer.data.clear()
    since = [(P.USER_PROPERTY, ("holdfast-since", str(before)))]
    world.send(link, subscribe(1, [("t/#", 0)], version=5, properties=since))
    world.work_off()
    return bytes(link.peer.data)


def test_place_of_objects_in_memory_does_not_show() -> None:
    first = expiry_told(disturb=False)
    assert sorted(map(int, re.findall(rb"t/(\d+)", first))) == list(range(50))
    assert all(expiry_told(disturb=True) == first for _ in range(5))
