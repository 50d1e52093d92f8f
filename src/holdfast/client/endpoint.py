"""Where a broker is and how it is spoken to: host, port, transport, and what TLS should trust."""

import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from holdfast.errors import UsageError

TCP: Final = "tcp"
TLS: Final = "tls"
WS: Final = "ws"
WSS: Final = "wss"
UNIX: Final = "unix"

DEFAULT_PORTS: Final = {TCP: 1883, TLS: 8883, WS: 8083, WSS: 8084, UNIX: 0}
_SCHEMES: Final = {"mqtt": TCP, "tcp": TCP, "mqtts": TLS, "tls": TLS, "ws": WS, "wss": WSS}
_TLS_VERSIONS: Final = {
    "tlsv1.2": ssl.TLSVersion.TLSv1_2,
    "tlsv1.3": ssl.TLSVersion.TLSv1_3,
}


@dataclass(frozen=True)
class TlsOptions:
    """Which servers TLS accepts and what it shows of us. With no `cafile` or `capath` the system's own list counts."""

    cafile: str | None = None
    capath: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure: bool = False  # any name on the certificate will do
    ciphers: str | None = None
    tls_version: str | None = None
    alpn: str | None = None

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.cafile, capath=self.capath)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
            if self.ciphers is not None:
                context.set_ciphers(self.ciphers)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"TLS cannot be set up: {error.strerror or error}") from error
        if self.insecure:
            context.check_hostname = False
        if self.tls_version is not None:
            version = _TLS_VERSIONS.get(self.tls_version)
            if version is None:
                known = " or ".join(_TLS_VERSIONS)
                raise UsageError(f"TLS version is {self.tls_version!r}, expected {known}")
            context.minimum_version = context.maximum_version = version
        if self.alpn is not None:
            context.set_alpn_protocols([self.alpn])
        return context


@dataclass(frozen=True)
class Endpoint:
    host: str = "localhost"
    port: int = 0  # 0 = the usual one of the transport
    transport: str = TCP
    path: str = "/mqtt"  # of a WebSocket; the file of a Unix socket
    tls: TlsOptions = TlsOptions()
    bind_address: str | None = None

    @property
    def actual_port(self) -> int:
        return self.port or DEFAULT_PORTS[self.transport]

    @property
    def encrypted(self) -> bool:
        return self.transport in (TLS, WSS)

    def __str__(self) -> str:
        if self.transport == UNIX:
            return self.path
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.actual_port}"


@dataclass(frozen=True)
class Location:
    """What a URL says: `mqtt[s]://[user[:password]@]host[:port]/topic`, or `ws[s]://.../path` for a WebSocket."""

    transport: str
    host: str
    port: int
    username: str | None
    password: str | None
    topic: str | None
    path: str | None


def parse_url(url: str) -> Location:
    parts = urlsplit(url)
    transport = _SCHEMES.get(parts.scheme)
    if transport is None:
        known = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
        raise UsageError(f"URL is {url!r}, expected one of {known}")
    try:
        port = parts.port
    except ValueError as error:
        raise UsageError(f"URL {url!r} has no usable port: {error}") from error
    if not parts.hostname:
        raise UsageError(f"URL {url!r} names no host")
    websocket = transport in (WS, WSS)
    # A topic may hold what a URL sets apart, so `?` and `#` belong to it; for a WebSocket all of it is the path.
    rest = parts.path + (f"?{parts.query}" if parts.query else "") + (f"#{parts.fragment}" if parts.fragment else "")
    if url.endswith("#") and not websocket:
        rest += "#"
    return Location(
        transport,
        parts.hostname,
        port or DEFAULT_PORTS[transport],
        unquote(parts.username) if parts.username is not None else None,
        unquote(parts.password) if parts.password is not None else None,
        None if websocket or not rest[1:] else unquote(rest[1:]),
        (rest or None) if websocket else None,
    )
