"""Links to other brokers: who may make them, and what somebody at the other end can do with one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_process import BrokerProcess, Unique, start_holdfast
from http_api import LISTEN, Api, until
from password_file import write_password_file
from wire import P, WireClient

PATIENCE_S = 120.0
TOLD = {"name": "b", "address": "mqtt://127.0.0.1:1", "topic": "a/# out"}

Start = Callable[..., BrokerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[BrokerProcess] = []

    def one(**settings: Any) -> BrokerProcess:
        folder = tmp_path / str(len(running))
        running.append(start_holdfast(folder, {"history__enable": False, **settings}, listen=LISTEN))
        return running[-1]

    yield one
    for broker in running:
        broker.stop()


def test_bridges_are_the_business_of_administrators(start: Start, tmp_path: Path) -> None:
    users = write_password_file(tmp_path / "users", {"ann": "a", "bob": "b"})
    broker = start(auth__password_file=users, api__admins="ann")
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/api/v1/bridges", {}),
        ("GET", "/api/v1/bridges/told", {"params": {"name": "b"}}),
        ("POST", "/api/v1/bridges", {"json": TOLD}),
        ("POST", "/api/v1/bridges/test", {"json": TOLD}),
        ("DELETE", "/api/v1/bridges", {"params": {"name": "b"}}),
    ]
    for auth, status in ((("bob", "b"), 403), (None, 401)):
        with Api(broker, auth=auth) as caller:
            assert [caller.request(method, path, **given).status_code for method, path, given in calls] == [status] * 5
    with Api(broker, auth=("ann", "a")) as ann:
        assert ann.ok("GET", "/api/v1/bridges") == {"bridges": []}
        password = tmp_path / "of-somebody-else"
        password.write_text("hush")
        for path in ("/api/v1/bridges", "/api/v1/bridges/test"):
            refused = ann.post(path, json={**TOLD, "password_file": str(password)})
            assert refused.status_code == 400
            assert "hush" not in refused.text


def test_what_is_too_much_for_this_broker_stops_no_bridge(start: Start, unique: Unique) -> None:
    """Any client of the other broker can publish it, and that broker brings it again until it is acknowledged."""
    there = start(limits__max_user_properties=0)
    here = start(limits__max_packet_size="64KiB", limits__max_topic_levels=8, limits__max_user_properties=5)
    with Api(here) as api, WireClient(here.port, 5) as reader, WireClient(there.port, 5) as enemy:
        reader.connect(unique.client())
        reader.subscribe(("here/#", 1))
        enemy.connect(unique.client())
        told = {"name": "b", "address": f"mqtt://127.0.0.1:{there.port}", "topic": "# in 1 here/", "retry": "100ms"}
        api.ok("POST", "/api/v1/bridges", json=told)

        def status() -> dict[str, Any]:
            return dict(api.ok("GET", "/api/v1/bridges")["bridges"][0])

        until(status, lambda one: bool(one["in_sync"]), PATIENCE_S)
        enemy.publish("large", b"x" * 100_000, qos=1)
        enemy.publish("large/retained", b"x" * 100_000, qos=1, retain=True)
        enemy.publish("/".join("deep-down"), b"1", qos=1)
        enemy.publish("l" * 65533, b"1", qos=1)
        enemy.publish("many", b"1", qos=1, properties=[(P.USER_PROPERTY, ("a", "b"))] * 6)
        enemy.publish("good", b"1", qos=1)
        [message] = reader.messages(1, timeout=PATIENCE_S)
        assert message.topic == "here/good"
        until(status, lambda one: one["refused"] == 5, PATIENCE_S)
        assert (status()["state"], status()["connects"]) == ("connected", 1)
    assert "a bridge has failed" not in here.output
