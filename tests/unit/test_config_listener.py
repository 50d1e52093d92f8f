import re
from pathlib import Path

import pytest

from holdfast.config import Settings
from holdfast.config.listener import SCHEMES, parse_listener


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_takes_host_and_port(scheme: str) -> None:
    listener = parse_listener(f"{scheme}://127.0.0.1:0")
    assert (listener.scheme, listener.host, listener.port) == (scheme, "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("1883", "expected one of tcp://"),
        ("127.0.0.1:1883", "expected one of tcp://"),
        ("tpc://127.0.0.1:1883", "nearest: tcp"),
        ("mqtt://127.0.0.1:1883", "expected one of tcp://"),
        ("tcp://:1883", "expected a host"),
        ("tcp://127.0.0.1", "expected a port"),
        ("tcp://127.0.0.1:70000", "expected a URL such as"),
        ("tcp://127.0.0.1:mqtt", "expected a URL such as"),
        ("tcp://[::1:1883", "expected a URL such as"),
        ("tcp://127.0.0.1:1883/mqtt", "expected no path with tcp://"),
        ("ws://127.0.0.1:8083/mqtt#a", "expected nothing after the options"),
        ("tcp://127.0.0.1:1883?max_conections=5", "nearest known option: max_connections"),
        ("tcp://127.0.0.1:1883?max_connections=many", "expected a whole number, 0 for no limit, got 'many'"),
        ("tcp://127.0.0.1:1883?allow_anonymous=maybe", "expected true or false, got 'maybe'"),
        ("tcp://127.0.0.1:1883?cert=a.pem", "option 'cert' is for tls, wss, https, not for tcp"),
        ("tls://127.0.0.1:8883?cert=a.pem", "expected `cert` and `key` together"),
        ("tls://127.0.0.1:8883?ca=", "expected a file name, got nothing"),
        ("tcp://127.0.0.1:1883?max_connections=1&max_connections=2", "given twice"),
    ],
)
def test_a_wrong_url_is_refused_with_what_was_expected(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        parse_listener(url)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="user name or password") as raised:
        parse_listener("tcp://anna:hunter2@127.0.0.1:1883")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("[::]", False),
        ("192.168.1.5", False),
        ("broker.example.org", False),
    ],
)
def test_loopback_is_what_only_this_machine_can_reach(host: str, expected: bool) -> None:
    assert parse_listener(f"tcp://{host}:1883").is_loopback is expected


def test_the_url_of_an_ipv6_listener_keeps_its_brackets() -> None:
    assert parse_listener("tcp://[::1]:1883").url == "tcp://[::1]:1883"


def test_what_the_url_leaves_out_comes_from_the_sections() -> None:
    settings = Settings.model_validate(
        {
            "listen": [
                "wss://127.0.0.1:0",
                "wss://127.0.0.1:0/other?require_client_certificate=false&max_connections=7",
            ],
            "websocket": {"path": "/mq"},
            "tls": {"cert": "c.pem", "key": "k.pem", "ca": "ca.pem", "require_client_certificate": True},
        }
    )
    first, second = settings.listeners()
    assert (first.path, first.cert, first.key, first.ca) == ("/mq", Path("c.pem"), Path("k.pem"), Path("ca.pem"))
    assert first.require_client_certificate
    assert first.max_connections == 0
    assert (second.path, second.require_client_certificate, second.max_connections) == ("/other", False, 7)


def test_a_plain_listener_has_no_certificate_and_no_path() -> None:
    settings = Settings.model_validate(
        {"listen": "tcp://127.0.0.1:0", "tls": {"cert": "c.pem", "key": "k.pem", "require_client_certificate": True}}
    )
    (listener,) = settings.listeners()
    assert (listener.cert, listener.path, listener.require_client_certificate) == (None, "", False)


@pytest.mark.parametrize(
    ("url", "auth", "expected"),
    [
        ("tcp://127.0.0.1:0", {}, True),
        ("tcp://0.0.0.0:0", {}, False),
        ("tcp://127.0.0.1:0", {"password_file": "p"}, False),
        ("tcp://127.0.0.1:0", {"allow_anonymous": False}, False),
        ("tcp://0.0.0.0:0", {"allow_anonymous": True}, True),
        ("tcp://0.0.0.0:0", {"allow_anonymous": True, "password_file": "p"}, True),
        ("tcp://0.0.0.0:0?allow_anonymous=true", {"allow_anonymous": False}, True),
        ("tcp://127.0.0.1:0?allow_anonymous=false", {"allow_anonymous": True}, False),
    ],
)
def test_anonymous_clients_are_let_in_on_loopback_only_unless_it_is_written(
    url: str, auth: dict[str, object], expected: bool
) -> None:
    (listener,) = Settings.model_validate({"listen": [url], "auth": auth}).listeners()
    assert listener.allow_anonymous is expected
