"""What a client tells of a refusal: its name once, and what the server adds to it."""

import pytest

from holdfast.client.connection import explained
from holdfast.protocol.mqtt.properties import Properties


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (None, "not authorized"),
        ("", "not authorized"),
        ("not authorized", "not authorized"),
        ("Not authorized", "not authorized"),
        ("the address is banned", "not authorized (the address is banned)"),
    ],
)
def test_a_reason_is_said_once_with_what_is_new_about_it(told: str | None, shown: str) -> None:
    properties = Properties()
    properties.reason_string = told
    assert explained("not authorized", properties) == shown
    assert explained("not authorized", None) == "not authorized"
