import pytest

from holdfast.problem import shown, without_login, without_secrets


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nats://host:4222", "nats://host:4222"),
        ("nats://bob:hush@host:4222", "nats://bob:(hidden)@host:4222"),
        ("nats://:hush@host", "nats://:(hidden)@host"),
        ("nats://hush@host:4222", "nats://(hidden)@host:4222"),
        ("nats://bob:hu@sh@host", "nats://bob:(hidden)@host"),
        ("nats://bob:hu/sh@host", "nats://bob:(hidden)@host"),
        ("nats://a:hush@one,nats://b:hush@two", "nats://a:(hidden)@one,nats://b:(hidden)@two"),
        ("no answer from mqtt://a:hush@one today", "no answer from mqtt://a:(hidden)@one today"),
        ("https://store/c?sv=1&sig=hush&se=2", "https://store/c?sv=1&sig=(hidden)&se=2"),
        ("abfss://container@account.example/path", "abfss://container@account.example/path"),
        ("tls://127.0.0.1:8883?key=/etc/key.pem", "tls://127.0.0.1:8883?key=/etc/key.pem"),
    ],
)
def test_a_login_in_a_url_is_not_shown(url: str, expected: str) -> None:
    assert without_login(url) == expected


def test_what_stands_under_the_name_of_a_secret_is_not_shown() -> None:
    told = {"password": "hush", "password_file": "/etc/pw", "address": ["mqtt://a:hush@host"], "more": {"Token": 7}}
    assert without_secrets(told) == {
        "password": "(hidden)",
        "password_file": "/etc/pw",
        "address": ["mqtt://a:(hidden)@host"],
        "more": {"Token": "(hidden)"},
    }
    assert shown("hush", "auth.password") == '"(hidden)"'
    assert shown(["hush"], "tokens") == '["(hidden)"]'
    assert shown("hush", "auth.password_file") == '"hush"'
