"""The login service, asked over real HTTP on loopback."""

import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.identity.callback import Callback
from login_service import Service

PATIENCE_S = 60.0


def ask(callback: Callback, password: bytes = b"secret", username: str = "alice", address: str = "10.0.0.1:5") -> Any:
    return callback.ask("c1", username, password, address)


def test_a_login_that_the_service_allows_is_good(service: Service) -> None:
    assert ask(Callback(service.url, PATIENCE_S, 0, None)).allow
    assert service.asked == [{"client_id": "c1", "username": "alice", "password": "secret", "address": "10.0.0.1:5"}]


def test_a_login_that_the_service_denies_is_not(service: Service) -> None:
    service.body = b'{"result": "deny"}'
    answer = ask(Callback(service.url, PATIENCE_S, 0, None))
    assert not answer.allow
    assert answer.trouble == ""


def test_the_service_may_say_who_it_is_and_for_how_long(service: Service) -> None:
    service.body = b'{"result": "allow", "username": "Alice", "expires_in": 2.5}'
    answer = ask(Callback(service.url, PATIENCE_S, 60, None))
    assert (answer.username, answer.expires_in_s) == ("Alice", 2.5)


BAD_ANSWERS: list[tuple[int, bytes]] = [
    (500, b'{"result": "allow"}'),
    (204, b""),
    (302, b'{"result": "allow"}'),
    (401, b""),
    (200, b""),
    (200, b"allow"),
    (200, b"true"),
    (200, b'{"result": true}'),
    (200, b'{"result": "ALLOW"}'),
    (200, b'{"allow": true}'),
    (200, b'["allow"]'),
    (200, b'{"result": "allow", "username": 7}'),
    (200, b'{"result": "allow", "expires_in": -1}'),
    (200, b'{"result": "allow", "expires_in": NaN}'),
    (200, b'{"result": "allow", "x": "' + b"y" * 100_000 + b'"}'),
]


@pytest.mark.parametrize(("status", "body"), BAD_ANSWERS)
def test_an_answer_that_makes_no_sense_lets_nobody_in(service: Service, status: int, body: bytes) -> None:
    service.status, service.body = status, body
    service.headers = {"Location": service.url} if status == 302 else {}
    answer = ask(Callback(service.url, PATIENCE_S, 60, None))
    assert not answer.allow
    assert answer.trouble
    assert len(service.asked) == 1


def test_a_service_that_is_slow_or_gone_lets_nobody_in(service: Service) -> None:
    service.delay_s = PATIENCE_S
    answer = ask(Callback(service.url, 0.2, 60, None))
    assert not answer.allow, "it would have said yes, later"
    gone = Callback("http://127.0.0.1:1/login", 0.5, 60, None)
    assert not ask(gone).allow
    assert ask(gone).trouble


def test_answers_are_remembered_for_exactly_what_was_asked(service: Service) -> None:
    callback = Callback(service.url, PATIENCE_S, 60, None)
    for _ in range(3):
        assert ask(callback).allow
    assert ask(callback, address="10.0.0.1:777").allow  # a new connection from the same place
    assert len(service.asked) == 1
    service.body = b'{"result": "deny"}'
    assert not ask(callback, password=b"other").allow
    assert not ask(callback, username="bob").allow
    assert not ask(callback, address="10.0.0.2:5").allow
    assert len(service.asked) == 4


def test_answers_are_forgotten_in_time(service: Service) -> None:
    callback = Callback(service.url, PATIENCE_S, 0.05, None)
    assert ask(callback).allow
    time.sleep(0.1)
    service.body = b'{"result": "deny"}'
    assert not ask(callback).allow


def test_no_password_is_kept_in_memory(service: Service) -> None:
    callback = Callback(service.url, PATIENCE_S, 60, None)
    ask(callback, password=b"hunter2-hunter2")
    assert "hunter2" not in repr(callback.remembered)


def test_the_service_is_told_who_asks(service: Service, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("open-sesame\n")
    ask(Callback(service.url, PATIENCE_S, 0, secret))
    assert service.authorization == ["Bearer open-sesame"]


@pytest.mark.parametrize("content", ["", "two words", "line\nline", "x\r\nEvil: 1"])
def test_a_secret_that_would_break_the_header_is_refused(content: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(content)
    with pytest.raises(ConfigError):
        Callback("http://127.0.0.1:1/", 1, 0, secret)


def test_a_user_name_cannot_add_to_the_question(service: Service) -> None:
    ask(Callback(service.url, PATIENCE_S, 0, None), username='x", "result": "allow\r\nX: 1')
    assert service.asked[0]["username"] == 'x", "result": "allow\r\nX: 1'
