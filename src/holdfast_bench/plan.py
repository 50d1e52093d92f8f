"""What a run is asked to do and what it measured. Plain values only: they travel between processes."""

from dataclasses import asdict, dataclass, field

from holdfast.errors import UsageError
from holdfast_bench.codec import STAMP_BYTES, Histogram

SCENARIOS = ("pub", "sub", "conn", "pair", "fanout", "latency", "retained")

VERSIONS = {"3.1.1": 4, "4": 4, "5": 5, "5.0": 5}

SATURATED = 0.9  # a generator that is busier than this may be what set the rate


@dataclass(frozen=True)
class Plan:
    """One load. `publishers` and `subscribers` are connections; each side runs in one process of its own."""

    host: str = "127.0.0.1"
    port: int = 1883
    publish_ports: tuple[int, ...] = ()  # those that publishers connect to in turn, in place of `port`
    subscribe_ports: tuple[int, ...] = ()
    version: int = 4
    qos: int = 0
    publishers: int = 1
    subscribers: int = 1
    size: int = 64
    topic: str = "bench/%i"  # %i is the client's number, %m the message's, see `distinct`
    distinct: int = 0  # topics that a publisher goes through, one message each, over and over
    topic_filters: tuple[str, ...] = ()  # what subscribers subscribe in turn, in place of `topic`
    retain: bool = False
    inflight: int = 200
    rate: float = 0.0  # messages a second over all publishers; 0 = as fast as the broker takes them
    count: int = 0  # messages over all publishers; 0 = until `duration_s` is over
    duration_s: float = 5.0
    warmup_s: float = 0.5  # left out of the rates; a run that counts messages has none
    drain_s: float = 2.0  # how long nothing may arrive, once sending is over, before the rest is given up
    drain_at_most_s: float = 60.0  # when the rest is given up although messages still arrive
    stamped: bool = False  # payloads carry their send time
    username: str | None = None
    password: str | None = None
    prefix: str = "bench"
    cpu: int | None = None  # the core that the worker processes stay on

    def __post_init__(self) -> None:
        if self.stamped and self.size < STAMP_BYTES:
            raise UsageError(f"payload size is {self.size}, expected at least {STAMP_BYTES} to carry a send time")
        if not 1 <= self.inflight <= 32767:
            raise UsageError(f"inflight is {self.inflight}, expected 1 to 32767")
        if self.qos not in (0, 1, 2):
            raise UsageError(f"qos is {self.qos}, expected 0, 1 or 2")
        if self.distinct and self.rate:
            raise UsageError("distinct topics are for a load without a rate")
        if self.distinct and self.qos and not 2 * self.inflight <= self.distinct <= 65535:
            # a topic has its own packet id: one that comes round again must long have been acknowledged
            raise UsageError(f"distinct is {self.distinct}, expected {2 * self.inflight} to 65535 at QoS {self.qos}")
        if self.version not in (4, 5):
            raise UsageError(f"protocol level is {self.version}, expected 4 (MQTT 3.1.1) or 5")

    def topic_of(self, index: int) -> str:
        return self.topic.replace("%i", str(index))

    def topic_filter_of(self, index: int) -> str:
        if self.topic_filters:
            return self.topic_filters[index % len(self.topic_filters)]
        return self.topic_of(index)

    @property
    def copies(self) -> int:
        """How many subscribers each message reaches: with `%i` every publisher has a subscriber of its own."""
        return 1 if "%i" in self.topic else self.subscribers

    @property
    def payload(self) -> bytes:
        return b"x" * self.size


@dataclass
class Latency:
    """Milliseconds from the moment a message fell due to the moment its reader had it."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float

    @classmethod
    def of(cls, latencies: Histogram) -> "Latency":
        p50, p99, p999 = (latencies.percentile(share) / 1e6 for share in (0.5, 0.99, 0.999))
        return cls(p50, p99, p999, latencies.highest / 1e6)


@dataclass
class Busy:
    """Processor time over the measured time: 1.0 is one core, all of the time."""

    publishers: float = 0.0  # the process of all publishing connections
    subscribers: float = 0.0
    cores: int = 1  # that both may run on
    broker: float | None = None  # its process and those it started; None when it is not known which they are

    @property
    def generator(self) -> float:
        """Of what the generator can do: its busiest process, or both when there are not cores enough for each."""
        return max(self.publishers, self.subscribers, (self.publishers + self.subscribers) / self.cores)

    def as_dict(self) -> dict[str, float | int | None]:
        return asdict(self) | {"generator": self.generator}


def lower_bound(generator: float) -> str:
    """What to say of a rate that was measured with a generator this busy; nothing when it had time to spare."""
    return f"generator {generator:.0%} busy: this is a lower bound" if generator >= SATURATED else ""


@dataclass
class Result:
    scenario: str
    seconds: float = 0.0  # the measured part of the run
    sent: int = 0
    acknowledged: int = 0
    expected: int = 0  # deliveries that should have arrived; 0 when that cannot be known
    received: int = 0
    sent_per_s: float = 0.0
    received_per_s: float = 0.0
    received_bytes_per_s: float = 0.0
    latency: Latency | None = None
    busy: Busy | None = None
    problems: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)  # what only some scenarios have

    @property
    def lost(self) -> int:
        return max(0, self.expected - self.received)

    def as_dict(self) -> dict[str, object]:
        return asdict(self) | {"lost": self.lost, "busy": self.busy.as_dict() if self.busy else None}
