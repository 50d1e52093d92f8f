"""mosquitto_pub, mosquitto_sub and mosquitto_passwd, as shipped by Debian."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from broker_process import Unique
from holdfast.identity.passwords import PasswordFile
from integration.conftest import Everywhere

pytestmark = pytest.mark.skipif(
    shutil.which("mosquitto_pub") is None or shutil.which("mosquitto_sub") is None,
    reason="mosquitto_pub and mosquitto_sub are not installed",
)

VERSIONS = ("31", "311", "5")


class Tools:
    """The two commands, pointed at one transport and version."""

    def __init__(self, everywhere: Everywhere, transport: str, version: str) -> None:
        self.common = ["-h", "localhost", "-p", str(everywhere.port(transport)), "-V", version]
        if transport == "tls":
            self.common += ["--cafile", everywhere.ca]

    def publish(self, topic: str, *arguments: str, stdin: str | None = None) -> None:
        command = ["mosquitto_pub", *self.common, "-t", topic, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}: {done.stderr}"

    def subscribe(self, topic: str, *arguments: str, count: int, timeout: int = 60) -> list[str]:
        """The lines it prints until `count` messages have come."""
        command = ["mosquitto_sub", *self.common, "-t", topic, "-C", str(count), "-W", str(timeout), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}: {done.stderr}{done.stdout}"
        return done.stdout.splitlines()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transport", ["tcp", "tls"])
def test_retained_messages_come_back_through_mosquitto_sub(
    transport: str, version: str, everywhere: Everywhere, unique: Unique
) -> None:
    tools = Tools(everywhere, transport, version)
    for qos in ("0", "1", "2"):
        tools.publish(unique.topic(qos), "-m", f"value {qos}", "-q", qos, "-r")
    lines = tools.subscribe(unique.topic("+"), "-q", "2", "-F", "%t %q %r %p", count=3)
    assert sorted(lines) == [f"{unique.topic(qos)} {qos} 1 value {qos}" for qos in ("0", "1", "2")]


@pytest.mark.parametrize("version", VERSIONS)
def test_live_messages_reach_a_waiting_mosquitto_sub(version: str, everywhere: Everywhere, unique: Unique) -> None:
    tools = Tools(everywhere, "tcp", version)
    # The first retained message shows that the subscription is in place; the live ones follow.
    tools.publish(unique.topic("ready"), "-m", "ready", "-r")
    command = ["mosquitto_sub", *tools.common, "-t", unique.topic("#"), "-q", "1", "-C", "4", "-W", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "ready\n"
        tools.publish(unique.topic("live"), "-l", "-q", "1", stdin="one\ntwo\nthree\n")
        assert waiting.stdout.read().splitlines() == ["one", "two", "three"]
    assert waiting.returncode == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_empty_retained_publish_of_mosquitto_pub_clears(version: str, everywhere: Everywhere, unique: Unique) -> None:
    tools = Tools(everywhere, "tcp", version)
    tools.publish(unique.topic("a"), "-m", "first", "-r")
    tools.publish(unique.topic("b"), "-m", "second", "-r")
    tools.publish(unique.topic("a"), "-n", "-r")
    assert tools.subscribe(unique.topic("+"), "-v", count=1) == [f"{unique.topic('b')} second"]


@pytest.mark.parametrize("version", ["311", "5"])
def test_persistent_session_of_mosquitto_sub_keeps_messages(
    version: str, everywhere: Everywhere, unique: Unique
) -> None:
    tools = Tools(everywhere, "tcp", version)
    keep = ["-i", unique.client("keep"), "-c", "-q", "1"]
    tools.publish(unique.topic(), "-m", "before", "-r", "-q", "1")
    assert tools.subscribe(unique.topic(), *keep, count=1) == ["before"]
    tools.publish(unique.topic(), "-m", "while away", "-q", "1")
    assert "while away" in tools.subscribe(unique.topic(), *keep, count=2)


def test_properties_of_mosquitto_pub_arrive(everywhere: Everywhere, unique: Unique) -> None:
    tools = Tools(everywhere, "tcp", "5")
    tools.publish(
        unique.topic(),
        *("-m", "x", "-r", "-q", "1"),
        *("-D", "publish", "content-type", "text/plain"),
        *("-D", "publish", "response-topic", "answers"),
        *("-D", "publish", "user-property", "name", "value"),
        *("-D", "publish", "message-expiry-interval", "100"),
    )
    (line,) = tools.subscribe(unique.topic(), "-F", "%C|%R|%P|%E|%p", count=1)
    content_type, response_topic, user_property, expiry, payload = line.split("|")
    assert (content_type, response_topic, user_property, payload) == ("text/plain", "answers", "name:value", "x")
    assert 98 <= int(expiry) <= 100


def test_will_of_mosquitto_sub_is_published_when_killed(everywhere: Everywhere, unique: Unique) -> None:
    tools = Tools(everywhere, "tcp", "311")
    tools.publish(unique.topic("ready"), "-m", "ready", "-r")
    command = ["mosquitto_sub", *tools.common, "-t", unique.topic("ready")]
    will = ["--will-topic", unique.topic("will"), "--will-payload", "killed", "--will-retain", "--will-qos", "1"]
    with subprocess.Popen([*command, *will], stdout=subprocess.PIPE, text=True) as doomed:
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == "ready\n"
        doomed.kill()
    assert tools.subscribe(unique.topic("will"), count=1) == ["killed"]


@pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="mosquitto_passwd is not installed")
def test_what_mosquitto_passwd_writes_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "users"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(path), "alice", "wonder land"], check=True, capture_output=True)
    subprocess.run(["mosquitto_passwd", "-b", "-H", "sha512", str(path), "bob", "builder"], check=False)
    users = PasswordFile(path)
    assert users.check("alice", b"wonder land")
    assert not users.check("alice", b"wonder")
    if "bob" in users.users:
        assert users.users["bob"].startswith("$6$")
        assert users.check("bob", b"builder")
