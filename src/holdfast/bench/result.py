"""What a run measured, as numbers and as the verdict that becomes the exit code."""

from dataclasses import asdict, dataclass, field


@dataclass
class Latency:
    """Milliseconds from the moment a message fell due to the moment its reader had it."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


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
    problems: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)  # what only some scenarios have

    @property
    def lost(self) -> int:
        return max(0, self.expected - self.received)

    def as_dict(self) -> dict[str, object]:
        return asdict(self) | {"lost": self.lost}
