"""What the image starts, without an engine: its entry point and its configuration, as a real process."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from broker_process import BrokerProcess
from holdfast.api.auth import HEALTH_PATHS

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


class Container:
    """A folder laid out as the image is, in which the entry point can be started again and again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.data.mkdir()
        settings = (DEPLOY / "holdfast.docker.toml").read_text().replace("/data/users", str(self.data / "users"))
        (root / "holdfast.toml").write_text(re.sub(r"0\.0\.0\.0:\d+", "0.0.0.0:0", settings))
        tools = root / "bin"
        tools.mkdir()
        for name, words in (("holdfast", [sys.executable, "-m", "holdfast"]), ("python", [sys.executable])):
            (tools / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            (tools / name).chmod(0o755)
        self.env = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "HOLDFAST_CONFIG": str(root / "holdfast.toml"),
            "HOLDFAST_DATA": str(self.data),
            "ADMIN_SECRET": str(root / "secret"),
        }
        self.running: list[BrokerProcess] = []

    def start(self, listeners: int = 3) -> BrokerProcess:
        command = [str(DEPLOY / "docker-entrypoint"), *json_list("CMD")]
        self.running.append(BrokerProcess(command, self.env, self.root))
        self.running[-1].wait_listening(listeners)
        return self.running[-1]


def json_list(instruction: str) -> list[str]:
    found = re.findall(rf"^{instruction} (\[.*\])$", DOCKERFILE, re.MULTILINE)
    words: list[str] = yaml.safe_load(found[-1])
    return words


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    made = Container(tmp_path)
    yield made
    for broker in made.running:
        if broker.is_running():
            broker.stop()


def password_in(output: str) -> str | None:
    found = re.search(r"^ *password +(\S+)$", output, re.MULTILINE)
    return found[1] if found else None


def status_of(broker: BrokerProcess, login: tuple[str, str] | None, path: str) -> int:
    return httpx.get(f"http://127.0.0.1:{broker.ports['http']}{path}", auth=login, timeout=60).status_code


def test_the_first_start_needs_no_file_and_prints_a_password_that_opens_dashboard_metrics_and_broker(
    container: Container,
) -> None:
    broker = container.start()
    password = password_in(broker.output)
    assert password is not None
    assert len(password) >= 20
    login = ("admin", password)
    assert status_of(broker, None, "/") == 200
    assert status_of(broker, None, "/api/v1/overview") == 401
    assert status_of(broker, login, "/api/v5/clients") == 200
    assert status_of(broker, login, "/metrics") == 200
    with broker.client(5) as client:
        client.connect("device", username="admin", password=password.encode())
    users = container.data / "users"
    assert password not in users.read_text()
    assert stat.S_IMODE(users.stat().st_mode) == 0o600


def test_the_password_is_printed_once_and_stays(container: Container) -> None:
    first = container.start()
    password = password_in(first.output)
    assert password is not None
    first.stop()
    second = container.start()
    assert password_in(second.output) is None
    assert status_of(second, ("admin", password), "/api/v5/clients") == 200


def test_a_secret_that_is_handed_in_is_the_password_and_is_not_printed(container: Container) -> None:
    (container.root / "secret").write_text("correct horse\n")
    broker = container.start()
    assert "correct horse" not in broker.output
    assert password_in(broker.output) is None
    assert status_of(broker, ("admin", "correct horse"), "/api/v5/clients") == 200


def test_other_commands_and_configurations_with_users_of_their_own_make_nobody(container: Container) -> None:
    entry = str(DEPLOY / "docker-entrypoint")
    told = subprocess.run([entry, "--version"], env=container.env, capture_output=True, text=True, timeout=120)
    assert told.stdout.startswith("holdfast ")
    (container.root / "holdfast.toml").write_text('listen = ["tcp://127.0.0.1:0"]\n')
    container.start(listeners=1)
    assert not (container.data / "users").exists()


def test_the_image_lays_out_what_the_entry_point_looks_for() -> None:
    last = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    assert json_list("ENTRYPOINT") == ["docker-entrypoint"]
    assert "COPY --chmod=0755 deploy/docker-entrypoint /opt/holdfast/bin/docker-entrypoint" in last
    assert "deploy/holdfast.docker.toml /etc/holdfast/holdfast.toml" in last
    assert "HOLDFAST_CONFIG=/etc/holdfast/holdfast.toml HOLDFAST_DATA=/data" in last
    exposed = re.search(r"^EXPOSE (.*)$", last, re.MULTILINE)
    assert exposed is not None
    ports = re.findall(r"0\.0\.0\.0:(\d+)", (DEPLOY / "holdfast.docker.toml").read_text())
    assert exposed[1].split() == ports


def test_compose_publishes_the_ports_of_the_image_and_the_dashboard_to_this_machine_only() -> None:
    service = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]["holdfast"]
    assert service["ports"] == ["1883:1883", "8083:8083", "127.0.0.1:18083:18083"]
    assert (service["image"], service["pull_policy"]) == ("holdfast", "never")
    assert re.search(r"-f deploy/Dockerfile -t holdfast \.$", (DEPLOY.parent / "Makefile").read_text(), re.MULTILINE)
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["volumes"] == ["data:/data"]


def test_the_pod_has_the_ports_the_user_and_the_secret_of_the_image() -> None:
    stateful_set, service = yaml.safe_load_all((DEPLOY / "kubernetes.yml").read_text())
    pod = stateful_set["spec"]["template"]["spec"]
    [only] = pod["containers"]
    exposed = re.search(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)
    assert exposed is not None
    ports = {port["name"]: port["containerPort"] for port in only["ports"]}
    assert [str(port) for port in ports.values()] == exposed[1].split()
    assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports
    assert f"USER {pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}\n" in DOCKERFILE
    assert stateful_set["spec"]["replicas"] == 1
    for probe in ("livenessProbe", "readinessProbe"):
        assert only[probe]["httpGet"]["path"] in HEALTH_PATHS
    mounted = {one["name"]: one["mountPath"] for one in only["volumeMounts"]}
    [secret] = [one["secret"]["items"][0]["path"] for one in pod["volumes"] if "secret" in one]
    assert f"{mounted['secrets']}/{secret}" in (DEPLOY / "docker-entrypoint").read_text()


def test_the_image_is_built_from_what_the_build_is_given() -> None:
    given = {line[1:] for line in (DEPLOY.parent / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(?:--\S+ )*(.*)$", DOCKERFILE, re.MULTILINE)]
    assert {Path(name).parts[0] for names in copied for name in names} == given
