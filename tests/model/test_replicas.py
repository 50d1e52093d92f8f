"""Applying is deterministic: brokers that apply the same entries are equal to the byte, sessions and queues included.

Clocks differ by a day, sockets are on one side only, and the hash seed of the process is another.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from core_driver import ListLog, carry_out
from holdfast.broker.core import Broker
from holdfast.broker.settings import Settings
from holdfast.errors import StoreError
from model.replica import Replica
from model.replicas import FollowedWorld, apply_all, dump, follower_of, run
from model.steps import make_plan
from model.world import BEGIN_MS, Buffer, Link, LoggedWorld
from seeds import thinned
from wire_packets import Publish, connect, publish, subscribe

TESTS = Path(__file__).parent.parent
SEEDS = [range(begin, begin + 20) for begin in range(0, 100, 20)]

FOLLOW = """
import json, sys
from model.replica import Replica
from model.replicas import apply_all, dump, follower_of
from model.steps import make_plan
for line in sys.stdin:
    seed, now_ms, records = json.loads(line)
    follower = follower_of(make_plan(seed, 150))
    apply_all(follower, [bytes.fromhex(record) for record in records], 1)
    print(dump(follower.broker, now_ms, follower).hex())
"""


@pytest.mark.parametrize("seeds", thinned(SEEDS, len(SEEDS)), ids=str)
def test_a_broker_that_applies_the_entries_of_another_equals_it_at_any_time(seeds: range) -> None:
    seen = Counter[str]()
    for seed in seeds:
        world = run(make_plan(seed, 150), FollowedWorld)
        assert isinstance(world, FollowedWorld)
        world.compare()
        seen += world.seen
    # or empty brokers would have been compared
    assert min(seen[kind] for kind in ("queue", "inflight", "subscriptions", "will", "snapshots")) > 20, seen
    assert seen["unreleased"] > 1, seen


@pytest.mark.parametrize("seeds", thinned(SEEDS, len(SEEDS)), ids=str)
def test_neither_clock_nor_hash_seed_shows(seeds: range) -> None:
    """The other broker is another process, with another seed for its hashes and a clock that stands at 1970."""
    lines, expected = [], []
    for seed in seeds:
        world = run(make_plan(seed, 150), LoggedWorld)
        lines.append(json.dumps([seed, world.now_ms, [record.hex() for record in world.log.drain()]]))
        expected.append(dump(world.broker, world.now_ms).hex())
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", FOLLOW],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": search_path()},
            input="\n".join(lines),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == expected


def search_path() -> str:
    return os.pathsep.join([str(TESTS), str(TESTS.parent / "src"), os.environ.get("PYTHONPATH", "")])


def test_an_entry_that_is_left_out_shows() -> None:
    """The comparison can fail."""
    differing = 0
    for seed in SEEDS[0]:
        plan = make_plan(seed, 150)
        world = run(plan, LoggedWorld)
        records = world.log.drain()
        del records[len(records) // 2 : len(records) // 2 + 5]
        follower = follower_of(plan)
        try:
            apply_all(follower, records, world.now_ms)
        except StoreError:  # an entry names a message that never came
            differing += 1
            continue
        differing += dump(follower.broker, world.now_ms, follower) != dump(world.broker, world.now_ms)
    assert differing > len(SEEDS[0]) // 3


def test_clients_of_a_broker_get_what_another_has_ordered() -> None:
    """A subscriber here, a publisher there: live messages, the retained set, and a session that has gone elsewhere."""
    log = ListLog(history_filters=[b"#"])
    there, here = Broker(Settings(), "there-"), Broker(Settings(), "here-")
    there.use_log(log)
    replica = Replica(here)

    def client(broker: Broker, name: str, **fields: object) -> Link:
        peer = Buffer()
        link = Link(peer, broker.open(peer, BEGIN_MS), 5)
        carry_out(broker.receive(link.connection, connect(name, version=5, **fields), BEGIN_MS), broker.log)  # type: ignore[arg-type]
        return link

    def send(broker: Broker, link: Link, data: bytes) -> None:
        carry_out(broker.receive(link.connection, data, BEGIN_MS), broker.log)
        apply_all(replica, log.drain(), BEGIN_MS)

    publisher, subscriber = client(there, "publisher"), client(here, "subscriber")
    send(there, publisher, publish("a/kept", b"1", qos=1, retain=True, packet_id=1, version=5))
    send(here, subscriber, subscribe(1, [("a/#", 1)], version=5))
    send(there, publisher, publish("a/live", b"2", qos=1, packet_id=2, version=5))
    got = [(each.topic, each.payload, each.retain) for each in subscriber.packets() if isinstance(each, Publish)]
    assert got == [("a/kept", b"1", True), ("a/live", b"2", False)]
    assert here.log.position == there.log.position
