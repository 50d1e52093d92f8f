import pytest

from holdfast.protocol.mqtt import reasons
from holdfast.protocol.mqtt.packets import AUTH, CONNACK, DISCONNECT, PUBACK, PUBCOMP, PUBREC, PUBREL, SUBACK, UNSUBACK


def test_every_reason_has_a_name() -> None:
    codes = set().union(*reasons.ALLOWED_REASONS.values())
    assert len(codes) == 43
    assert not [code for code in codes if reasons.reason_name(code).startswith("unknown")]
    assert reasons.reason_name(0x87) == "not authorized"
    assert reasons.reason_name(0x55) == "unknown reason 0x55"


def test_every_constant_is_a_known_reason() -> None:
    constants = {name: value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, int)}
    assert constants["NOT_AUTHORIZED"] == 0x87
    for name, value in constants.items():
        if not name.endswith("_311"):
            assert not reasons.reason_name(value).startswith("unknown"), name


@pytest.mark.parametrize(
    ("kind", "allowed", "refused"),
    [
        (CONNACK, 0x84, 0x8D),
        (PUBACK, 0x10, 0x92),
        (PUBREC, 0x97, 0x92),
        (PUBREL, 0x92, 0x10),
        (PUBCOMP, 0x92, 0x80),
        (SUBACK, 0x02, 0x11),
        (UNSUBACK, 0x11, 0x01),
        (DISCONNECT, 0x04, 0x18),
        (AUTH, 0x19, 0x04),
    ],
)
def test_packets_carry_their_own_reasons_only(kind: int, allowed: int, refused: int) -> None:
    assert reasons.is_allowed(kind, 0x00)
    assert reasons.is_allowed(kind, allowed)
    assert not reasons.is_allowed(kind, refused)


@pytest.mark.parametrize(
    ("reason", "code"),
    [(0x00, 0), (0x84, 1), (0x85, 2), (0x88, 3), (0x89, 3), (0x86, 4), (0x87, 5), (0x8C, 5), (0x82, -1), (0x95, -1)],
)
def test_reason_as_a_return_code_of_311(reason: int, code: int) -> None:
    assert reasons.return_code_311(reason) == code


def test_return_codes_have_names() -> None:
    assert [reasons.return_code_name(code) for code in (0, 2, 5)] == [
        "accepted",
        "identifier rejected",
        "not authorized",
    ]
    assert reasons.return_code_name(9) == "unknown return code 0x09"
