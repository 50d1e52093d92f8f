"""What a bridge is told, in plain values."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import UsageError
from holdfast.rules.bridge_topic import BridgeTopic

if TYPE_CHECKING:
    from holdfast.client.endpoint import Endpoint

AUTOMATIC: Final = "automatic"
LAZY: Final = "lazy"
ONCE: Final = "once"

NEWEST: Final = "newest"
LOCAL: Final = "local"
REMOTE: Final = "remote"


@dataclass(frozen=True)
class BridgeOptions:
    """`told` is the same as whoever wrote the bridge down has it."""

    name: str
    addresses: tuple[str, ...]
    topics: tuple[BridgeTopic, ...]
    client_id: str
    local_client_id: str
    version: int = 5
    username: str = ""
    password_file: Path | None = None
    local_username: str = ""
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    insecure: bool = False
    clean_session: bool = False
    session_expiry_s: int = 7 * 86400
    keep_alive_s: int = 60
    notifications: bool = True
    notification_topic: str = ""
    notifications_local_only: bool = False
    round_robin: bool = False
    start: str = AUTOMATIC
    threshold: int = 10
    idle_timeout_s: float = 60.0
    retry_s: float = 1.0
    retry_max_s: float = 30.0
    quiet_s: float = 2.0
    private: bool = True
    outgoing_retain: bool = True
    conflict: str = NEWEST
    max_inflight: int = 200
    remember: int = 1_000_000
    given_password: bytes | None = None  # instead of a file, to try a bridge out
    told: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def state_topic(self) -> str:
        return self.notification_topic or f"$SYS/broker/connection/{self.client_id}/state"

    def endpoint(self, number: int) -> "Endpoint":
        """Where the address with that number is. Certificates are read when the connection is made."""
        from holdfast.client.endpoint import Endpoint, TlsOptions, parse_url

        location = parse_url(self.addresses[number % len(self.addresses)])
        tls = TlsOptions(
            cafile=text_of(self.ca), cert=text_of(self.cert), key=text_of(self.key), insecure=self.insecure
        )
        return Endpoint(location.host, location.port, location.transport, location.path or "/mqtt", tls)

    def password(self) -> bytes | None:
        """What the file holds now: passwords and tokens are replaced while the bridge runs. Raises UsageError."""
        if self.password_file is None:
            return self.given_password
        try:
            return self.password_file.read_bytes().rstrip(b"\r\n")
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"cannot read the password in {self.password_file}: {reason}") from None


def text_of(path: Path | None) -> str | None:
    return None if path is None else str(path)
