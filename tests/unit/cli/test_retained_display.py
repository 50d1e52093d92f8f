"""What clients chose is shown as text: it neither steers the terminal nor makes a line of its own."""

from typing import Any

import pytest

from holdfast.cli import retained_display
from holdfast.cli.retained_display import escape, print_history, print_messages


def message(topic: str, client_id: str) -> dict[str, Any]:
    return {
        "topic": topic,
        "qos": 0,
        "size": 1,
        "stored_at": None,
        "expires_at": None,
        "publisher": {"client_id": client_id, "protocol": "5.0"},
        "preview": "x",
        "version": 1,
        "outcome": "set",
    }


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("esc/\x1b]0;pwned\x1b[2J", r"esc/\x1b]0;pwned\x1b[2J"),
        ("two\nlines", r"two\nlines"),
        ("bell\x07", r"bell\x07"),
        ("right-to-left\u202eevil", r"right-to-left\u202eevil"),
        ("Küche/温度", "Küche/温度"),
    ],
)
def test_control_characters_are_shown_as_what_they_are(raw: str, shown: str) -> None:
    with retained_display.out.capture() as printed:
        print_messages([message(raw, raw)], False)
        print_history([message("t", raw)])
    text = printed.get()
    assert text.count(shown) == 3
    assert "\x1b" not in text


def test_markup_in_a_topic_is_text() -> None:
    assert escape("[red]x") == r"\[red]x"
