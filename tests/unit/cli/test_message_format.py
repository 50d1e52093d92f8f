import json
import re

import pytest

from holdfast.cli.message_format import Moment, PayloadNotJson, compile_format, render
from holdfast.errors import UsageError
from holdfast.protocol.mqtt.packets import Publish
from holdfast.protocol.mqtt.properties import Properties


def message(payload: bytes = b"hello", qos: int = 1, retain: bool = True, **fields: object) -> Publish:
    properties = None
    if fields:
        properties = Properties()
        for name, value in fields.items():
            setattr(properties, name, value)
    return Publish(b"home/lamp", payload, qos, retain, False, 7 if qos else 0, properties)


def show(template: str, publish: Publish | None = None, pretty: bool = False) -> bytes:
    return render(compile_format(template, pretty), publish or message(), Moment())


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("%t %p", b"home/lamp hello"),
        ("%q%r%l%m", b"1157"),
        ("%x %X", b"68656c6c6f 68656C6C6F"),
        ("100%% @@ \\\\", b"100% @ \\"),
        ("a\\nb\\0\\e[0m\\a", b"a\nb\0\033[0m\a"),
        ("%12t|%-12t|", b"   home/lamp|home/lamp   |"),
        ("%.4t|%6.4t|%-6.4t|", b"home|  home|home  |"),
        ("%05l|%-05l|%5l|", b"00005|5    |    5|"),
        ("%7p|%-7p|%07p|%3p|", b"  hello|hello  |  hello|hello|"),
        ("%012x|%.2x", b"0068656c6c6f|68656c6c6f"),
        ("", b""),
        ("plain ä", "plain ä".encode()),
    ],
)
def test_format_prints(template: str, line: bytes) -> None:
    assert show(template) == line


def test_properties_print_and_absent_ones_are_empty() -> None:
    full = message(
        topic_alias=3,
        content_type="text/plain",
        correlation_data=b"\xff",
        message_expiry=9,
        payload_format=1,
        response_topic=b"answer",
        subscription_ids=[4, 5],
        user_properties=[("k", "v"), ("k", "w")],
    )
    assert show("%A|%C|%D|%E|%F|%R|%S|%P", full) == b"3|text/plain|\xff|9|1|answer|4 5|k:v k:w"
    assert show("%A|%C|%D|%E|%F|%R|%S|%P") == b"|||||||"
    assert show("%04E|%.3C|", full) == b"0009|tex|"


def test_times() -> None:
    assert re.fullmatch(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", show("%I"))
    assert re.fullmatch(rb"\d{10}\.\d{9}", show("%U"))
    assert re.fullmatch(rb"\d{4}-\d\d \d{9}", show("@Y-@m @N"))
    whole, fraction = show("%U @N").split()
    assert whole.endswith(b"." + fraction)


def test_json_tells_the_message() -> None:
    fields = json.loads(show("%j"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}[+-]\d{4}", fields.pop("tst"))
    assert fields == {"topic": "home/lamp", "qos": 1, "retain": 1, "payloadlen": 5, "mid": 7, "payload": "hello"}
    assert "mid" not in json.loads(show("%j", message(qos=0)))


def test_json_tells_the_properties() -> None:
    fields = json.loads(
        show(
            "%j", message(content_type="c", subscription_ids=[4], user_properties=[("a", "1"), ("b", "2"), ("a", "3")])
        )
    )
    assert fields["properties"] == {
        "content-type": "c",
        "subscription-identifier": 4,
        "user-properties": {"a": ["1", "3"], "b": "2"},
    }


def test_json_with_a_payload_of_json() -> None:
    assert json.loads(show("%J", message(b'{"a":[1]}')))["payload"] == {"a": [1]}
    assert json.loads(show("%J", message(b"")))["payload"] is None
    with pytest.raises(PayloadNotJson, match="home/lamp is not JSON"):
        show("%J", message(b"hello"))
    with pytest.raises(PayloadNotJson):
        show("%J", message(b"\xff"))


def test_json_of_bytes_that_are_no_text_is_still_json() -> None:
    fields = json.loads(show("%j", message(b"\xff\x00")))
    assert (fields["payload"], fields["payloadlen"]) == ("�\0", 2)


def test_pretty_json_has_lines() -> None:
    assert show("%j", pretty=True).startswith(b'{\n  "tst"')


@pytest.mark.parametrize(
    ("template", "message_part"),
    [
        ("%z", "%z does not exist"),
        ("%", "at the end"),
        ("%-5", "at the end"),
        ("\\q", "not an escape"),
        ("a@", "@ stands"),
    ],
)
def test_unknown_sequence_is_refused_before_anything_is_printed(template: str, message_part: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message_part)):
        compile_format(template)
