import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from holdfast import diagnostics


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    logger = logging.getLogger("holdfast")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before[0], before[1], before[2]


def written(style: str, text: str, **fields: object) -> str:
    stream = io.StringIO()
    diagnostics.configure("info", style, stream)
    logging.getLogger("holdfast.net").info(text, extra=fields)
    return stream.getvalue()


def test_text_is_time_level_event_and_pairs() -> None:
    line = written("text", "client connected", client_id="sensor-1", port=1883, tls=False)
    time, rest = line.rstrip("\n").split(" ", 1)
    assert time.endswith("Z")
    assert rest == "info    client connected client_id=sensor-1 port=1883 tls=false"


def test_json_is_one_object_per_line() -> None:
    line = written("json", "client connected", client_id="sensor-1", port=1883)
    document = json.loads(line)
    assert document["event"] == "client connected"
    assert (document["level"], document["logger"]) == ("info", "holdfast.net")
    assert (document["client_id"], document["port"]) == ("sensor-1", 1883)


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize("hostile", ["a\nb", "a\r\nb", "x level=error", 'q"uote', "\x1b[31m", "\u2028", "", b"\xff\n"])
def test_what_a_client_chose_cannot_forge_a_line_or_a_field(style: str, hostile: str | bytes) -> None:
    output = written(style, "client connected", client_id=hostile, end="yes")
    assert output.count("\n") == 1
    assert output.endswith("\n")
    assert output[:-1].isprintable()
    if style == "text":
        assert output.endswith(" end=yes\n")
        value = output.split("client_id=", 1)[1].removesuffix(" end=yes\n")
        assert json.loads(value) == diagnostics.text_of(hostile)


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize("name", ["password", "api_token", "client_secret", "Authorization"])
def test_secrets_are_never_written(style: str, name: str) -> None:
    output = written(style, "login refused", **{name: "hunter2"})
    assert "hunter2" not in output
    assert "***" in output


@pytest.mark.parametrize("style", ["text", "json"])
def test_an_exception_is_one_line_with_its_traceback(style: str) -> None:
    stream = io.StringIO()
    diagnostics.configure("info", style, stream)
    try:
        raise ValueError("expected 1, got 2")
    except ValueError:
        logging.getLogger("holdfast").exception("connection failed")
    output = stream.getvalue()
    assert output.count("\n") == 1
    assert "ValueError: expected 1, got 2" in output
    assert "test_diagnostics.py" in output


def test_a_field_does_not_replace_one_of_ours() -> None:
    document = json.loads(written("json", "reloaded", event="x", time="y"))
    assert document["event"] == "reloaded"
    assert (document["event_"], document["time_"]) == ("x", "y")


def test_events_below_the_level_are_left_out_and_the_level_can_change() -> None:
    stream = io.StringIO()
    diagnostics.configure("warning", "text", stream)
    log = logging.getLogger("holdfast.broker")
    log.info("quiet")
    diagnostics.configure("info", "text", stream)
    log.info("loud")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("loud")


@pytest.mark.parametrize(
    "text",
    [
        "1', expected an offset client_id=admin address=10.0.0.1 x='",
        'x" client_id="admin',
        "a=b",
        "line\nbreak",
        "escape \x1b[2J",
        "back\\slash",
        "separator\u2028here",
    ],
)
def test_what_a_client_says_forges_no_field_and_no_line(text: str) -> None:
    for event, extra in ((f"protocol error: it is {text}", {}), ("protocol error", {"error": text})):
        line = written("text", event, **extra)
        assert line.count("\n") == 1
        unquoted = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line.rstrip("\n"))
        assert "client_id" not in unquoted
        assert "\x1b" not in line
        assert [part for part in unquoted.split() if "=" in part] == (['error=""'] if extra else [])
