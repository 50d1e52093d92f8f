"""The files in deploy/cluster: accepted by what reads them, and agreed with each other on what a cluster needs."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.checks import problems_of
from holdfast.config.settings import Settings

yaml = pytest.importorskip("yaml")
CLUSTER = Path(__file__).parents[2] / "deploy/cluster"
KUBECTL = shutil.which("kubectl")
HAPROXY = shutil.which("haproxy")


def settings() -> Settings:
    return Settings.model_validate(tomllib.loads((CLUSTER / "node.toml").read_text()))


def objects(kind: str) -> dict[str, dict[str, Any]]:
    """What the manifests have of a kind, by name."""
    found = [
        one for path in sorted((CLUSTER / "kubernetes").glob("*.yaml")) for one in yaml.safe_load_all(path.read_text())
    ]
    return {one["metadata"]["name"]: one for one in found if one["kind"] == kind}


def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((CLUSTER / "compose.yaml").read_text())
    return read


def routes_in(words: list[str]) -> list[str]:
    return words[words.index("--routes") + 1].split(",")


def test_a_log_server_accepts_its_configuration_which_syncs_before_it_answers(tmp_path: Path) -> None:
    beside = Path(sys.executable).with_name("nats-server")
    program = str(beside) if beside.exists() else shutil.which("nats-server")
    if program is None:
        pytest.skip("nats-server is not installed")
    text = (CLUSTER / "nats.conf").read_text()
    assert re.search(r"^\s*sync_interval: always$", text, re.MULTILINE)
    here = tmp_path / "nats.conf"
    here.write_text(text.replace('"/data"', f'"{tmp_path}/data"'))
    command = [program, "-t", "--config", str(here), "--name", "log-0"]
    done = subprocess.run(command, capture_output=True, text=True, env={"LOG_PASSWORD": "secret-of-the-log"})
    assert done.returncode == 0, done.stderr
    refused = subprocess.run(command, capture_output=True, text=True, env={})
    assert refused.returncode != 0, "a log server without a password"


def test_a_node_accepts_its_configuration_and_lets_nobody_in_unasked() -> None:
    found = settings()
    assert not any(listener.allow_anonymous for listener in found.listeners())
    named = found.model_copy(update={"cluster": found.cluster.model_copy(update={"node": "holdfast-0"})})
    files = {"auth.password_file", "api.key_file", "cluster.password_file"}  # they come with the secrets
    assert [problem for problem in problems_of(named, {}) if problem.key not in files] == []


def test_compose_starts_the_log_servers_and_the_nodes_that_the_configurations_name() -> None:
    services = compose()["services"]
    names = {
        alias for one in services.values() for alias in one.get("networks", {}).get("default", {}).get("aliases", [])
    }
    assert {url.split("/")[2].split(":")[0] for url in settings().cluster.url} == names
    servers = [one for one in services.values() if one["image"].startswith("nats:")]
    assert len(servers) == settings().cluster.replicas
    for server in servers:
        assert {route.split("/")[2].split(":")[0] for route in routes_in(server["command"])} == names
    nodes = [one["environment"]["HOLDFAST_CLUSTER__NODE"] for one in services.values() if one["image"] == "holdfast"]
    assert len(set(nodes)) == len(nodes) == 3
    folders = [volume for one in services.values() for volume in one["volumes"] if volume.endswith(":/data")]
    assert len(set(folders)) == len(folders) == 6
    assert {folder.split(":")[0] for folder in folders} == set(compose()["volumes"])


def test_the_balancer_asks_readyz_of_every_node() -> None:
    text = (CLUSTER / "haproxy.cfg").read_text()
    assert "option httpchk GET /readyz" in text
    servers = re.findall(r"^\s*server \w+ ([\w-]+):1883$", text, re.MULTILINE)
    services = compose()["services"]
    assert servers == [name for name, one in services.items() if one["image"] == "holdfast"]
    (port,) = re.findall(r"check port (\d+)", text)
    assert int(port) in [listener.port for listener in settings().listeners() if listener.is_http]


@pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")
def test_haproxy_accepts_its_configuration() -> None:
    done = subprocess.run([str(HAPROXY), "-c", "-f", str(CLUSTER / "haproxy.cfg")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
def test_kustomize_builds_the_manifests_with_the_configurations_in_them() -> None:
    done = subprocess.run([str(KUBECTL), "kustomize", str(CLUSTER)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))
    maps = {one["metadata"]["name"]: one["data"] for one in built if one["kind"] == "ConfigMap"}
    used = [
        volume["configMap"]["name"]
        for one in built
        if one["kind"] == "StatefulSet"
        for volume in one["spec"]["template"]["spec"]["volumes"]
        if "configMap" in volume
    ]
    assert sorted(used) == sorted(maps)
    assert {name for data in maps.values() for name in data} == {"nats.conf", "node.toml"}


@pytest.mark.parametrize("name", ["log", "holdfast"])
def test_pods_keep_their_name_and_folder_and_leave_one_at_a_time(name: str) -> None:
    spec = objects("StatefulSet")[name]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert objects("Service")[spec["serviceName"]]["spec"]["clusterIP"] == "None"
    assert spec["replicas"] == 3
    (container,) = spec["template"]["spec"]["containers"]
    claimed = [claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]]
    given = claimed + [volume["name"] for volume in spec["template"]["spec"]["volumes"]]
    assert sorted(mount["name"] for mount in container["volumeMounts"]) == sorted(given)
    budget = objects("PodDisruptionBudget")[name]["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"] == labels


@pytest.mark.parametrize("name", ["log", "holdfast"])
def test_pods_run_as_a_user_of_their_own_with_nothing_they_do_not_need(name: str) -> None:
    pod = objects("StatefulSet")[name]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] >= 10_000
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]


def test_a_pod_gets_clients_while_readyz_says_so_and_is_not_killed_for_want_of_a_quorum() -> None:
    (container,) = objects("StatefulSet")["holdfast"]["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] >= 3600
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    listeners = settings().listeners()
    assert ports["http"] in [listener.port for listener in listeners if listener.is_http]
    assert ports["mqtt"] in [listener.port for listener in listeners if not listener.is_http]
    assert "publishNotReadyAddresses" not in objects("Service")["holdfast"]["spec"]


def test_the_log_servers_in_pods_are_those_that_the_nodes_look_for() -> None:
    servers = objects("StatefulSet")["log"]["spec"]
    names = {f"log-{number}.{servers['serviceName']}" for number in range(servers["replicas"])}
    (container,) = servers["template"]["spec"]["containers"]
    cluster = settings().cluster
    for urls in (cluster.url, cluster.monitor, routes_in(container["args"])):
        assert {url.split("/")[2].split(":")[0] for url in urls} == names


def test_no_file_has_a_secret_in_it() -> None:
    for path in CLUSTER.rglob("*"):
        if path.is_file():
            assert not re.search(r"password:\s*[\"']?[A-Za-z0-9]", path.read_text()), path
