"""`/metrics`: Prometheus can read it, it counts what happened, what is in deploy/ asks only for what is there, and
the guide leaves none out."""

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker_process import BrokerProcess, Unique
from http_api import LISTEN, Api
from wire import P, Publish

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
GUIDE = ROOT / "docs" / "guides" / "metrics.md"


def metrics(api: Api) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample by name and labels."""
    answer = api.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_what_happens_is_counted(start_broker: Callable[..., BrokerProcess], unique: Unique) -> None:
    broker = start_broker(listen=LISTEN, retainer__max_payload_size=4)
    with Api(broker) as api, broker.client(5) as client:
        client.connect(unique.client(), properties=[(P.SESSION_EXPIRY, 3600)])
        client.subscribe("a/#", qos=1)
        client.publish("a/1", b"1", qos=1, retain=True)
        client.expect(Publish, topic="a/1")
        client.publish("a/1", b"too long", qos=1, retain=True)
        client.publish("b", b"1", qos=0)
        found = metrics(api)
        assert found["holdfast_connections", (("protocol", "5.0"),)] == 1
        assert found["holdfast_messages_received_total", (("qos", "1"),)] == 2
        assert found["holdfast_messages_received_total", (("qos", "0"),)] == 1
        assert found["holdfast_protocol_messages_received_total", (("protocol", "5.0"),)] == 3
        assert found["holdfast_protocol_messages_sent_total", (("protocol", "5.0"),)] == 2
        assert found["holdfast_retained_messages", ()] == found["emqx_retained_count", ()] == 1
        assert found["holdfast_retained_bytes", ()] == 4
        version = api.ok("GET", "/api/v1/retained/message", params={"topic": "a/1"})["version"]
        # what the session waits for has offsets too, and they are no version of the retained set
        assert found["holdfast_retained_version", ()] == version < found["holdfast_offset", ()]
        assert found["holdfast_retained_refused_total", (("reason", "size"),)] == 1
        assert found["holdfast_subscriptions", ()] == 1
        assert found["holdfast_journal_healthy", ()] == 1
        assert found["holdfast_journal_sync_seconds_count", ()] >= 2
        assert found["holdfast_bytes_received_total", ()] > 0
        assert found["holdfast_protocol_bytes_sent_total", (("protocol", "5.0"),)] > 0


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:holdfast|emqx)_\w+", expression))


def test_the_dashboard_and_the_alerts_ask_only_for_what_is_there(api: Api) -> None:
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    asked = {name for panel in board["panels"] for target in panel["targets"] for name in names_in(target["expr"])}
    rules = re.findall(r"^\s+expr: (.*)$", (DEPLOY / "alerts.yml").read_text(), re.MULTILINE)
    assert len(rules) > 5
    for rule in rules:
        asked |= names_in(rule)
    known = {name for name, _ in metrics(api)} | set(re.findall(r"holdfast_cluster_[a-z_]+", GUIDE.read_text()))
    assert len(asked) > 20
    assert asked - known == set()


def test_the_guide_names_every_metric_with_its_labels_and_no_other(api: Api) -> None:
    served = {}
    for family in text_string_to_metric_families(api.get("/metrics").text):
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        served[family.name + ("_total" if family.type == "counter" else "")] = ", ".join(sorted(labels))
    named = [
        found
        for found in re.findall(r"`((?:holdfast|emqx)_\w+)(?:\{([\w, ]+)\})?`", GUIDE.read_text())
        # what only a node or a bridge has: tests/cluster and tests/integration/test_bridges.py look at those
        if not found[0].startswith(("holdfast_cluster_", "holdfast_bridge_"))
    ]
    assert dict(named) == served
    assert len(named) == len(served), "one is named twice"


def test_datagrams_that_are_no_packet_are_counted(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(listen=(*LISTEN, "udp://127.0.0.1:0"))
    with Api(broker) as api, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.settimeout(120)
        stranger.connect(("127.0.0.1", broker.ports["udp"]))
        assert metrics(api)["holdfast_datagrams_dropped_total", ()] == 0
        for malformed in ("00", "01", "FF 04", "05 04 04 01", "05 FE 00 00 00", "02 FE 03 05 00"):
            stranger.send(bytes.fromhex(malformed))
        stranger.send(bytes.fromhex("08 04 04 01 00 3C 63 34"))  # a CONNECT, answered once all before it was read
        assert stranger.recv(100) == bytes.fromhex("03 05 00")
        assert metrics(api)["holdfast_datagrams_dropped_total", ()] == 6


def test_labels_that_the_alerts_name_are_there(api: Api) -> None:
    labels = {name for _, pairs in metrics(api) for name, _ in pairs}
    text = (DEPLOY / "alerts.yml").read_text() + (DEPLOY / "grafana-dashboard.json").read_text()
    asked = set(re.findall(r"by \((\w+)\)", text)) | set(re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", text))
    assert asked - labels == set()


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_answered(api: Api, path: str) -> None:
    assert api.get(path).status_code == 200
