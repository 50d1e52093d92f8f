"""The crash story: a broker that is killed again and again while clients use it, and the promises held against it.

Run by itself for as many rounds as you like:

    python tests/crash_story.py --rounds 1000
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from broker_process import BrokerProcess, start_holdfast
from crash_actors import Actor, QueueWriter, RetainedWriter, Subscriber
from http_api import until
from wire import Publish, WireClient

SHORTEST_S, LONGEST_S = 0.02, 0.6
# A queue that is full drops what comes; here nothing may be dropped, however fast the machine.
NO_LIMIT = {"limits.max_queued_messages": 0, "limits.max_queued_bytes": 0}
ALL = {"history.record": "all"}
ABSENT_ROUNDS = 100


class CrashStory:
    """`run` tells all of it; whatever is wrong is an AssertionError that names the seed."""

    def __init__(self, root: Path, seed: int, settings: Mapping[str, Any] | None = None) -> None:
        self.root = root
        self.seed = seed
        self.settings = {**NO_LIMIT, **ALL, **(settings or {})}
        self.chance = random.Random(seed)
        self.writers = [
            RetainedWriter("retained-4", [f"r/a/{i}" for i in range(23)], 4),
            RetainedWriter("retained-5", [f"r/b/{i}" for i in range(9)], 5),
        ]
        self.queue_writers = [
            QueueWriter("queue-1-4", "q/one", 1, 4),
            QueueWriter("queue-2-5", "q/two", 2, 5),
            QueueWriter("queue-2-4", "q/too", 2, 4),
        ]
        self.subscribers = [Subscriber("present-1", "q/#", 1, 4), Subscriber("present-2", "q/#", 2, 5)]
        self.absent = Subscriber("absent-2", "q/#", 2, 4)
        self.errors: list[str] = []
        self.killed = 0
        self.starts_s: list[float] = []

    def run(self, rounds: int, on_round: Callable[[int], None] = lambda number: None) -> None:
        try:
            self.settle()
            for number in range(rounds):
                self.round()
                on_round(number + 1)
            self.finish()
        except AssertionError as error:
            raise AssertionError(f"crash story with seed {self.seed}, after {self.killed} kills: {error}") from error

    def start(self) -> BrokerProcess:
        began = time.monotonic()
        broker = start_holdfast(self.root, self.settings)
        self.starts_s.append(time.monotonic() - began)
        return broker

    def settle(self) -> None:
        """Before anything is published or killed, everybody who will receive subscribes."""
        broker = self.start()
        for subscriber in (*self.subscribers, self.absent):
            subscriber.stop.set()
            with WireClient(broker.port, subscriber.version) as client:
                subscriber.session(client)
                client.disconnect()
            subscriber.stop.clear()
        assert broker.stop() == 0, broker.output

    def round(self) -> None:
        broker = self.start()
        self.check_retained(broker)
        if self.killed % ABSENT_ROUNDS == ABSENT_ROUNDS - 1:
            with WireClient(broker.port, self.absent.version) as client:
                self.absent.drain(client, self.absent.has_all(self.queue_writers))
        actors: list[Actor] = [*self.writers, *self.queue_writers, *self.subscribers]
        threads = [threading.Thread(target=self.act, args=(actor, broker)) for actor in actors]
        for thread in threads:
            thread.start()
        time.sleep(self.chance.uniform(SHORTEST_S, LONGEST_S))
        broker.kill(with_followers=False)  # who starts it again does not wait for them either
        self.killed += 1
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive(), "a client did not notice that the broker is gone"
        assert not self.errors, self.errors[0]

    def act(self, actor: Actor, broker: BrokerProcess) -> None:
        """One connection of one client; that it breaks is the point, anything else it finds is an error."""
        try:
            with WireClient(broker.port, actor.version) as client:  # type: ignore[attr-defined]
                actor.session(client)
        except OSError:
            pass
        except AssertionError as error:
            if broker.process.poll() is None and "closed the connection" not in str(error):
                self.errors.append(str(error))

    def retained_now(self, broker: BrokerProcess) -> dict[str, bytes]:
        with WireClient(broker.port, 5) as client:
            client.connect("looker")
            client.subscribe("r/#", qos=0)
            found = [packet for packet in client.barrier() if isinstance(packet, Publish)]
            client.disconnect()
        topics = Counter(packet.topic for packet in found)
        assert all(count == 1 for count in topics.values()), f"sent twice in one snapshot: {topics}"
        return {packet.topic: packet.payload for packet in found}

    def check_retained(self, broker: BrokerProcess) -> None:
        """Nothing acknowledged is lost, nothing deleted comes back; and what is seen now is not taken back later."""
        now = self.retained_now(broker)
        known: set[str] = set()
        for writer in self.writers:
            for topic in writer.topics:
                known.add(topic)
                value, allowed = now.get(topic, b""), writer.allowed(topic)
                assert value in allowed, f"{topic} holds {value!r}, expected one of {sorted(allowed)}"
                operations = writer.operations.get(topic, [])
                first = max(writer.acknowledged.get(topic, -1), 0)
                if value in operations[first:]:
                    writer.acknowledged[topic] = operations.index(value, first)
        assert set(now) <= known, f"nobody ever wrote {set(now) - known}"

    def finish(self) -> None:
        """The last start: everybody ends in peace, and all accounts are settled."""
        broker = self.start()
        self.check_retained(broker)
        finishing: list[Actor] = [*self.writers, *self.queue_writers]
        for actor in finishing:
            actor.stop.set()
            with WireClient(broker.port, actor.version) as client:  # type: ignore[attr-defined]
                actor.session(client)
        for subscriber in (*self.subscribers, self.absent):
            with WireClient(broker.port, subscriber.version) as client:
                subscriber.drain(client, subscriber.has_all(self.queue_writers))
        now = self.retained_now(broker)
        until(lambda: self.history_problem(now), lambda problem: not problem)
        assert broker.stop() == 0, broker.output
        for subscriber in (*self.subscribers, self.absent):
            subscriber.check_received(self.queue_writers)
        self.check_history(now)

    def history_problem(self, retained: dict[str, bytes]) -> str:
        """What is still wrong with the history, which follows the broker at its own pace."""
        if not DeltaTable.is_deltatable(str(self.root / "history")):
            return "there is none"
        try:
            self.check_history(retained)
        except AssertionError as error:
            return str(error)
        return ""

    def check_history(self, retained: dict[str, bytes]) -> None:
        rows = DeltaTable(str(self.root / "history")).to_pyarrow_table().sort_by("offset").to_pylist()
        offsets = [row["offset"] for row in rows]
        assert len(offsets) == len(set(offsets)), "history has an offset twice"
        times = [row["timestamp"] for row in rows]
        assert times == sorted(times), "the clock of the history goes backwards"
        counts = Counter(row["payload"] for row in rows)
        recorded = self.queue_writers if self.settings["history.record"] == "all" else []
        assert recorded or all(row["retain"] for row in rows), "history has what it was not to record"
        for writer in recorded:
            for number in writer.acknowledged:
                found = counts[f"{writer.name}:{number}".encode()]
                assert found >= 1, f"history lacks {writer.name}:{number}"
                assert found == 1 or writer.qos == 1, f"history has {writer.name}:{number} {found} times"
        fold: dict[str, bytes] = {}
        for row in rows:
            if row["outcome"] == "set":
                fold[row["topic"]] = row["payload"]
            elif row["outcome"] == "cleared":
                fold.pop(row["topic"], None)
        assert fold == retained, "the fold of the history is not what the broker serves"

    def summary(self) -> str:
        published = sum(len(writer.acknowledged) for writer in self.queue_writers)
        operations = sum(writer.count for writer in self.writers)
        received = sum(len(subscriber.received) for subscriber in (*self.subscribers, self.absent))
        slowest = max(self.starts_s)
        return (
            f"{self.killed} kills, seed {self.seed}: {operations} retained operations, {published} messages "
            f"acknowledged, {received} received, slowest start {slowest:.1f} s; nothing lost, nothing came back"
        )


def main() -> int:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    parser = argparse.ArgumentParser(description="Kill a broker again and again and hold its promises against it.")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--data", type=Path, help="data folder to use; a temporary one otherwise")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker")
    arguments = parser.parse_args()
    settings = dict(pair.split("=", 1) for pair in arguments.set)
    with tempfile.TemporaryDirectory(prefix="holdfast-crash-") as temporary:
        story = CrashStory(arguments.data or Path(temporary), arguments.seed, settings)
        columns = (TextColumn("kills"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns) as progress:
            task = progress.add_task("rounds", total=arguments.rounds)
            story.run(arguments.rounds, lambda number: progress.update(task, completed=number))
        print(story.summary())
    return 0


if __name__ == "__main__":
    sys.exit(main())
