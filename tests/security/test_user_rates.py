"""One user cannot fill the disk faster than allowed, by whatever way: the rates are one for all of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

import wire
from broker_process import BrokerProcess
from http_api import LISTEN, Api
from password_file import write_password_file
from sn_client import SnClient
from wire import WireClient

pytest.importorskip("fastapi", reason="the API comes with holdfast-mqtt[ui], which is not installed")

Start = Callable[..., BrokerProcess]


def flood(client: WireClient) -> None:
    """Far more than its rate, in one piece: what comes after it is not read for minutes."""
    client.send(b"".join(wire.publish("t", b"x", version=5) for _ in range(1000)) + wire.pingreq())
    client.expect(wire.PingResp)


def test_what_comes_by_mqtt_is_held_against_the_api_and_the_other_way_round(
    start_broker: Start, tmp_path: Path
) -> None:
    users = write_password_file(tmp_path / "users", {"ann": "ann's", "bob": "bob's"})
    broker = start_broker(
        listen=LISTEN, auth__password_file=users, limits__message_rate_per_user=10, history__enable=False
    )
    batch = [{"topic": "t", "payload": "x"}] * 1000
    with Api(broker, auth=("ann", "ann's")) as ann, Api(broker, auth=("bob", "bob's")) as bob:
        ann.ok("POST", "/api/v1/publish/batch", json=batch)
        for path, body in (
            ("/api/v1/publish", batch[0]),
            ("/api/v1/publish/batch", batch[:1]),
            ("/api/v5/publish", batch[0]),
            ("/api/v5/publish/bulk", batch[:1]),
        ):
            answer = ann.post(path, json=body)
            assert answer.status_code == 429, f"{path}: {answer.text}"
            assert "too fast" in answer.json()["detail"]
        bob.ok("POST", "/api/v1/publish", json=batch[0])
        client = broker.client(5)
        client.connect("bob's", username="bob", password=b"bob's")
        flood(client)
        assert bob.post("/api/v1/publish", json=batch[0]).status_code == 429


def test_sensors_without_a_name_share_with_mqtt_clients_without_one(start_broker: Start) -> None:
    broker = start_broker(
        listen=["tcp://127.0.0.1:0", "udp://127.0.0.1:0"], limits__message_rate_per_user=10, history__enable=False
    )
    client = broker.client(5)
    client.connect("flood")
    flood(client)
    with SnClient(broker.ports["udp"], 2, "s1") as sensor:
        sensor.connect()
        with pytest.raises(AssertionError, match="0xF1"):  # congestion
            sensor.publish("t", b"x", qos=1)
