"""Where the broker listens, written as a URL: `tls://0.0.0.0:8883?require_client_certificate=true`.

The scheme is the transport, the query holds what is different for this one listener. What the URL leaves out comes from
the sections `tls`, `websocket` and `auth`; `Settings.listeners` fills that in.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

SCHEMES: Final = ("tcp", "tls", "ws", "wss", "udp", "http", "https")
TLS_SCHEMES: Final = ("tls", "wss", "https")
WEBSOCKET_SCHEMES: Final = ("ws", "wss")


@dataclass(frozen=True)
class Endpoint:
    scheme: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """Scheme, host and port, for people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_tls(self) -> bool:
        return self.scheme in TLS_SCHEMES

    @property
    def is_websocket(self) -> bool:
        return self.scheme in WEBSOCKET_SCHEMES

    @property
    def is_http(self) -> bool:
        return self.scheme in ("http", "https")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A host name other than localhost is taken to be reachable."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True)
class Listener(Endpoint):
    """A listener with everything decided; `cert`, `key` and `ca` are None where the scheme has no use for them."""

    path: str
    allow_anonymous: bool
    max_connections: int
    cert: Path | None
    key: Path | None
    ca: Path | None
    require_client_certificate: bool
    crl: Path | None = None
    proxy: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListenerUrl(Endpoint):
    """What one URL says; None is what it leaves to the sections."""

    path: str | None = None
    allow_anonymous: bool | None = None
    max_connections: int = 0
    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    require_client_certificate: bool | None = None
    crl: Path | None = None
    proxy: tuple[str, ...] = ()


def _boolean(text: str) -> bool:
    if text.lower() in ("true", "yes", "on", "1"):
        return True
    if text.lower() in ("false", "no", "off", "0"):
        return False
    raise ValueError(f"expected true or false, got {text!r}")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"expected a whole number, 0 for no limit, got {text!r}")
    return int(text)


def _file(text: str) -> Path:
    if not text:
        raise ValueError("expected a file name, got nothing")
    return Path(text)


def _networks(text: str) -> tuple[str, ...]:
    networks = tuple(part.strip() for part in text.split(",") if part.strip())
    if not networks:
        raise ValueError("expected addresses or networks, separated by commas, got nothing")
    for network in networks:
        ip_network(network, strict=False)  # its ValueError says what is wrong
    return networks


# Option, the schemes that know it, and how its text becomes a value. The reference page is made from this table.
OPTIONS: Final[dict[str, tuple[tuple[str, ...], Callable[[str], object], str]]] = {
    "allow_anonymous": (SCHEMES, _boolean, "Whether clients of this listener may connect without logging in."),
    "max_connections": (SCHEMES, _count, "Maximum simultaneous connections to this listener; 0 means no limit."),
    "cert": (TLS_SCHEMES, _file, "Certificate chain of this listener (PEM)."),
    "key": (TLS_SCHEMES, _file, "Private key of this listener (PEM)."),
    "ca": (TLS_SCHEMES, _file, "Certificate authorities for client certificates of this listener (PEM)."),
    "require_client_certificate": (
        TLS_SCHEMES,
        _boolean,
        "Whether clients of this listener must present a certificate.",
    ),
    "crl": (TLS_SCHEMES, _file, "Certificate revocation lists for this listener (PEM)."),
    "proxy": (
        ("tcp", "ws"),
        _networks,
        "Addresses or networks of load balancers, separated by commas. They must begin each connection with a PROXY "
        "header (version 1 or 2); from anyone else such a header is an error.",
    ),
}


def parse_listener(url: str) -> ListenerUrl:
    """Raises ValueError with one line that says what was expected and what stands there."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as problem:
        raise ValueError(f"expected a URL such as tcp://127.0.0.1:1883, got {url!r}: {_lower_first(problem)}") from None
    if "@" in parts.netloc:  # not repeated in the message: it is likely to be a password
        raise ValueError("expected scheme://host:port, got a user name or password in front of the host")
    if parts.scheme not in SCHEMES:
        nearest = get_close_matches(parts.scheme, SCHEMES, n=1, cutoff=0.0)
        hint = f"; nearest: {nearest[0]}" if parts.scheme and nearest else ""
        raise ValueError(f"expected one of {', '.join(s + '://' for s in SCHEMES)}, got {url!r}{hint}")
    if not parts.hostname:
        raise ValueError(f"expected a host such as 127.0.0.1, or 0.0.0.0 for every interface, got {url!r}")
    if port is None:
        raise ValueError(f"expected a port after the host, 0 to let the system pick one, got {url!r}")
    path = None
    if parts.path not in ("", "/"):
        if parts.scheme not in WEBSOCKET_SCHEMES:
            raise ValueError(f"expected no path with {parts.scheme}://, got {parts.path!r}")
        path = parts.path
    if parts.fragment:
        raise ValueError(f"expected nothing after the options, got {'#' + parts.fragment!r}")
    return _with_options(ListenerUrl(parts.scheme, parts.hostname, port, path), parts.query)


def _with_options(listener: ListenerUrl, query: str) -> ListenerUrl:
    values: dict[str, object] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in OPTIONS:
            nearest = get_close_matches(name, OPTIONS, n=1, cutoff=0.0)
            hint = f"; nearest known option: {nearest[0]}" if nearest else ""
            raise ValueError(f"unknown option {name!r} (value {text!r}){hint}")
        schemes, convert, _ = OPTIONS[name]
        if listener.scheme not in schemes:
            raise ValueError(f"option {name!r} is for {', '.join(schemes)}, not for {listener.scheme}")
        if name in values:
            raise ValueError(f"option {name!r} is given twice, expected once")
        try:
            values[name] = convert(text)
        except ValueError as problem:
            raise ValueError(f"option {name!r}: {problem}") from None
    if ("cert" in values) != ("key" in values):
        raise ValueError("expected `cert` and `key` together, got one of them")
    return replace(listener, **values)  # type: ignore[arg-type]  # OPTIONS pairs each name with its type


def _lower_first(problem: Exception) -> str:
    text = str(problem)
    return text[:1].lower() + text[1:]
