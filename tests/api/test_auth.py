"""Who is answered: this machine, keys, users with their rights, and nobody from another site."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker_process import BrokerProcess, Unique, start_holdfast
from http_api import LISTEN, Api
from password_file import write_password_file

KEY = ("ops", "open sesame")
ANNA = ("anna", "a")
BOSS = ("boss", "b")
CONFIG = """
[[access]]
permission = "allow"
action = "all"
filter = ["anna/#"]
user = "anna"
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with an API key, the user anna who has one subtree, and the user boss who is an admin."""
    folder = tmp_path_factory.mktemp("guarded")
    config = folder / "holdfast.toml"
    config.write_text(CONFIG)
    settings = {
        "api.key_file": write_password_file(folder / "keys", {KEY[0]: KEY[1]}),
        "auth.password_file": write_password_file(folder / "users", {ANNA[0]: ANNA[1], BOSS[0]: BOSS[1]}),
        "api.admins": "boss",
    }
    running = start_holdfast(folder / "data", settings, listen=LISTEN, args=("--config", str(config)))
    with Api(running, auth=KEY) as api:
        api.set_many(["anna/1", "anna/2", "other/1"])
    yield running
    running.stop()


def test_without_keys_and_users_this_machine_may_do_everything(api: Api) -> None:
    assert api.ok("GET", "/api/v1/whoami") == {
        "known": True,
        "name": "",
        "admin": True,
        "sees_all": True,
        "login": False,
    }


def test_without_keys_and_users_a_foreign_host_name_is_refused(api: Api) -> None:
    for host in ("evil.example", "evil.example:18083", "127.0.0.1.evil.example"):
        assert api.get("/api/v1/retained", headers={"Host": host}).status_code == 403, host
    assert api.get("/api/v1/retained", headers={"Host": "localhost:1"}).status_code == 200


def test_with_keys_nobody_is_answered_without_one(guarded: BrokerProcess) -> None:
    with Api(guarded) as api:
        for path in ("/api/v1/retained", "/api/v5/clients", "/metrics", "/openapi.json", "/docs"):
            answer = api.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json"), path
            assert answer.headers["www-authenticate"].startswith("Basic")
        assert api.get("/", follow_redirects=False).status_code == 200
        assert api.get("/healthz").json() == {"status": "ok"}
        assert api.get("/readyz").json() == {"status": "ready"}
        assert api.get("/api/v1/whoami").json()["known"] is False


@pytest.mark.parametrize("wrong", [("ops", "wrong"), ("nobody", "open sesame"), ("", ""), ("anna", "open sesame")])
def test_a_wrong_key_is_refused(guarded: BrokerProcess, wrong: tuple[str, str]) -> None:
    with Api(guarded, auth=wrong) as api:
        assert api.get("/api/v1/retained").status_code == 401


@pytest.mark.parametrize("header", ["Basic", "Basic ???", "Basic bm9jb2xvbg==", "Bearer nothing", "Digest x"])
def test_a_malformed_authorization_is_refused(guarded: BrokerProcess, header: str) -> None:
    with Api(guarded) as api:
        assert api.get("/api/v1/retained", headers={"Authorization": header}).status_code == 401


@pytest.mark.parametrize("who", [KEY, BOSS])
def test_keys_and_admins_may_do_everything(guarded: BrokerProcess, who: tuple[str, str]) -> None:
    with Api(guarded, auth=who) as api:
        assert set(api.topics()) >= {"anna/1", "anna/2", "other/1"}
        assert api.get("/api/v5/clients").status_code == 200
        assert api.get("/api/v1/tree").status_code == 200


def test_a_user_sees_and_changes_what_the_access_rules_give(guarded: BrokerProcess) -> None:
    with Api(guarded, auth=ANNA) as api:
        assert sorted(api.topics()) == ["anna/1", "anna/2"]
        assert api.get("/api/v1/retained/message", params={"topic": "anna/1"}).status_code == 200
        assert api.get("/api/v1/retained/message", params={"topic": "other/1"}).status_code == 403
        assert api.get("/api/v1/history", params={"topic": "other/1"}).status_code == 403
        assert api.delete("/api/v1/retained/message", params={"topic": "other/1"}).status_code == 403
        assert api.delete("/api/v5/mqtt/retainer/message/other/1").status_code == 403
        assert api.post("/api/v1/publish", json={"topic": "other/1", "payload": "x"}).status_code == 403
        assert api.delete("/api/v1/retained", params={"filter": "#"}).json()["count"] == 2
        assert [one["path"] for one in api.ok("GET", "/api/v1/tree")["children"]] == ["anna"]
        assert api.ok("GET", "/api/v1/retained/usage")["count"] == 2
        assert api.ok("GET", "/api/v1/whoami")["sees_all"] is False
        for path in ("/api/v5/clients", "/api/v5/subscriptions", "/api/v1/hygiene"):
            assert api.get(path).status_code == 403, path
        assert api.delete("/api/v5/mqtt/retainer/messages").status_code == 403
        assert api.put("/api/v5/mqtt/retainer", json={"enable": False}).status_code == 403
        for path in ("drain?node=a", "remove?node=a", "verify"):
            assert api.post(f"/api/v1/cluster/{path}").status_code == 403, path


def test_what_concerns_all_clients_is_for_administrators(guarded: BrokerProcess) -> None:
    paths = ("nodes", "nodes/holdfast", "stats", "metrics", "banned", "clients", "clients/x/subscriptions")
    with Api(guarded, auth=ANNA) as api:
        assert [path for path in paths if api.get(f"/api/v5/{path}").status_code != 403] == []
        assert api.post("/api/v5/banned", json={"as": "username", "who": "boss"}).status_code == 403
        assert api.delete("/api/v5/banned/username/boss").status_code == 403
    with Api(guarded) as api:
        assert api.get("/api/v5/status").status_code == 200
    with Api(guarded, auth=BOSS) as api:
        assert api.get("/api/v5/banned").status_code == 200


def test_a_bulk_with_one_message_that_its_user_may_not_publish_publishes_none(guarded: BrokerProcess) -> None:
    bulk = [{"topic": topic, "payload": "1", "retain": True} for topic in ("anna/bulk", "other/bulk")]
    with Api(guarded, auth=ANNA) as api:
        assert api.post("/api/v5/publish/bulk", json=bulk).status_code == 403
    with Api(guarded, auth=KEY) as api:
        assert api.topics(filter="+/bulk") == []


def test_a_login_gives_a_cookie_that_scripts_cannot_read(guarded: BrokerProcess) -> None:
    with Api(guarded) as api:
        refused = api.post("/api/v1/login", json={"username": "boss", "password": "wrong"})
        assert refused.status_code == 401
        answer = api.post("/api/v1/login", json={"username": "boss", "password": "b"})
        assert answer.json()["admin"] is True
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert api.get("/api/v5/clients").status_code == 200
        assert api.post("/api/v1/logout").status_code == 204
        assert api.get("/api/v5/clients").status_code == 401


def test_a_bearer_token_of_a_login_is_taken(guarded: BrokerProcess) -> None:
    with Api(guarded) as api:
        token = api.ok("POST", "/api/v5/login", json={"username": "boss", "password": "b"})["token"]
        assert api.get("/api/v5/clients", headers={"Authorization": f"Bearer {token}"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
def test_what_another_site_asks_for_is_not_done(api: Api, unique: Unique, headers: dict[str, str]) -> None:
    api.set(unique.topic())
    body = {"topic": unique.topic("x"), "payload": "x", "retain": True}
    assert api.post("/api/v1/publish", json=body, headers=headers).status_code == 403
    query = {"topic": unique.topic()}
    assert api.delete("/api/v1/retained/message", params=query, headers=headers).status_code == 403
    assert api.topics(filter=unique.topic("#")) == [unique.topic()]


def test_what_this_site_asks_for_is_done(api: Api, unique: Unique) -> None:
    origin = str(api.base_url).rstrip("/")
    body = {"topic": unique.topic(), "payload": "x", "retain": True}
    headers = {"Origin": origin, "Sec-Fetch-Site": "same-origin"}
    assert api.post("/api/v1/publish", json=body, headers=headers).status_code == 200


def test_other_origins_may_read_nothing_unless_configured(api: Api, start_broker: Callable[..., BrokerProcess]) -> None:
    headers = {"Origin": "https://ops.example"}
    assert "access-control-allow-origin" not in api.get("/api/v1/retained", headers=headers).headers
    with Api(start_broker(listen=LISTEN, api__cors="https://ops.example")) as other:
        answer = other.get("/api/v1/retained", headers=headers)
        assert answer.headers["access-control-allow-origin"] == "https://ops.example"


def test_pages_may_load_nothing_from_elsewhere_and_be_framed_by_nobody(api: Api) -> None:
    for path in ("/", "/docs", "/static/main.js", "/api/v1/retained"):
        policy = api.get(path).headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


def test_files_outside_the_static_folder_cannot_be_read(api: Api) -> None:
    for path in ("/static/../../api/guard.py", "/static/%2e%2e/__init__.py", "/static/..%2f..%2f__init__.py"):
        assert httpx.get(f"{api.base_url}{path}").status_code == 404, path


def test_keys_are_read_again_on_sighup(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    import signal

    keys = write_password_file(tmp_path / "keys", {"one": "1"})
    broker = start_broker(listen=LISTEN, api__key_file=keys)
    with Api(broker) as api:
        assert api.get("/api/v1/retained", auth=("one", "1")).status_code == 200
        write_password_file(keys, {"two": "2"})
        broker.signal(signal.SIGHUP)
        broker.wait_output("reloaded")
        assert api.get("/api/v1/retained", auth=("one", "1")).status_code == 401
        assert api.get("/api/v1/retained", auth=("two", "2")).status_code == 200


def test_the_listener_speaks_https_too(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    import ssl

    from certificates import Authority

    authority = Authority(tmp_path / "certificates")
    certificate, key = authority.issue("localhost", "server")
    settings: dict[str, Any] = {"tls__cert": certificate, "tls__key": key}
    broker = start_broker(listen=("tcp://127.0.0.1:0", "https://127.0.0.1:0"), **settings)
    context = ssl.create_default_context(cafile=str(authority.ca))
    with httpx.Client(verify=context) as client:
        answer = client.get(f"https://localhost:{broker.ports['https']}/api/v1/overview")
    assert answer.status_code == 200
