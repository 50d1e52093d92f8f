"""What an operator asks of a running broker: resources, settings, permissions, denials, clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_process import BrokerProcess, Unique, start_holdfast
from holdfast.cli.retained_source import DataSource
from http_api import LISTEN, Api, until
from password_file import write_password_file

PAGES = ("resources", "settings", "permissions", "denials", "clients")
RULES = """\
[[access]]
permission = "allow"
action = ["publish", "retain"]
filter = "home/%u/#"
group = "family"

[[access]]
permission = "deny"
action = "all"
filter = "secret/#"

[[auth.group]]
name = "family"
users = ["bob"]
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "rules.toml").write_text(RULES)
    changed = {
        "auth.password_file": write_password_file(folder / "users", {"anna": "pw1", "bob": "pw2"}),
        "api.key_file": write_password_file(folder / "keys", {"ops": "sesame"}),
        "api.admins": "anna",
        "callback.cache": "45s",
        "cluster.monitor": "http://nats:hush@127.0.0.1:8222",
    }
    running = start_holdfast(folder / "data", changed, listen=LISTEN, args=["--config", str(folder / "rules.toml")])
    yield running
    running.stop()


@pytest.fixture
def anna(guarded: BrokerProcess) -> Iterator[Api]:
    with Api(guarded, auth=("anna", "pw1")) as client:
        yield client


@pytest.mark.parametrize("page", PAGES)
def test_they_are_for_administrators(guarded: BrokerProcess, page: str) -> None:
    with Api(guarded, auth=("bob", "pw2")) as bob:
        assert bob.get(f"/api/v1/{page}").status_code == 403
    with Api(guarded) as nobody:
        assert nobody.get(f"/api/v1/{page}").status_code == 401


def test_settings_say_where_they_came_from_and_hide_passwords(anna: Api) -> None:
    found = {one["key"]: one for one in anna.ok("GET", "/api/v1/settings")["settings"]}
    assert (found["callback.cache"]["text"], found["callback.cache"]["default"]) == ("45s", '"30s"')
    assert found["callback.cache"]["changed"]
    assert found["access"]["origin"].startswith("file ")
    assert (found["durability"]["text"], found["durability"]["origin"]) == ("ack", "default")
    assert found["cluster.monitor"]["text"] == "http://nats:(hidden)@127.0.0.1:8222"
    assert "hush" not in str(found)


def test_users_and_rules_are_listed_as_they_are(anna: Api, unique: Unique) -> None:
    with anna.broker.client() as client:
        client.connect(unique.client(), username="bob", password=b"pw2")
        found = anna.ok("GET", "/api/v1/permissions")
        users = {(one["kind"], one["name"]): one for one in found["users"]}
        assert users["user", "anna"]["admin"]
        assert (users["user", "bob"]["clients"], users["user", "bob"]["groups"]) == (1, ["family"])
        assert users["key", "ops"]["admin"]
    assert [(one["permission"], one["filter"], one["users"]) for one in found["rules"]] == [
        ("allow", "home/%u/#", ["bob"]),
        ("deny", "secret/#", None),
    ]
    assert (found["no_match"], found["logins"]) == ("deny", ["password file"])
    assert "$" not in str(found["users"])  # no hash


@pytest.mark.parametrize(
    ("action", "topic", "allowed", "because"),
    [
        ("publish", "home/bob/x", True, "access"),
        ("publish", "home/anna/x", False, "no rule matches"),
        ("subscribe", "secret/#", False, "access"),
    ],
)
def test_what_somebody_may_do_is_answered_with_the_rule_that_decides(
    anna: Api, action: str, topic: str, allowed: bool, because: str
) -> None:
    found = anna.ok("GET", "/api/v1/permissions/check", params={"user": "bob", "action": action, "topic": topic})
    assert found["allowed"] == allowed
    assert because in found["because"]


def test_what_is_no_topic_cannot_be_asked_about(anna: Api) -> None:
    answer = anna.get("/api/v1/permissions/check", params={"user": "bob", "action": "publish", "topic": "a/#"})
    assert answer.status_code == 400


def test_denials_of_every_kind_are_kept_with_who_and_what(anna: Api, guarded: BrokerProcess, unique: Unique) -> None:
    with guarded.client(5) as client:
        client.connect(unique.client("wrong"), username="bob", password=b"no", check=False)
    with guarded.client(5) as client:
        client.connect(unique.client("bob"), username="bob", password=b"pw2")
        client.publish("secret/door", b"1", qos=1, check=False)
        client.publish("secret/door", b"1", qos=1, check=False)
        client.subscribe("secret/#", qos=1, check=False)
    with Api(guarded, auth=("ops", "wrong")) as stranger:
        assert stranger.get("/api/v1/overview").status_code == 401
    with Api(guarded, auth=("bob", "pw2")) as bob:
        publication = {"topic": "secret/door", "payload": "1"}
        assert bob.post("/api/v1/publish", json=publication).status_code == 403

    def seen() -> dict[str, Any]:
        kept = anna.ok("GET", "/api/v1/denials")["denials"]
        return {
            one["event"]: one
            for one in kept
            if one["client_id"].startswith(str(unique)) or one["username"] == "ops" or "API" in one["event"]
        }

    kinds = {"login failed", "publish denied", "subscribe denied", "API login failed", "API request denied"}
    found = until(seen, lambda found: kinds <= set(found))
    assert found["publish denied"]["count"] == 2
    assert (found["publish denied"]["username"], found["publish denied"]["topic"]) == ("bob", "secret/door")
    assert found["subscribe denied"]["topic"] == "secret/#"
    assert found["login failed"]["reason"]
    assert "may not write to topic 'secret/door'" in found["API request denied"]["reason"]
    counted = anna.get("/metrics").text
    for name in ("api_logins_failed", "api_requests_denied"):
        assert f"holdfast_{name}_total 0.0" not in counted
        assert f"holdfast_{name}_total " in counted
    guarded.wait_output("API login failed username=ops address=127.0.0.1")
    guarded.wait_output("API request denied username=bob address=127.0.0.1")
    with Api(guarded, auth=("hunter2", "x")) as mistaken:
        assert mistaken.get("/api/v1/overview").status_code == 401
    assert "hunter2" not in anna.get("/api/v1/denials").text  # it may be a password
    assert "hunter2" not in guarded.output
    assert {one["host"] for one in found.values()} == {"127.0.0.1"}


def test_resources_are_told(api: Api, unique: Unique) -> None:
    api.set(unique.topic())
    with api.broker.client(5) as client:
        client.connect(unique.client())
        found = until(
            lambda: api.ok("GET", "/api/v1/resources"),
            lambda found: any(one["scheme"] == "tcp" and one["connections"] for one in found["listeners"]),
        )
    assert found["memory"]["broker"] > 10 << 20
    assert found["memory"]["helpers"] > 0
    assert 0 < found["disk"]["free"] <= found["disk"]["total"]
    assert {"journal", "state"} <= set(found["disk"]["parts"])
    assert found["journal"]["healthy"]
    assert f":{api.broker.ports['http']}" in str([one["address"] for one in found["listeners"]])


def test_clients_are_found_by_id_user_or_address_and_sorted(
    start_broker: Callable[..., BrokerProcess], unique: Unique
) -> None:
    broker = start_broker(listen=LISTEN)
    with Api(broker) as api, broker.client(5) as quiet, broker.client(5) as busy:
        quiet.connect(unique.client("quiet"))
        busy.connect(unique.client("busy"), clean=True)
        busy.publish(unique.topic(), b"x" * 5000, qos=1)
        found = api.ok("GET", "/api/v1/clients", params={"sort": "received", "descending": True})
        names = [one["client_id"] for one in found["clients"]]
        assert (found["count"], names) == (2, [unique.client("busy"), unique.client("quiet")])
        assert found["clients"][0]["received"] > 5000
        assert found["clients"][0]["sent"] > 0
        by_id = api.ok("GET", "/api/v1/clients", params={"search": "QUIET"})
        assert [one["client_id"] for one in by_id["clients"]] == [unique.client("quiet")]
        by_address = api.ok("GET", "/api/v1/clients", params={"search": "127.0.0.1", "limit": 1, "page": 2})
        assert (by_address["count"], len(by_address["clients"])) == (2, 1)
        assert api.ok("GET", "/api/v1/clients", params={"state": "offline"})["count"] == 0
        assert api.get("/api/v1/clients", params={"sort": "colour"}).status_code in (400, 422)


@pytest.mark.parametrize("step", [1, 10, 60])
def test_the_series_come_in_steps(api: Api, step: int) -> None:
    series = api.ok("GET", "/api/v1/overview", params={"points": 10, "step_s": step})["series"]
    assert len(series["memory"]) == len(series["at_ms"])
    assert api.get("/api/v1/overview", params={"step_s": 7}).status_code == 400


def test_a_data_folder_gives_the_same_answer_as_the_broker_that_ran_on_it(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    broker = start_broker(listen=LISTEN, data=folder)
    with Api(broker) as api:
        for name in ("well", "lost"):
            api.set(f"homeassistant/sensor/{name}/config", f'{{"state_topic": "{name}/state"}}')
        api.ok("GET", "/api/v1/hygiene")  # it listens then
        api.ok("POST", "/api/v1/publish", json={"topic": "well/state", "payload": "1"})
        api.set("changed")
        running = api.ok("GET", "/api/v1/hygiene")
    broker.stop()
    stopped = DataSource(folder).ghosts(30, 50)
    for report in (running, stopped):
        assert [one["state_topic"] for one in report["discovery"]] == ["lost/state"]
    assert stopped["listening_since_ms"] == running["listening_since_ms"]
