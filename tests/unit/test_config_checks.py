from pathlib import Path

import pytest

from holdfast.config import ConfigError, load
from holdfast.config.checks import exposed_secrets, unanswered


def problems(*assignments: str, listen: list[str] | None = None) -> list[str]:
    try:
        load(listen=listen or [], assignments=assignments, environ={})
    except ConfigError as error:
        return str(error).splitlines()
    return []


def test_the_defaults_have_no_problem() -> None:
    assert problems() == []


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.7", "broker.example.org"])
def test_an_open_listener_without_login_is_refused(host: str) -> None:
    (problem,) = problems(listen=[f"tcp://{host}:1883"])
    assert problem.startswith(f"listen (--listen): tcp://{host}:1883 can be reached from other machines")


def test_an_open_listener_starts_when_anonymous_access_is_written_down() -> None:
    assert problems("auth.allow_anonymous=true", listen=["tcp://0.0.0.0:1883"]) == []
    assert problems(listen=["tcp://0.0.0.0:1883?allow_anonymous=true"]) == []


def test_writing_it_for_one_listener_does_not_open_another() -> None:
    found = problems(listen=["tcp://0.0.0.0:1883?allow_anonymous=true", "ws://0.0.0.0:8083"])
    assert [problem.split(" ")[2] for problem in found] == ["ws://0.0.0.0:8083"]


def test_an_open_listener_starts_with_a_password_file(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("")
    assert problems(f"auth.password_file={passwords}", listen=["tcp://0.0.0.0:1883"]) == []


def test_a_tls_listener_needs_certificate_and_key() -> None:
    (problem,) = problems(listen=["tls://127.0.0.1:0"])
    assert "expected tls.cert, got none" in problem


def test_client_certificates_need_an_authority(tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("")
    given = [f"tls.cert={tmp_path}/cert.pem", f"tls.key={tmp_path}/key.pem"]
    assert problems(*given, listen=["tls://127.0.0.1:0"]) == []
    (problem,) = problems(*given, "tls.require_client_certificate=true", listen=["tls://127.0.0.1:0"])
    assert "expected tls.ca to check them, got none" in problem


@pytest.mark.parametrize("key", ["tls.cert", "tls.key", "tls.ca", "auth.password_file"])
def test_a_named_file_that_is_not_there_is_refused(key: str, tmp_path: Path) -> None:
    (problem,) = problems(f"{key}={tmp_path}/absent")
    assert problem == f"{key} (--set): cannot read {tmp_path}/absent: no such file or directory"


def test_a_file_named_in_a_url_must_be_there(tmp_path: Path) -> None:
    found = problems(listen=[f"tls://127.0.0.1:0?cert={tmp_path}/c&key={tmp_path}/k"])
    assert len(found) == 2
    assert all(problem.startswith("listen (--listen): cannot read ") for problem in found)


def test_the_same_address_twice_is_refused_and_port_zero_is_not() -> None:
    (problem,) = problems(listen=["tcp://127.0.0.1:1883", "ws://127.0.0.1:1883"])
    assert "already in the list" in problem
    assert problems(listen=["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"]) == []
    assert problems(listen=["tcp://127.0.0.1:1884", "udp://127.0.0.1:1884"]) == []


def test_the_data_folder_must_not_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    (problem,) = problems(f"data={tmp_path}/data")
    assert problem == f"data (--set): expected a folder, got the file {tmp_path}/data"


@pytest.mark.parametrize("key", ["limits.connect_timeout", "history.flush_interval"])
def test_times_that_must_pass_are_not_zero(key: str) -> None:
    (problem,) = problems(f"{key}=0")
    assert problem.startswith(f"{key} (--set): expected more than 0")


def test_a_secret_that_everybody_can_read_is_named(tmp_path: Path) -> None:
    names = ["users", "keys", "secret", "jwt", "tls.key", "cert", "nats"]
    for name in names:
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o644)
    assignments = [
        f"auth.password_file={tmp_path}/users",
        f"api.key_file={tmp_path}/keys",
        f"callback.secret_file={tmp_path}/secret",
        f"jwt.key_file={tmp_path}/jwt",
        f"tls.cert={tmp_path}/cert",
        f"tls.key={tmp_path}/tls.key",
    ]

    def exposed(*more: str) -> list[str]:
        listen = ["tls://127.0.0.1:8883", "wss://127.0.0.1:8084"]
        return [key for key, _ in exposed_secrets(load(None, listen, None, [*assignments, *more], {}).settings)]

    assert exposed() == ["auth.password_file", "api.key_file", "callback.secret_file", "tls.key"]
    assert "jwt.key_file" in exposed("jwt.algorithms=HS256"), "a secret, and no public key"
    for key in ("password_file", "token_file", "credentials_file", "nkey_file", "key"):
        assert exposed(f"cluster.{key}={tmp_path}/nats")[-1] == f"cluster.{key}"
    for name in names:
        (tmp_path / name).chmod(0o640)
    assert exposed("jwt.algorithms=HS256") == []


def unanswered_of(*assignments: str, listen: list[str] | None = None) -> list[tuple[str, str]]:
    return list(unanswered(load(listen=listen or [], assignments=assignments, environ={}).settings))


def test_an_open_dashboard_that_answers_this_machine_only_says_so() -> None:
    [(key, message)] = unanswered_of("auth.allow_anonymous=true", listen=["http://0.0.0.0:18083"])
    assert key == "listen"
    assert "answer this machine only until there is api.key_file or auth.password_file" in message
    (problem,) = problems(listen=["http://0.0.0.0:18083"])
    assert "allow_anonymous" not in problem
    assert unanswered_of() == []


def test_users_without_an_administrator_are_told_that_nobody_sees_everything(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("")
    [(key, _)] = unanswered_of(f"auth.password_file={passwords}")
    assert key == "api.admins"
    assert unanswered_of(f"auth.password_file={passwords}", "api.admins=alice") == []
    assert unanswered_of(f"auth.password_file={passwords}", listen=["tcp://127.0.0.1:1883"]) == []


@pytest.mark.parametrize(
    ("name", "told"),
    [("", "expected a unique name"), ("a b", "expected letters"), ("n" * 65, "got 65 characters, expected at most 64")],
)
def test_a_node_has_a_name_that_fits_into_the_log(name: str, told: str) -> None:
    (problem,) = problems("cluster.url=nats://127.0.0.1:4222", f"cluster.node={name}")
    assert told in problem
    assert problems("cluster.url=nats://127.0.0.1:4222", "cluster.node=" + "n" * 64) == []


@pytest.mark.parametrize("told", ['notification_topic = "a/#"', 'client_id = "a+"'])
def test_a_bridge_says_its_state_in_a_topic_that_is_one(told: str) -> None:
    """Clients that are sent a topic with a wildcard in it hang up."""
    bridge = '[{{name = "b", address = "mqtt://h", topic = "#", {}}}]'
    (problem,) = problems(f"bridge={bridge.format(told)}")
    assert "without wildcards" in problem
    assert problems(f"bridge={bridge.format(told)[:-2]}, notifications = false}}]") == []
