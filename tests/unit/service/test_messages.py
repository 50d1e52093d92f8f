"""Messages as JSON: what is shown of payloads and properties."""

import pytest

from holdfast.broker.message import Message, Publisher, topic_field
from holdfast.service.messages import decode_forwarded, iso, preview_of, whole_of


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"", ""),
        (b"text", "text"),
        (b"\xff", None),
        (b"text\xff", None),
        (b"x" * 10_000, "x" * 160),
        ("ü".encode() * 10_000, "ü" * 160),
        ("a" + "😀" * 10_000, "a" + "😀" * 159),
        (b"x" * 638 + b"\xff" * 10, "x" * 160),  # what is beyond the preview may be anything
        (b"\xff" + b"x" * 10_000, None),
    ],
)
def test_a_preview_is_the_beginning_of_a_text(payload: bytes | str, expected: str | None) -> None:
    assert preview_of(payload if isinstance(payload, bytes) else payload.encode()) == expected


def test_properties_that_cannot_be_read_are_left_out() -> None:
    assert decode_forwarded(b"\x03\xff").content_type is None
    message = Message(topic_field(b"t"), b"\xff", 0, True, b"\x03\xff", Publisher("c", "u", "5.0"), 7, 1, 0, False)
    shown = whole_of(message)
    assert (shown["content_type"], shown["text"], shown["payload"], shown["expires_at"]) == (None, None, "/w==", None)


def test_times_are_told_in_utc_to_the_millisecond() -> None:
    assert iso(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
