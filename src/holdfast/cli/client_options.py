"""What `pub` and `sub` share: where the broker is and who connects, with mosquitto's flags and exit codes."""

import asyncio
import os
import secrets
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Annotated, Final, NoReturn

import typer

from holdfast.cli.client_properties import parse_properties
from holdfast.cli.completion import protocol_versions
from holdfast.cli.message_format import trace
from holdfast.client.connection import Options
from holdfast.client.endpoint import TCP, TLS, UNIX, Endpoint, Location, TlsOptions, parse_url
from holdfast.errors import ConnectionFailed, ConnectionLost, UsageError
from holdfast.protocol.mqtt.packets import V5, V31, V311, Will
from holdfast.protocol.mqtt.properties import Properties

VERSIONS: Final = {"31": V31, "mqttv31": V31, "311": V311, "mqttv311": V311, "5": V5, "mqttv5": V5}
NEVER: Final = 0xFFFFFFFF
_BROKER: Final = "The broker"
_IDENTITY: Final = "Who connects"
_TLS: Final = "TLS"
_WILL: Final = "Will"

Host = Annotated[
    str | None,
    typer.Option("-h", "--host", help="Host name of the broker; default localhost.", rich_help_panel=_BROKER),
]
Port = Annotated[
    int | None,
    typer.Option("-p", "--port", help="Port; default 1883, or 8883 with TLS.", rich_help_panel=_BROKER),
]
Url = Annotated[
    str | None,
    typer.Option(
        "-L",
        "--url",
        metavar="URL",
        help="All of it as a URL: mqtt[s]://[user[:password]@]host[:port]/topic. For WebSocket, "
        "ws[s]://host:port/mqtt, with the topic in -t.",
        rich_help_panel=_BROKER,
    ),
]
Unix = Annotated[
    str | None,
    typer.Option("--unix", metavar="PATH", help="Connect to a Unix socket instead.", rich_help_panel=_BROKER),
]
Bind = Annotated[
    str | None, typer.Option("-A", metavar="ADDRESS", help="Connect from this address.", rich_help_panel=_BROKER)
]
NoDelay = Annotated[
    bool, typer.Option("--nodelay", help="Accepted for compatibility; always on.", rich_help_panel=_BROKER)
]
KeepAlive = Annotated[
    int, typer.Option("-k", "--keepalive", min=0, max=65535, help="Keep alive in seconds.", rich_help_panel=_BROKER)
]
Version = Annotated[
    str | None,
    typer.Option(
        "-V",
        "--protocol-version",
        metavar="VERSION",
        help="5, 311 or 31.",
        rich_help_panel=_BROKER,
        autocompletion=protocol_versions,
    ),
]
PropertyWords = Annotated[
    list[str] | None,
    typer.Option(
        "-D",
        "--property",
        metavar="COMMAND IDENTIFIER VALUE",
        help="An MQTT 5 property, for example `-D publish content-type text/plain` or `-D publish user-property NAME "
        "VALUE`. Selects MQTT 5.",
        rich_help_panel=_BROKER,
    ),
]
Username = Annotated[str | None, typer.Option("-u", "--username", help="User name.", rich_help_panel=_IDENTITY)]
Password = Annotated[str | None, typer.Option("-P", "--pw", help="Password.", rich_help_panel=_IDENTITY)]
ClientId = Annotated[str | None, typer.Option("-i", "--id", help="Client id.", rich_help_panel=_IDENTITY)]
ClientIdPrefix = Annotated[
    str | None,
    typer.Option(
        "-I", "--id-prefix", help="Prefix of a client id; the process id is appended.", rich_help_panel=_IDENTITY
    ),
]
KeepSession = Annotated[
    bool,
    typer.Option("-c", "--disable-clean-session", help="Keep the session; requires -i.", rich_help_panel=_IDENTITY),
]
SessionExpiry = Annotated[
    str | None,
    typer.Option(
        "-x",
        metavar="SECONDS",
        help="Session expiry interval, -1 for never. Selects MQTT 5.",
        rich_help_panel=_IDENTITY,
    ),
]
WillTopic = Annotated[
    str | None, typer.Option("--will-topic", help="Topic of the will message.", rich_help_panel=_WILL)
]
WillPayload = Annotated[
    str | None, typer.Option("--will-payload", help="Its payload; default empty.", rich_help_panel=_WILL)
]
WillQos = Annotated[int | None, typer.Option("--will-qos", min=0, max=2, help="Its QoS.", rich_help_panel=_WILL)]
WillRetain = Annotated[bool, typer.Option("--will-retain", help="Retain it.", rich_help_panel=_WILL)]
CaFile = Annotated[
    str | None, typer.Option("--cafile", metavar="FILE", help="Trusted certificates.", rich_help_panel=_TLS)
]
CaPath = Annotated[
    str | None, typer.Option("--capath", metavar="DIR", help="Folder with trusted certificates.", rich_help_panel=_TLS)
]
Cert = Annotated[str | None, typer.Option("--cert", metavar="FILE", help="Client certificate.", rich_help_panel=_TLS)]
Key = Annotated[str | None, typer.Option("--key", metavar="FILE", help="Its private key.", rich_help_panel=_TLS)]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Do not verify the host name in the certificate.", rich_help_panel=_TLS)
]
Ciphers = Annotated[str | None, typer.Option("--ciphers", help="OpenSSL cipher list.", rich_help_panel=_TLS)]
TlsVersion = Annotated[
    str | None, typer.Option("--tls-version", help="Use only tlsv1.2 or tlsv1.3.", rich_help_panel=_TLS)
]
TlsAlpn = Annotated[str | None, typer.Option("--tls-alpn", help="ALPN protocol to request.", rich_help_panel=_TLS)]
OsCerts = Annotated[
    bool,
    typer.Option("--tls-use-os-certs", help="Use TLS with the system's trusted certificates.", rich_help_panel=_TLS),
]
Debug = Annotated[bool, typer.Option("-d", "--debug", help="Log each packet to stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not print errors; the exit code still reports them.")]
# mosquitto's codes: its libraries' numbers where the network fails, the broker's reason code where it refuses.
FAILED: Final = 1
LOST: Final = 7
TIMED_OUT: Final = 27
INTERRUPTED: Final = 130


@dataclass(frozen=True)
class Flags:
    """What was given, as it was given."""

    host: str | None
    port: int | None
    url: str | None
    unix: str | None
    bind: str | None
    keep_alive: int
    version: str | None
    property_words: list[str] | None
    username: str | None
    password: str | None
    client_id: str | None
    client_id_prefix: str | None
    keep_session: bool
    session_expiry: str | None
    will_topic: str | None
    will_payload: str | None
    will_qos: int | None
    will_retain: bool
    tls: TlsOptions
    os_certs: bool
    debug: bool


@dataclass(frozen=True)
class Target:
    """What follows from it."""

    endpoint: Endpoint
    options: Options
    topic: str | None  # the one in the URL
    properties: dict[str, Properties]  # by command, without connect and will, which are in the options


def resolve(flags: Flags, commands: tuple[str, ...], max_inflight: int = 20, reconnect: bool = False) -> Target:
    """Raises UsageError for flags that contradict each other."""
    location = parse_url(flags.url) if flags.url is not None else None
    properties = parse_properties(flags.property_words or [], commands)
    version = _version(flags)
    will = _will(flags, properties.pop("will", None))
    username, password = flags.username, flags.password
    if location is not None:
        username = location.username if username is None else username
        password = location.password if password is None else password
    if password is not None and username is None and version != V5:
        raise UsageError("-P without -u needs MQTT 5: earlier versions do not allow a password without a user name")
    options = Options(
        client_id=_client_id(flags, version),
        version=version,
        clean_start=not flags.keep_session,
        keep_alive=flags.keep_alive,
        username=username,
        password=None if password is None else os.fsencode(password),
        will=will,
        properties=_connect_properties(flags, version, properties.pop("connect", None)),
        max_inflight=max_inflight,
        reconnect=reconnect,
        trace=trace if flags.debug else None,
    )
    return Target(_endpoint(flags, location), options, location.topic if location else None, properties)


def _endpoint(flags: Flags, location: Location | None) -> Endpoint:
    if flags.unix is not None:
        return Endpoint(transport=UNIX, path=flags.unix)
    tls = flags.tls
    wants_tls = flags.os_certs or flags.port == 8883 or bool(tls.cafile or tls.capath or tls.cert)
    if location is None:
        transport = TLS if wants_tls else TCP
        return Endpoint(flags.host or "localhost", flags.port or 0, transport, tls=tls, bind_address=flags.bind)
    transport = {TCP: TLS}.get(location.transport, location.transport) if wants_tls else location.transport
    return Endpoint(
        flags.host or location.host,
        flags.port or location.port,
        transport,
        location.path or "/mqtt",
        tls,
        flags.bind,
    )


def _version(flags: Flags) -> int:
    needs_5 = "-D" if flags.property_words else "-x" if flags.session_expiry is not None else None
    if flags.version is None:
        return V5 if needs_5 else V311
    version = VERSIONS.get(flags.version.lower())
    if version is None:
        raise UsageError(f"-V is {flags.version!r}, expected 5, 311 or 31")
    if needs_5 and version != V5:
        raise UsageError(f"{needs_5} needs MQTT 5, but -V asks for {flags.version}")
    return version


def _client_id(flags: Flags, version: int) -> str:
    if flags.client_id is not None and flags.client_id_prefix is not None:
        raise UsageError("-i and -I are both given, expected one of them")
    if flags.client_id_prefix is not None:
        return f"{flags.client_id_prefix}{os.getpid()}"
    if flags.client_id is not None:
        return flags.client_id
    if flags.keep_session:
        raise UsageError("-c keeps the session for the next time, so it needs a client id: -i ID")
    # 3.1 has no empty client id; later versions leave the choice to the server.
    return f"holdfast-{secrets.token_hex(5)}" if version == V31 else ""


def _connect_properties(flags: Flags, version: int, given: Properties | None) -> Properties | None:
    if version != V5:
        return None
    expiry = None
    if flags.session_expiry is not None:
        expiry = _seconds(flags.session_expiry)
    elif flags.keep_session:
        expiry = NEVER
    if expiry is None:
        return given
    properties = given or Properties()
    if properties.session_expiry is None:
        properties.session_expiry = expiry
    return properties


def _seconds(text: str) -> int:
    if text in ("-1", "∞"):
        return NEVER
    if text.isdecimal() and int(text) <= NEVER:
        return int(text)
    raise UsageError(f"-x is {text!r}, expected seconds from 0 to {NEVER}, or -1 for never")


def _will(flags: Flags, properties: Properties | None) -> Will | None:
    if flags.will_topic is None:
        given = {
            "--will-payload": flags.will_payload is not None,
            "--will-qos": flags.will_qos is not None,
            "--will-retain": flags.will_retain,
            "-D will": properties is not None,
        }
        for name, present in given.items():
            if present:
                raise UsageError(f"{name} needs --will-topic")
        return None
    payload = os.fsencode(flags.will_payload or "")
    return Will(check_topic(flags.will_topic), payload, flags.will_qos or 0, flags.will_retain, properties)


def check_topic(topic: str) -> bytes:
    """The topic's bytes. Raises UsageError when nothing can be published to it."""
    if not topic or "+" in topic or "#" in topic:
        raise UsageError(f"topic is {topic!r}, expected one without the wildcards + and #, and not empty")
    return encode_name(topic)


def encode_name(name: str) -> bytes:
    """Returns a topic or filter as bytes; what the terminal could not decode is not UTF-8 and so is not MQTT."""
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name!r} is not UTF-8") from None


def complain(message: str, quiet: bool) -> None:
    if not quiet:
        print(f"holdfast: {message}", file=sys.stderr)


def run(work: Coroutine[None, None, int], quiet: bool) -> NoReturn:
    try:
        code = asyncio.run(work)
    except ConnectionFailed as error:
        complain(str(error), quiet)
        code = error.reason or (LOST if isinstance(error, ConnectionLost) else FAILED)
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise typer.Exit(code)
