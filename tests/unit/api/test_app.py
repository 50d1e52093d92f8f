"""The application without a socket: statuses of errors, quantities as EMQX writes them, who is let in, the files."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from holdfast.api.app import STATIC, make_app
from holdfast.api.auth import LOGINS_MOST, LOGINS_MOST_OF_ONE, ApiAuthenticator, is_loopback
from holdfast.api.services import make_services
from holdfast.api.status import ServerStatus
from holdfast.api.v1 import header_text
from holdfast.service.caller import Caller
from in_process import InProcess, with_broker


class NoBans:
    def bans(self, host: str, now: float) -> bool:
        return False

    def on_failure(self, host: str, now: float) -> bool:
        return False


class Passwords:
    def check(self, username: str | None, password: bytes | None) -> bool:
        return (username, password) == ("key", b"secret")


def with_api(
    act: Callable[[httpx.AsyncClient, InProcess], Awaitable[None]],
    keys: Passwords | None = None,
    host: str = "127.0.0.1",
) -> None:
    """Run `act` with a client of an application that calls from an address."""

    async def run(world: InProcess) -> None:
        authenticator = ApiAuthenticator(world.broker, keys, None, [], NoBans())
        services = make_services(ServerStatus(world.handle, version="1"), authenticator)
        transport = httpx.ASGITransport(make_app(services, []), client=(host, 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await act(client, world)
        authenticator.stop()
        await services.source.close()

    with_broker(run)


@pytest.mark.parametrize(
    ("method", "path", "query", "status"),
    [
        ("GET", "/api/v1/retained/message", {"topic": "nothing"}, 404),
        ("GET", "/api/v1/retained", {"filter": "a/#/b"}, 400),
        ("GET", "/api/v1/retained", {"filter": "a/#", "hidden": "true"}, 400),
        ("GET", "/api/v1/retained", {"colour": "red"}, 422),
        ("GET", "/api/v1/retained", {"cursor": "gone.1"}, 410),
        ("GET", "/api/v1/retained/at", {}, 400),
        ("GET", "/api/v1/history", {"topic": "a"}, 404),
        ("DELETE", "/api/v1/retained", {"filter": "#", "dry_run": "false"}, 409),
        ("DELETE", "/api/v1/retained/message", {"topic": "nothing"}, 404),
        ("POST", "/api/v1/operations/api-never/undo", {}, 404),
        ("DELETE", "/api/v5/clients/nobody", {}, 404),
        ("GET", "/api/v5/clients", {"page": "0"}, 400),
    ],
)
def test_what_goes_wrong_is_told_with_its_status(method: str, path: str, query: dict[str, str], status: int) -> None:
    async def act(client: httpx.AsyncClient, world: InProcess) -> None:
        answer = await client.request(method, path, params=query)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        assert answer.json()["detail"] == answer.json()["message"]

    with_api(act)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"topic": "$SYS/x", "retain": True}, 403),
        ({"topic": "a/+"}, 400),
        ({"topic": "a", "payload": "?", "encoding": "base64"}, 400),
        ({"topic": "a", "payload": "x" * (11 << 20)}, 413),
        ({"topic": "a", "qos": 3}, 422),
    ],
)
def test_a_publish_that_cannot_be_is_told_with_its_status(body: dict[str, Any], status: int) -> None:
    async def act(client: httpx.AsyncClient, world: InProcess) -> None:
        assert (await client.post("/api/v1/publish", json=body)).status_code == status

    with_api(act)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"max_payload_size": "1MB"}, {"max_payload_size": "1048576B"}),
        ({"max_payload_size": "1MiB"}, {"max_payload_size": "1048576B"}),
        ({"max_payload_size": "1KB"}, {"max_payload_size": "1024B"}),
        ({"max_payload_size": 77}, {"max_payload_size": "77B"}),
        ({"msg_expiry_interval": "2h"}, {"msg_expiry_interval": "7200s"}),
        ({"msg_expiry_interval": "1h30m"}, {"msg_expiry_interval": "5400s"}),
        ({"msg_expiry_interval": 5}, {"msg_expiry_interval": "5s"}),
        ({"enable": False}, {"enable": False}),
    ],
)
def test_quantities_are_read_as_emqx_writes_them(given: dict[str, Any], shown: dict[str, Any]) -> None:
    async def act(client: httpx.AsyncClient, world: InProcess) -> None:
        changed = (await client.put("/api/v5/mqtt/retainer", json=given)).json()
        assert {name: changed[name] for name in shown} == shown

    with_api(act)


@pytest.mark.parametrize(
    "given",
    [
        {"max_payload_size": "30s"},
        {"msg_expiry_interval": "1MB"},
        {"msg_expiry_interval": "9" * 20},
        {"max_payload_size": -1},
        {"max_payload_size": True},
        {"backend": {"max_retained_messages": -1}},
    ],
)
def test_a_quantity_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    async def act(client: httpx.AsyncClient, world: InProcess) -> None:
        answer = await client.put("/api/v5/mqtt/retainer", json={"enable": False, **given})
        assert answer.status_code == 400
        assert world.broker.settings.retain_available

    with_api(act)


def test_without_keys_only_this_machine_is_answered_under_its_own_name() -> None:
    async def act(client: httpx.AsyncClient, world: InProcess) -> None:
        assert (await client.get("/api/v1/retained")).status_code == 200
        assert (await client.get("/api/v1/retained", headers={"host": "evil.example"})).status_code == 403

    with_api(act)

    async def stranger(client: httpx.AsyncClient, world: InProcess) -> None:
        assert (await client.get("/api/v1/retained")).status_code == 403

    with_api(stranger, host="192.0.2.1")


def test_with_keys_a_caller_says_who_they_are() -> None:
    async def act(client: httpx.AsyncClient, world: InProcess) -> None:
        assert (await client.get("/api/v1/retained")).status_code == 401
        assert (await client.get("/api/v1/retained", auth=("key", "wrong"))).status_code == 401
        assert (await client.get("/api/v1/retained", auth=("key", "secret"))).status_code == 200
        assert (await client.get("/healthz")).status_code == 200
        token = (await client.post("/api/v5/login", json={"username": "key", "password": "secret"})).json()["token"]
        bearer = {"authorization": f"Bearer {token}"}
        assert (await client.get("/api/v1/retained", headers=bearer)).status_code == 200

    with_api(act, keys=Passwords())


@pytest.mark.parametrize("headers", [{"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}])
def test_another_site_changes_nothing(headers: dict[str, str]) -> None:
    async def act(client: httpx.AsyncClient, world: InProcess) -> None:
        answer = await client.post("/api/v1/publish", json={"topic": "a", "retain": True}, headers=headers)
        assert answer.status_code == 403
        assert world.topics() == []

    with_api(act)


def test_every_answer_forbids_what_is_not_ours() -> None:
    async def act(client: httpx.AsyncClient, world: InProcess) -> None:
        for path in ("/", "/docs", "/healthz", "/api/v1/nothing"):
            headers = (await client.get(path)).headers
            assert "default-src 'self'" in headers["content-security-policy"]
            assert headers["x-frame-options"] == "DENY"

    with_api(act)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.9", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("evil.example", False),
        ("", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_any_text_fits_into_a_header() -> None:
    assert header_text("ü\n%") == "%C3%BC%0A%25"


def test_logins_are_bounded_and_who_logs_in_most_loses_first() -> None:
    async def act(world: InProcess) -> None:
        authenticator = ApiAuthenticator(world.broker, Passwords(), None, [], NoBans())
        quiet = authenticator.log_in(Caller("quiet", False, world.broker))
        eager = [authenticator.log_in(Caller("eager", False, world.broker)) for _ in range(LOGINS_MOST_OF_ONE + 1)]
        assert authenticator.logged_in(quiet) is not None
        assert authenticator.logged_in(eager[0]) is None
        assert authenticator.logged_in(eager[1]) is not None
        authenticator.logins = {str(n): (Caller(str(n), False), float("inf")) for n in range(LOGINS_MOST)}
        newest = authenticator.log_in(Caller("one more", False, world.broker))
        assert len(authenticator.logins) == LOGINS_MOST
        assert authenticator.logged_in(newest) is not None
        assert authenticator.logged_in("0") is None
        authenticator.stop()

    with_broker(act)


def versioned(page: str) -> str:
    found = re.findall(r"/static/[0-9a-f]{12}/", page)
    assert len(set(found)) == 1
    return str(found[0])


def test_every_module_is_asked_for_by_the_version_of_the_whole() -> None:
    async def act(client: httpx.AsyncClient, world: InProcess) -> None:
        page = await client.get("/")
        assert page.headers["cache-control"] == "no-cache"
        prefix = versioned(page.text)
        for path in STATIC.iterdir():
            answer = await client.get(prefix + path.name)
            assert answer.status_code == 200
            assert "immutable" in answer.headers["cache-control"]
            mentioned = re.findall(r"/static/(?:[0-9a-f]{12}/)?", answer.text) if path.suffix != ".svg" else []
            assert all(one == prefix for one in mentioned), path.name

    with_api(act)


def test_without_a_version_a_browser_asks_again_and_need_not_load_again() -> None:
    async def act(client: httpx.AsyncClient, world: InProcess) -> None:
        plain = await client.get("/static/main.js")
        assert (plain.status_code, plain.headers["cache-control"]) == (200, "no-cache")
        assert plain.headers["content-type"].startswith("text/javascript")
        again = await client.get("/static/main.js", headers={"If-None-Match": plain.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")

    with_api(act)


def test_a_module_of_another_version_is_not_there() -> None:
    async def act(client: httpx.AsyncClient, world: InProcess) -> None:
        for path in ("/static/0123456789ab/main.js", "/static/nothing.js", "/static/", "/static/a/b/main.js"):
            assert (await client.get(path)).status_code == 404

    with_api(act)
