"""A configuration that cannot be read, or names what is not there, lets nobody in (CVE-2018-12550 and its kin)."""

from collections.abc import Callable
from pathlib import Path

import pytest

import wire
from command_line import holdfast
from guarded import Guarded
from wire import ConnAck, Publish

Start = Callable[..., Guarded]


def outcome(folder: Path, config: str, listen: str = "tcp://127.0.0.1:0") -> tuple[object, str]:
    """Start a broker that must not start; its exit code and what it said."""
    path = folder / "holdfast.toml"
    path.write_text(config.replace("FOLDER", str(folder)))
    done = holdfast("serve", "--data", str(folder / "data"), "--listen", listen, "--config", str(path))
    return done.returncode, done.stdout + done.stderr


BAD = {
    "password file that is not there": '[auth]\npassword_file = "FOLDER/nowhere"\n',
    "password file without hashes": '[auth]\npassword_file = "FOLDER/plain"\n',
    "access file that is not there": '[auth]\naccess_file = "FOLDER/nowhere"\n',
    "access file with a misspelt word": '[auth]\naccess_file = "FOLDER/misspelt"\n',
    "access file that is not text": '[auth]\naccess_file = "FOLDER/binary"\n',
    "misspelt section": '[auht]\npassword_file = "FOLDER/plain"\n',
    "misspelt key": '[auth]\npasword_file = "FOLDER/plain"\n',
    "not TOML": "[auth\n",
    "rule without a filter": '[[access]]\npermission = "allow"\naction = "all"\n',
    "rule for a group that is not there": (
        '[[access]]\npermission = "allow"\naction = "all"\nfilter = "#"\ngroup = "nobody"\n'
    ),
    "token key that is not there": '[jwt]\nkey_file = "FOLDER/nowhere"\n',
    "token key that is none": '[jwt]\nkey_file = "FOLDER/plain"\n',
    "secret and public key at once": '[jwt]\nkey_file = "FOLDER/plain"\nalgorithms = ["HS256", "RS256"]\n',
    "revocation list that is not there": '[tls]\ncrl = "FOLDER/nowhere"\n',
}


@pytest.mark.parametrize("name", BAD)
def test_a_broker_with_a_broken_configuration_does_not_start(tmp_path: Path, name: str) -> None:
    (tmp_path / "plain").write_text("alice:hunter2\n")
    (tmp_path / "misspelt").write_text("user alice\ntpoic deny #\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01")
    code, said = outcome(tmp_path, BAD[name])
    assert code != 0
    assert "listening" not in said
    assert "Traceback" not in said
    assert "hunter2" not in said


@pytest.mark.parametrize("listen", ["tcp://0.0.0.0:0", "ws://0.0.0.0:0", "udp://0.0.0.0:0", "http://0.0.0.0:0"])
def test_a_listener_open_to_the_network_without_logins_does_not_start(tmp_path: Path, listen: str) -> None:
    code, said = outcome(tmp_path, "", listen)
    assert code != 0
    assert "requires no login" in said


@pytest.mark.parametrize("rules", ["", "# nothing\n"])
def test_an_empty_access_file_allows_nothing(guarded: Start, rules: str) -> None:
    site = guarded(rules)
    writer, reader = site.enter("owner"), site.enter("guest")
    reader.subscribe("#", check=False)
    assert writer.publish("a", b"1", qos=1, check=False).reason == 0x87  # type: ignore[union-attr]
    reader.expect_no_message()


def test_an_empty_password_file_lets_nobody_in(guarded: Start) -> None:
    site = guarded()
    (site.folder / "users").write_text("")
    site.reload("reloaded certificates")
    for username, password in (("owner", b"owner's"), ("", b""), (None, None)):
        client = site.open(5)
        client.send(wire.connect("x", version=5, username=username, password=password))
        assert client.expect(ConnAck).code >= 0x86


@pytest.mark.parametrize("broken", ["user guest\ntpoic deny #\n", "topic reed #\n", None], ids=["word", "kind", "gone"])
def test_rules_that_cannot_be_reloaded_leave_the_old_ones_in_force(guarded: Start, broken: str | None) -> None:
    """CVE-2018-12551 and CVE-2017-7652: a reload that fails must not end with fewer rules than before."""
    site = guarded("user owner\ntopic readwrite #\nuser guest\ntopic read open/#\n")
    spy, writer = site.enter("guest"), site.enter("owner")
    spy.subscribe("#")
    if broken is None:
        site.rules.unlink()
    else:
        site.rules.write_text(broken)
    site.reload("reload failed, nothing was changed")
    writer.publish("closed", b"1", qos=1)
    writer.publish("open/1", b"1", qos=1)
    spy.expect(Publish, topic="open/1")
    spy.expect_no_message()
    assert site.enter("guest").publish("x", b"1", qos=1, check=False).reason == 0x87  # type: ignore[union-attr]


def test_users_that_cannot_be_reloaded_stay_the_old_ones(guarded: Start) -> None:
    site = guarded()
    (site.folder / "users").write_text("intruder:plain\n")
    site.reload("reload failed, nothing was changed")
    site.enter("owner")
    client = site.open(5)
    client.send(wire.connect("x", version=5, username="intruder", password=b"plain"))
    assert client.expect(ConnAck).code == 0x86
