"""The demo's fleet: machines behind gateways (MQTT 3.1.1 and 5.0) and battery sensors (MQTT-SN 1.2 and 2.0).

It writes down what it sent and what ought to have become of it. That ledger is an opinion of its own about the retained
set, beside the broker's and Spark's: nothing in it was read back from either of them.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from holdfast.client import Client, Endpoint, Options
from holdfast.protocol.mqtt.packets import V5, V311, Publish, SubscriptionRequest
from holdfast.protocol.mqtt.properties import Properties
from holdfast_demo.sensor import Sensor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SITES: Final = 4
LINES: Final = 3
MACHINES: Final = 10
SENSORS: Final = 6  # of each MQTT-SN version
HEARTBEAT_S: Final = 8
CONFIG_S: Final = 7 * 86_400
NOTES: Final = 12
END_OF_SNAPSHOT: Final = b"$holdfast/snapshot/end"
SNAPSHOT_S: Final = 30.0

# What the broker is told, and what the ledger expects of it.
PAYLOAD_LIMIT: Final = 4096
NOTES_KEPT: Final = 5
CONFIG: Final = f"""# The broker of the demo.

[history]
record = "all"                  # not only what is to be retained: the demo counts every message

[retainer]
max_payload_size = {PAYLOAD_LIMIT}

[[retainer.policy]]             # a retained command would be carried out again at every reconnect
filter = "site/+/line/+/+/+/set"
action = "drop-flag"

[[retainer.policy]]             # nobody fills the store with notes
filter = "notes/#"
max_messages = {NOTES_KEPT}
"""


class Ledger:
    """What was sent, by protocol and by expected outcome, and the retained set that must follow from it."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[bytes, datetime | None]] = {}
        self.outcomes: Counter[str] = Counter()
        self.protocols: Counter[str] = Counter()
        self.expiring = 0
        self.resent = 0

    @property
    def sent(self) -> int:
        return self.protocols.total()

    def note(self, protocol: str, topic: str, payload: bytes, retain: bool, expiry_s: int | None = None) -> None:
        self.protocols[protocol] += 1
        outcome = self._outcome(topic, payload, retain)
        self.outcomes[outcome] += 1
        if outcome == "set":
            self.held[topic] = (payload, None if expiry_s is None else _now() + timedelta(seconds=expiry_s))
            self.expiring += expiry_s == HEARTBEAT_S
        elif outcome == "cleared":
            self.held.pop(topic, None)

    def _outcome(self, topic: str, payload: bytes, retain: bool) -> str:
        if not retain:
            return "live"
        if not payload:
            return "cleared"
        if topic.endswith("/set"):
            return "refused_policy"
        if len(payload) > PAYLOAD_LIMIT:
            return "refused_size"
        notes = sum(name.startswith("notes/") for name in self.held)
        if topic.startswith("notes/") and topic not in self.held and notes >= NOTES_KEPT:
            return "refused_budget"
        return "set"

    def retained(self, at: datetime) -> tuple[dict[str, bytes], set[str]]:
        """The set at a moment, and the topics so near to their expiry that two clocks may differ about them."""
        near = {
            topic
            for topic, (_, until) in self.held.items()
            if until is not None and abs((until - at).total_seconds()) < 1
        }
        alive = {topic: payload for topic, (payload, until) in self.held.items() if until is None or until > at}
        return {topic: payload for topic, payload in alive.items() if topic not in near}, near


class Fleet:
    def __init__(self, tcp_port: int, udp_port: int, rounds: int, progress: Callable[[int], None]) -> None:
        self.tcp_port, self.udp_port, self.rounds = tcp_port, udp_port, rounds
        self.progress = progress
        self.ledger = Ledger()
        self._random = random.Random(20260301)

    @property
    def planned(self) -> int:
        """About how many messages there will be, for a progress bar."""
        machines = SITES * LINES * MACHINES
        return machines * (4 + 4 * self.rounds) + 2 * SENSORS * (1 + self.rounds)

    async def start_shift(self) -> None:
        """Everyone says what it is: retained configuration, state and a first reading; heartbeats that expire."""
        await asyncio.gather(
            *(self._gateway_starts(site, line) for site, line in _lines()), *(self._sensor(n, 1) for n in _sensors())
        )

    async def work(self) -> None:
        """Readings that replace each other, messages that pass, and some that the broker will not keep."""
        await asyncio.gather(
            *(self._gateway_works(site, line) for site, line in _lines()),
            *(self._sensor(n, self.rounds) for n in _sensors()),
            self._notes(),
        )

    async def clear_site(self, site: int) -> int:
        """The accident: a script with the wrong variable deletes all that is retained of one site."""
        topics = [topic for topic in self.ledger.retained(_now())[0] if topic.startswith(f"site/{site}/")]
        async with self._client("cleanup-script", V5) as client:
            await self._send_all(client, "5.0", ((topic, b"", 1, True, None) for topic in topics))
        return len(topics)

    async def subscribe_as_newcomer(self) -> dict[str, bytes]:
        """What the broker sends to somebody who subscribes to everything now, up to its mark that this was all."""
        asking = Properties()
        asking.user_properties = [("holdfast-snapshot", "mark")]
        options = Options(client_id="newcomer", version=V5, properties=asking)
        found: dict[str, bytes] = {}
        async with Client(Endpoint("127.0.0.1", self.tcp_port), options) as client, asyncio.timeout(SNAPSHOT_S):
            await client.subscribe([SubscriptionRequest(b"#", qos=0)])
            while (message := await client.receive()).topic != END_OF_SNAPSHOT:
                found[message.topic.decode()] = message.payload
        return found

    async def _gateway_starts(self, site: int, line: int) -> None:
        five = _speaks_5(site, line)
        async with self._client(f"gateway-{site}-{line}", V5 if five else V311) as client:
            await self._send_all(client, "5.0" if five else "3.1.1", self._introductions(site, line, five))

    def _introductions(self, site: int, line: int, five: bool) -> "Iterator[Message]":
        for machine in range(1, MACHINES + 1):
            prefix = f"site/{site}/line/{line}/machine-{machine}"
            about = {"model": f"M{machine % 3}", "firmware": "2.4.1", "site": site, "line": line}
            yield f"{prefix}/config", _json(about), 1, True, _described(CONFIG_S) if five else None
            yield f"{prefix}/state", b"running", 1, True, None
            yield f"{prefix}/temperature", self._reading(20, 30), 1, True, None
            if five:
                yield f"{prefix}/online", b"yes", 1, True, _described(HEARTBEAT_S)

    async def _gateway_works(self, site: int, line: int) -> None:
        five = _speaks_5(site, line)
        async with self._client(f"gateway-{site}-{line}", V5 if five else V311) as client:
            for number in range(self.rounds):
                await self._send_all(client, "5.0" if five else "3.1.1", self._round(site, line, number))

    def _round(self, site: int, line: int, number: int) -> "Iterator[Message]":
        for machine in range(1, MACHINES + 1):
            prefix = f"site/{site}/line/{line}/machine-{machine}"
            yield f"{prefix}/temperature", self._reading(20, 90), 1, True, None
            yield f"{prefix}/vibration", self._reading(0, 5), 0, False, None
            yield f"{prefix}/pieces", str(number * 12 + machine).encode(), 1, False, None
            if self._random.random() < 0.2:
                yield f"{prefix}/state", self._random.choice((b"running", b"idle", b"stopped")), 2, True, None
            if machine == 1 + number % MACHINES:
                yield f"{prefix}/mode/set", b"eco", 1, True, None
        if number % 10 == 0:
            yield f"site/{site}/line/{line}/firmware", b"\x7fELF" + bytes(PAYLOAD_LIMIT), 1, True, None

    async def _notes(self) -> None:
        async with self._client("operator", V5) as client:
            for number in range(NOTES):
                await self._send_all(client, "5.0", iter([(f"notes/{number}", b"call maintenance", 1, True, None)]))

    async def _sensor(self, number: int, rounds: int) -> None:
        version = 1 + number % 2
        site, line = 1 + number % SITES, 1 + number % LINES
        topic = f"site/{site}/line/{line}/sensor-{number}/humidity"
        sensor = Sensor(self.udp_port, version, f"sensor-{number}")
        await sensor.connect()
        try:
            for _ in range(rounds):
                payload = self._reading(30, 80)
                await sensor.publish(topic, payload)
                self._sent("SN1.2" if version == 1 else "SN2.0", topic, payload, True, None)
        finally:
            self.ledger.resent += sensor.resent
            sensor.close()

    @asynccontextmanager
    async def _client(self, client_id: str, version: int) -> "AsyncIterator[Client]":
        options = Options(client_id=client_id, version=version, max_inflight=200)
        async with Client(Endpoint("127.0.0.1", self.tcp_port), options) as client:
            yield client

    async def _send_all(self, client: Client, protocol: str, messages: "Iterator[Message]") -> None:
        """Send in order, and return when every message that is acknowledged at all has been."""
        answers = []
        for topic, payload, qos, retain, properties in messages:
            answers.append(await client.send(Publish(topic.encode(), payload, qos, retain, False, 0, properties)))
            expiry_s = None if properties is None else properties.message_expiry
            self._sent(protocol, topic, payload, retain, expiry_s)
        await asyncio.gather(*(answer for answer in answers if answer is not None))

    def _sent(self, protocol: str, topic: str, payload: bytes, retain: bool, expiry_s: int | None) -> None:
        self.ledger.note(protocol, topic, payload, retain, expiry_s)
        self.progress(self.ledger.sent)

    def _reading(self, low: float, high: float) -> bytes:
        return f"{self._random.uniform(low, high):.1f}".encode()


Message = tuple[str, bytes, int, bool, Properties | None]


def _lines() -> list[tuple[int, int]]:
    return [(site, line) for site in range(1, SITES + 1) for line in range(1, LINES + 1)]


def _sensors() -> range:
    return range(1, 2 * SENSORS + 1)


def _speaks_5(site: int, line: int) -> bool:
    return (site + line) % 2 == 0


def _described(expiry_s: int) -> Properties:
    properties = Properties()
    properties.message_expiry = expiry_s
    properties.payload_format = 1
    properties.content_type = "application/json" if expiry_s == CONFIG_S else "text/plain"
    properties.user_properties = [("fleet", "demo"), ("shift", "early")]
    return properties


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _now() -> datetime:
    return datetime.now(UTC)
