"""The API as an attacker sees it: paths and headers written by hand, and pages of other sites."""

import socket
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from broker_process import BrokerProcess, start_holdfast
from wire import P

pytest.importorskip("fastapi", reason="the API comes with holdfast-mqtt[ui], which is not installed")

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("http")
    running = start_holdfast(folder, {"history.enable": False}, listen=["tcp://127.0.0.1:0", "http://127.0.0.1:0"])
    yield running
    running.stop()
    assert "Traceback" not in running.output


def ask(
    broker: BrokerProcess, target: str, method: str = "GET", body: bytes = b"", **headers: str
) -> tuple[int, bytes]:
    """One request exactly as written; the status, and everything that came back."""
    lines = {"Host": f"{HOST}:{broker.ports['http']}", "Connection": "close", "Content-Length": str(len(body))}
    lines.update({name.replace("_", "-"): value for name, value in headers.items()})
    head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    with socket.create_connection((HOST, broker.ports["http"]), 5) as sock:
        sock.sendall(head.encode("latin-1") + b"\r\n" + body)
        got = b""
        while data := sock.recv(65536):
            got += data
    return int(got.split(b" ")[1]), got


PATHS = [
    "/static/../../../../../../../../etc/passwd",
    "/static/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/static/..%2f..%2f..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
    "/static//etc/passwd",
    "/static/%252e%252e/%252e%252e/etc/passwd",
    "/../../../../etc/passwd",
    "//etc/passwd",
    "/static/..\\..\\..\\etc\\passwd",
    "/static/%00/etc/passwd",
]


@pytest.mark.parametrize("target", PATHS)
def test_no_path_leads_out_of_what_is_served(broker: BrokerProcess, target: str) -> None:
    status, answer = ask(broker, target)
    assert status in (400, 404, 405)
    assert b"root:" not in answer


def test_a_topic_with_dots_is_a_topic_and_not_a_path(broker: BrokerProcess) -> None:
    client = broker.client(5)
    client.connect("c")
    client.publish("../../etc/passwd", b"only a payload", qos=1, retain=True)
    status, answer = ask(broker, f"/api/v1/retained/message?topic={quote('../../etc/passwd', safe='')}")
    assert status == 200
    assert b"root:" not in answer


EVIL = "text/html\r\nSet-Cookie: holdfast=stolen\r\n\r\n<script>alert(1)</script>"


@pytest.mark.parametrize("content_type", [EVIL, "text/html", "image/svg+xml"])
def test_what_a_client_says_about_its_message_never_becomes_a_header_or_a_page(
    broker: BrokerProcess, content_type: str
) -> None:
    """MQTT allows any text as content type, line ends included, and payloads that are web pages."""
    client = broker.client(5)
    client.connect("c")
    topic = "page/" + content_type[:4].replace("/", "_") + str(len(content_type))
    client.publish(topic, b"<script>alert(1)</script>", qos=1, retain=True, properties=[(P.CONTENT_TYPE, content_type)])
    one, found = f"topic={quote(topic, safe='')}", f"filter={quote(topic, safe='')}&payload=true"
    for place in (f"retained/message?{one}", f"retained/message/payload?{one}", f"retained?{found}"):
        status, answer = ask(broker, f"/api/v1/{place}")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert status == 200, answer
        assert b"alert(1)" in body or b"PHNjcmlwdD" in body  # the payload, as it is or as base64
        assert b"\nset-cookie" not in head.lower()
        kind = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-type"))
        assert kind.partition(b":")[2].strip() in (b"application/json", b"application/octet-stream")
        assert b"x-content-type-options: nosniff" in head.lower()


@pytest.mark.parametrize("name", ["topic", "filter"])
def test_line_ends_in_a_query_do_not_reach_a_header(broker: BrokerProcess, name: str) -> None:
    status, answer = ask(broker, f"/api/v1/retained?{name}=%0d%0aSet-Cookie:%20a=b%0d%0a%0d%0ax")
    head, _, _ = answer.partition(b"\r\n\r\n")
    assert status < 500
    assert b"\nset-cookie" not in head.lower()


CROSS_SITE = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
    {"Origin": "http://evil.example", "Host": "evil.example"},
]


@pytest.mark.parametrize("headers", CROSS_SITE)
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-www-form-urlencoded"])
def test_a_page_of_another_site_publishes_nothing(broker: BrokerProcess, headers: dict[str, str], kind: str) -> None:
    watcher = broker.client(5)
    watcher.connect("w")
    watcher.subscribe("forged")
    body = b'{"topic": "forged", "payload": "1"}'
    status, _ = ask(broker, "/api/v1/publish", "POST", body, Content_Type=kind, **headers)
    assert status in (400, 401, 403, 415)
    watcher.expect_no_message()


def test_the_same_call_from_no_page_at_all_is_carried_out(broker: BrokerProcess) -> None:
    """So that the test above fails for the reason it says."""
    watcher = broker.client(5)
    watcher.connect("w")
    watcher.subscribe("forged")
    body = b'{"topic": "forged", "payload": "1"}'
    status, answer = ask(broker, "/api/v1/publish", "POST", body, Content_Type="application/json")
    assert status == 200, answer
    assert len(watcher.messages(1)) == 1


def test_the_api_neither_publishes_to_nor_removes_topics_of_the_broker(broker: BrokerProcess) -> None:
    body = b'{"topic": "$SYS/broker/version", "payload": "1", "retain": true}'
    status, _ = ask(broker, "/api/v1/publish", "POST", body, Content_Type="application/json")
    assert 400 <= status < 500


SMUGGLED: list[Callable[[str], bytes]] = [
    lambda host: (
        f"GET /api/v1/whoami HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ).encode(),
    lambda host: f"GET /api/v1/whoami HTTP/1.1\r\nHost: {host}\r\nX: {'y' * 200_000}\r\n\r\n".encode(),
    lambda host: b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
    lambda host: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
]


@pytest.mark.parametrize("number", range(len(SMUGGLED)))
def test_requests_that_are_none_harm_nobody(broker: BrokerProcess, number: int) -> None:
    with socket.create_connection((HOST, broker.ports["http"]), 5) as sock:
        try:
            sock.sendall(SMUGGLED[number](f"{HOST}:{broker.ports['http']}"))
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
        except OSError:
            pass  # it hung up before all was said
    assert ask(broker, "/healthz")[0] == 200
