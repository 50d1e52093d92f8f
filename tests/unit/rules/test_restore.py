"""When a message of the past is put back, by the rule itself and by the service's reading of messages."""

import pytest

from holdfast.broker.message import Message, Publisher, topic_field
from holdfast.protocol.mqtt.properties import Properties
from holdfast.rules.restore import NEVER, seconds_left, verdict
from holdfast.service.messages import encode_forwarded, same_content
from rule_cases import CONTENT, NOW_MS, RESTORES, SECONDS_LEFT, RestoreCase


def message(fields: dict[str, object]) -> Message:
    properties = Properties()
    for name in ("content_type", "correlation_data", "payload_format", "user_properties"):
        setattr(properties, name, fields[name] if fields[name] != [] else None)
    properties.response_topic = str(fields["response_topic"]).encode()
    payload, qos = fields["payload"], fields["qos"]
    assert isinstance(payload, bytes)
    assert isinstance(qos, int)
    someone = Publisher("", "", "5.0")
    return Message(topic_field(b"t"), payload, qos, True, encode_forwarded(properties), someone, 1, 0, 0, False)


@pytest.mark.parametrize("case", RESTORES, ids=lambda case: case.name)
def test_the_verdict_on_a_message_of_the_past(case: RestoreCase) -> None:
    same = case.present and same_content(message(CONTENT), message({**CONTENT, **case.changed}))
    expires_at_ms = 0 if case.left_ms is None else NOW_MS + case.left_ms
    assert verdict(expires_at_ms, same, case.present, False, NOW_MS) == case.verdict
    assert verdict(expires_at_ms, same, case.present, True, NOW_MS) == case.replacing


@pytest.mark.parametrize(("left_ms", "expected"), SECONDS_LEFT)
def test_time_left_is_rounded_up_to_whole_seconds(left_ms: int, expected: int) -> None:
    assert seconds_left(NOW_MS + left_ms, NOW_MS) == expected


def test_a_message_without_an_end_is_put_back_without_one() -> None:
    assert seconds_left(0, NOW_MS) == NEVER


def test_the_same_properties_in_another_order_of_the_packet_are_the_same() -> None:
    content_type, payload_format = b"\x03\x00\x01a", b"\x01\x01"
    someone = Publisher("", "", "5.0")

    def carrying(properties: bytes) -> Message:
        return Message(topic_field(b"t"), b"1", 0, True, properties, someone, 1, 0, 0, False)

    assert same_content(carrying(content_type + payload_format), carrying(payload_format + content_type))
    assert not same_content(carrying(content_type), carrying(content_type + payload_format))
