"""Where the log servers are, and which stream there is the log of a cluster. Nothing here speaks to them."""

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.problem import without_login


@dataclass(frozen=True)
class ConnectionOptions:
    """Where NATS is and who we are there. `max_message` is the largest message that has to fit."""

    urls: tuple[str, ...] = field(repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    credentials_file: Path | None = None
    nkey_seed_file: Path | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    max_message: int = 1 << 20
    name: str = "holdfast"

    @property
    def servers(self) -> str:
        """The URLs as they may be shown: a login can stand in them."""
        return " ".join(map(without_login, self.urls))


@dataclass(frozen=True)
class StreamOptions:
    name: str = "holdfast"  # of the cluster: several can share the log servers
    replicas: int = 3
    monitors: tuple[str, ...] = ()  # monitoring addresses of the log servers, such as http://host:8222
    in_flight: int = 16  # messages that may be on their way at once
    max_bytes: int = -1  # of a stream that is made; one that is there keeps what it has
    away_after_s: float = 2.0  # how long nothing may come back before that is called being away

    @property
    def stream(self) -> str:
        return f"HF_{self.name}"

    @property
    def subject(self) -> str:
        return f"holdfast.{self.name}.log"
