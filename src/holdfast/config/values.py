"""The kinds of values that settings have, checked and in one form: topics, addresses, names. See also `quantity`."""

from ipaddress import ip_network
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from holdfast.broker.topics import is_valid_filter
from holdfast.config.listener import parse_listener
from holdfast.problem import without_login
from holdfast.quantity import Duration, format_size, parse_percentage, parse_size
from holdfast.rules.bridge_topic import parse_bridge_topic


def check_no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"expected a whole number, got {str(value).lower()}")
    return value


def one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


def whole_seconds(value: float) -> int:
    if value != int(value):
        raise ValueError(f"expected whole seconds, got {value:g}s")
    return int(value)


def check_topic_filter(value: str) -> str:
    if not is_valid_filter(value.encode(), 65535) or "\0" in value:
        raise ValueError(f"expected a topic filter (`#` last and alone, `+` alone in its level), got {value!r}")
    return value


def check_topic_name(value: str) -> str:
    if not 0 < len(value.encode()) <= 65535 or any(c in value for c in "+#\0"):
        raise ValueError(f"expected a topic without wildcards, got {value!r}")
    return value


def check_topic_template(value: str) -> str:
    levels = value.split("/")
    names = [level[1:-1] for level in levels if level.startswith("{") and level.endswith("}")]
    if not names or len(set(names)) < len(names) or not all(name.isidentifier() for name in names):
        raise ValueError(f"expected a topic with names in braces, each once, such as site/{{device}}/#, got {value!r}")
    check_topic_filter("/".join("+" if level.startswith("{") else level for level in levels))
    return value


def check_host_and_port(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if value and not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"expected host:port, or nothing, got {value!r}")
    return value


def check_listener_url(value: str) -> str:
    parse_listener(value)
    return value


def check_websocket_path(value: str) -> str:
    if not value.startswith("/") or any(c in value for c in "?# "):
        raise ValueError(f"expected a path that starts with /, got {value!r}")
    return value


def one_or_many_numbers(value: object) -> object:
    return [value] if isinstance(value, int) else value


def check_network(value: str) -> str:
    try:
        ip_network(value, strict=False)
    except ValueError:
        raise ValueError(
            f"expected an address such as 10.0.0.7, or a network such as 10.0.0.0/8, got {value!r}"
        ) from None
    return value


def check_client_id_pattern(value: str) -> str:
    if value and ("%u" not in value or "%" in value.replace("%u", "")):
        raise ValueError(f"expected a pattern with %u for the user name, such as %u-*, got {value!r}")
    return value


def check_origin(value: str) -> str:
    if value != "*" and not (value.startswith(("http://", "https://")) and value.count("/") == 2):
        raise ValueError(f"expected an origin such as https://ops.example, or *, got {value!r}")
    return value.lower()


def check_reserve(value: object) -> str:
    """Returns a size or a percentage in its one form: `1GiB`, `5%`."""
    try:
        percentage = parse_percentage(value)
        return f"{percentage:g}%" if percentage is not None else format_size(parse_size(value))
    except ValueError:
        raise ValueError(f"expected a size such as 1GiB, or a percentage such as 5%, got {value!r}") from None


def check_http_url(value: str) -> str:
    parts = urlsplit(value)
    if value and (parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc):
        raise ValueError("expected a URL such as https://127.0.0.1:9000/login, without a user name in it")
    return value


def check_bridge_topic(value: str) -> str:
    """Returns a line of a bridge in its one form."""
    found = parse_bridge_topic(value)
    check_topic_filter(found.local_filter)
    check_topic_filter(found.remote_filter)
    return str(found)


def check_broker_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in BROKER_SCHEMES or not parts.hostname or "@" in parts.netloc:
        raise ValueError(
            "expected a broker such as mqtt://host:1883 or mqtts://host, without a user name in it, got "
            f"{without_login(value)!r}"
        )
    try:
        parts.port  # noqa: B018
    except ValueError as error:
        raise ValueError(f"expected a usable port, got {value!r}: {error}") from None
    return value


def check_bridge_name(value: str) -> str:
    if not 0 < len(value) <= 64 or not value.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise ValueError(f"expected a name of letters, digits, '-', '_' and '.', got {value!r}")
    return value


BROKER_SCHEMES = ("mqtt", "mqtts", "tcp", "tls", "ws", "wss")

Count = Annotated[int, BeforeValidator(check_no_boolean), Field(ge=0)]
WholeSeconds = Annotated[Duration, AfterValidator(whole_seconds)]
TopicFilter = Annotated[str, AfterValidator(check_topic_filter)]
TopicFilters = Annotated[list[TopicFilter], BeforeValidator(one_or_many), Field(min_length=1)]
Action = Literal["publish", "subscribe", "retain", "receive", "all"]
Qos = Annotated[int, BeforeValidator(check_no_boolean), Field(ge=0, le=2)]
Network = Annotated[str, AfterValidator(check_network)]
Origin = Annotated[str, AfterValidator(check_origin)]
Networks = Annotated[list[Network], BeforeValidator(one_or_many)]
Reserve = Annotated[
    list[Annotated[str, BeforeValidator(check_reserve)]],
    BeforeValidator(one_or_many),
    BeforeValidator(one_or_many_numbers),
    Field(min_length=1),
]
Names = Annotated[list[str], BeforeValidator(one_or_many)]
BridgeLine = Annotated[str, AfterValidator(check_bridge_topic)]
BridgeName = Annotated[str, AfterValidator(check_bridge_name)]
BrokerUrl = Annotated[str, AfterValidator(check_broker_url)]
