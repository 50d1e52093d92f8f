import pytest

from holdfast.client.endpoint import TCP, TLS, UNIX, WS, WSS, Endpoint, TlsOptions, parse_url
from holdfast.errors import UsageError


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mqtt://h", (TCP, "h", 1883, None, None, None, None)),
        ("mqtt://h/a/b", (TCP, "h", 1883, None, None, "a/b", None)),
        ("mqtt://h/a/#", (TCP, "h", 1883, None, None, "a/#", None)),
        ("mqtt://h:1/a?b", (TCP, "h", 1, None, None, "a?b", None)),
        ("mqtts://u:p%40ss@h:99/t", (TLS, "h", 99, "u", "p@ss", "t", None)),
        ("tcp://[::1]:5/t", (TCP, "::1", 5, None, None, "t", None)),
        ("tls://h", (TLS, "h", 8883, None, None, None, None)),
        ("ws://h:8080/path", (WS, "h", 8080, None, None, None, "/path")),
        ("ws://h", (WS, "h", 8083, None, None, None, None)),
        ("wss://u@h/mqtt?x=1", (WSS, "h", 8084, "u", None, None, "/mqtt?x=1")),
    ],
)
def test_url_is_taken_apart(url: str, expected: tuple[object, ...]) -> None:
    found = parse_url(url)
    assert (
        found.transport,
        found.host,
        found.port,
        found.username,
        found.password,
        found.topic,
        found.path,
    ) == expected


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://h", "expected one of mqtt://"),
        ("h:1883", "expected one of mqtt://"),
        ("mqtt:///topic", "names no host"),
        ("mqtt://h:port/t", "no usable port"),
        ("mqtt://h:99999/t", "no usable port"),
    ],
)
def test_unusable_url_says_why(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_url(url)


def test_endpoint_names_itself_for_people() -> None:
    assert str(Endpoint()) == "localhost:1883"
    assert str(Endpoint("::1", transport=TLS)) == "[::1]:8883"
    assert str(Endpoint(transport=UNIX, path="/run/broker")) == "/run/broker"


@pytest.mark.parametrize(
    ("tls", "message"),
    [
        (TlsOptions(cafile="/nowhere/ca.pem"), "no such file"),
        (TlsOptions(cert="/nowhere/cert.pem"), "no such file"),
        (TlsOptions(tls_version="tlsv1.0"), r"'tlsv1.0', expected tlsv1.2 or tlsv1.3"),
        (TlsOptions(ciphers="NOT-A-CIPHER"), "TLS cannot be set up"),
    ],
)
def test_unusable_tls_options_say_why(tls: TlsOptions, message: str) -> None:
    with pytest.raises(UsageError, match=f"(?i){message}"):
        tls.context()


def test_insecure_checks_the_chain_but_not_the_name() -> None:
    context = TlsOptions(insecure=True).context()
    assert not context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"
