"""What an operator asks of a cluster, through any of its nodes: how it is doing, to drain, to remove, to compare."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import wire
from cluster_nodes import ClusterNodes
from log_servers import until

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "metrics.md"

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNodes]:
    with ClusterNodes(tmp_path_factory.mktemp("cluster"), http=True, sys__interval=1) as running:
        yield running


@pytest.fixture(autouse=True)
def _shown(cluster: ClusterNodes) -> Iterator[None]:
    with cluster.shown():
        yield


def ask(cluster: ClusterNodes, name: str, method: str, path: str, **options: Any) -> httpx.Response:
    return httpx.request(method, f"http://127.0.0.1:{cluster[name].http_port}{path}", timeout=120, **options)


def ok(cluster: ClusterNodes, name: str, method: str, path: str, **options: Any) -> Any:
    answer = ask(cluster, name, method, path, **options)
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


def retain(cluster: ClusterNodes, name: str, topic: str, payload: str = "1") -> int:
    body = {"topic": topic, "payload": payload, "retain": True, "qos": 1}
    return int(ok(cluster, name, "POST", "/api/v1/publish", json=body)["version"])


def message(cluster: ClusterNodes, name: str, topic: str) -> dict[str, Any] | None:
    answer = ask(cluster, name, "GET", "/api/v1/retained/message", params={"topic": topic})
    return dict(answer.json()) if answer.status_code == 200 else None


def test_every_node_tells_of_all_nodes(cluster: ClusterNodes) -> None:
    def settled() -> dict[str, Any] | None:
        told = ok(cluster, "a", "GET", "/api/v1/cluster")
        return told if all(one["heard"] and one["ready"] and one["agrees"] for one in told["nodes"]) else None

    told = until(settled, "all nodes are ready and have read the same")
    assert (told["alone"], told["name"], told["node"], told["ready"]) == (False, "holdfast", "a", True)
    assert [one["name"] for one in told["nodes"]] == ["a", "b", "c"]
    names = {server.name for server in cluster.servers}
    until(lambda: ok(cluster, "a", "GET", "/api/v1/cluster")["log"]["leader"] in names, "a knows who leads the log")
    assert told["position"] > 0
    assert {one["lag"] for one in told["nodes"]} <= {0, 1, 2}


def test_emqx_s_list_of_nodes_has_all_of_them(cluster: ClusterNodes) -> None:
    nodes = {one["node"]: one for one in ok(cluster, "b", "GET", "/api/v5/nodes")}
    assert sorted(nodes) == ["a", "b", "c"]
    assert {one["node_status"] for one in nodes.values()} == {"running"}
    assert "uptime" in nodes["b"]
    assert ok(cluster, "b", "GET", "/api/v5/nodes/c")["node"] == "c"
    assert ask(cluster, "b", "GET", "/api/v5/nodes/d").status_code == 404


def test_the_version_that_the_api_answers_with_is_the_same_on_every_node(cluster: ClusterNodes) -> None:
    version = retain(cluster, "a", "version/1", "one")
    assert version > 0
    for name in "abc":
        until(lambda name=name: message(cluster, name, "version/1"), f"{name} has it")  # type: ignore[misc]
        found = message(cluster, name, "version/1")
        assert found is not None
        assert (found["version"], found["text"]) == (version, "one")


def test_a_delete_is_counted_and_undone_as_on_a_single_broker(cluster: ClusterNodes) -> None:
    batch = [{"topic": f"bulk/{n}", "payload": str(n), "retain": True} for n in range(450)]
    assert ok(cluster, "a", "POST", "/api/v1/publish/batch", json=batch)["version"] > 0
    seen = ok(cluster, "a", "DELETE", "/api/v1/retained", params={"filter": "bulk/#", "dry_run": True})
    assert seen["count"] == 450
    params = {"filter": "bulk/#", "dry_run": False, "token": seen["token"]}
    done = ok(cluster, "a", "DELETE", "/api/v1/retained", params=params)
    assert done["count"] == 450
    assert message(cluster, "a", "bulk/7") is None
    back = ok(cluster, "a", "POST", f"/api/v1/operations/{done['operation']}/undo")
    assert (back["restored"], back["refused"]) == (450, 0)
    assert message(cluster, "a", "bulk/7") is not None
    again = ok(cluster, "a", "POST", f"/api/v1/operations/{done['operation']}/undo")
    assert (again["restored"], again["present"]) == (0, 450)


def test_a_limit_that_is_set_on_one_node_holds_on_all(cluster: ClusterNodes) -> None:
    before = ok(cluster, "a", "GET", "/api/v5/mqtt/retainer")
    answer = ok(cluster, "b", "PUT", "/api/v5/mqtt/retainer", json={"max_payload_size": "10B"})
    assert answer["max_payload_size"] == "10B"
    until(lambda: ok(cluster, "c", "GET", "/api/v5/mqtt/retainer")["max_payload_size"] == "10B", "c has the limit")
    retain(cluster, "c", "limit/large", "x" * 11)
    assert message(cluster, "c", "limit/large") is None
    ok(cluster, "a", "PUT", "/api/v5/mqtt/retainer", json={"max_payload_size": before["max_payload_size"]})
    retain(cluster, "a", "limit/large", "x" * 11)
    assert message(cluster, "a", "limit/large") is not None


def test_a_client_is_disconnected_through_another_node(cluster: ClusterNodes) -> None:
    client = cluster.client("a")
    client.connect("kicked")

    def seen() -> dict[str, Any] | None:
        answer = ask(cluster, "b", "GET", "/api/v5/clients/kicked")
        return answer.json() if answer.status_code == 200 and answer.json()["connected"] else None

    assert until(seen, "b knows the client")["node"] == "a"
    [listed] = ok(cluster, "c", "GET", "/api/v5/clients", params={"clientid": "kicked", "conn_state": "connected"})[
        "data"
    ]
    assert listed["node"] == "a"
    assert ask(cluster, "b", "DELETE", "/api/v5/clients/kicked").status_code == 204
    assert client.expect(wire.Disconnect, timeout=60).reason == 0x98
    client.expect_closed()


def test_the_session_of_an_absent_client_of_another_node_is_ended(cluster: ClusterNodes) -> None:
    client = cluster.client("a", version=4)
    client.connect("absent", clean=False)
    client.disconnect()

    def is_absent() -> bool:
        answer = ask(cluster, "b", "GET", "/api/v5/clients/absent")
        return answer.status_code == 200 and not answer.json()["connected"]

    until(is_absent, "b knows that the client has left")
    assert ask(cluster, "b", "DELETE", "/api/v5/clients/absent").status_code == 204
    until(lambda: ask(cluster, "a", "GET", "/api/v5/clients/absent").status_code == 404, "the session is gone on a")


def test_the_nodes_have_the_same_state(cluster: ClusterNodes) -> None:
    retain(cluster, "c", "verify/1")
    found = ok(cluster, "b", "POST", "/api/v1/cluster/verify")
    assert found["equal"]
    assert found["missing"] == []
    assert set(found["hashes"]) == {"a", "b", "c"}


def test_metrics_and_system_topics_tell_of_the_cluster(cluster: ClusterNodes) -> None:
    text = cluster["a"].look("/metrics")[1]
    numbers = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("holdfast_cluster"))
    assert float(numbers["holdfast_cluster_position"]) > 0
    assert float(numbers["holdfast_cluster_nodes_up"]) == 3
    assert set(numbers) == set(re.findall(r"`(holdfast_cluster_\w+[a-z])`", GUIDE.read_text()))
    client = cluster.client("a", version=4)
    client.connect("system")
    client.subscribe("$SYS/broker/cluster/#")
    wanted = {f"$SYS/broker/cluster/{one}" for one in ("name", "node", "nodes", "position", "lag", "ready")}
    found: dict[str, bytes] = {}
    while wanted - set(found):
        publish = client.expect(wire.Publish, timeout=60)
        found[publish.topic] = publish.payload
    assert found["$SYS/broker/cluster/node"] == b"a"
    assert found["$SYS/broker/cluster/nodes"] == b"a b c"
    assert found["$SYS/broker/cluster/ready"] == b"1"


def test_a_node_that_is_drained_through_another_sends_its_clients_away_and_is_not_ready(cluster: ClusterNodes) -> None:
    client = cluster.client("c")
    client.connect("drained")
    assert cluster["c"].look("/readyz")[0] == 200
    assert ask(cluster, "a", "POST", "/api/v1/cluster/drain", params={"node": "nobody"}).status_code == 404
    assert ok(cluster, "a", "POST", "/api/v1/cluster/drain", params={"node": "c"}) == {"node": "c", "drained": True}
    assert client.expect(wire.Disconnect, timeout=60).reason == 0x9C
    status, body = cluster["c"].look("/readyz")
    assert (status, json.loads(body)["status"].split(":")[0]) == (503, "drained")
    assert cluster["c"].look("/healthz")[0] == 200

    def told() -> bool:
        [node] = [one for one in ok(cluster, "b", "GET", "/api/v1/cluster")["nodes"] if one["name"] == "c"]
        return node["ready"] is False and str(node["detail"]).startswith("drained")

    until(told, "b knows that c is drained")
    assert ask(cluster, "a", "POST", "/api/v1/cluster/remove", params={"node": "c"}).status_code == 400
    cluster["c"].stop()

    def is_removed() -> bool:
        return ask(cluster, "a", "POST", "/api/v1/cluster/remove", params={"node": "c"}).status_code == 200

    until(is_removed, "c is silent and can be removed")
    assert [one["name"] for one in ok(cluster, "a", "GET", "/api/v1/cluster")["nodes"]] == ["a", "b"]
    cluster["c"].start()
    cluster.wait_ready()
    assert cluster["c"].look("/readyz")[0] == 200
    assert [one["name"] for one in ok(cluster, "c", "GET", "/api/v1/cluster")["nodes"]] == ["a", "b", "c"]


def test_a_node_without_a_quorum_says_so_and_refuses_to_publish(cluster: ClusterNodes) -> None:
    for server in cluster.servers.all[1:]:
        server.pause()
    try:
        until(lambda: cluster["a"].look("/readyz")[0] == 503, "a is not ready")
        assert "quorum" in cluster["a"].look("/readyz")[1]
        body = {"topic": "lost", "payload": "1", "retain": True}
        answer = ask(cluster, "a", "POST", "/api/v1/publish", json=body)
        assert answer.status_code == 503
        assert "quorum" in answer.json()["detail"]
        assert ask(cluster, "a", "POST", "/api/v1/cluster/drain", params={"node": "b"}).status_code == 503
    finally:
        for server in cluster.servers.all[1:]:
            server.resume()
    until(lambda: cluster["a"].look("/readyz")[0] == 200, "a is ready again")


def test_a_node_can_be_asked_while_it_catches_up(cluster: ClusterNodes, tmp_path: Path) -> None:
    node = cluster["b"]
    node.stop()
    for server in cluster.servers.all[1:]:
        server.pause()
    try:
        node.start(wait=False)
        until(lambda: "listening http" in node.output, "the API answers before the node is a member")
        status, body = node.look("/readyz")
        assert status == 503, body
        assert f"listening tcp://127.0.0.1:{node.port}" not in node.output
    finally:
        for server in cluster.servers.all[1:]:
            server.resume()
    node.wait_listening()
    assert node.look("/readyz")[0] == 200


def test_a_broker_that_stands_alone_says_so(start_broker: Any) -> None:
    broker = start_broker(listen=("tcp://127.0.0.1:0", "http://127.0.0.1:0"), history__enable=False)
    url = f"http://127.0.0.1:{broker.ports['http']}/api/v1/cluster"
    told = httpx.get(url, timeout=60).json()
    assert (told["alone"], told["ready"], told["nodes"]) == (True, True, [])
    refused = httpx.post(f"{url}/verify", timeout=60)
    assert refused.status_code == 409
    assert "stands alone" in refused.json()["detail"]
    assert broker.process.poll() is None
    broker.signal(signal.SIGTERM)
