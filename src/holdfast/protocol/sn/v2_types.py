"""MQTT-SN 2.0 in numbers: packet types, flags, and the reason codes that MQTT 5 does not have.

The draft has moved its type codes twice; this is the one place that knows them.
"""

from typing import Final

from holdfast.protocol.sn.packets import PUBACK as PUBACK_ACK
from holdfast.protocol.sn.packets import PUBCOMP as PUBCOMP_ACK
from holdfast.protocol.sn.packets import PUBREC as PUBREC_ACK
from holdfast.protocol.sn.packets import PUBREL as PUBREL_ACK
from holdfast.protocol.sn.packets import UNSUBACK as UNSUBACK_ACK

CONNECT: Final = 0x01
CONNACK: Final = 0x02
PUBLISH: Final = 0x03
PUBACK: Final = 0x04
PUBREC: Final = 0x05
PUBREL: Final = 0x06
PUBCOMP: Final = 0x07
SUBSCRIBE: Final = 0x08
SUBACK: Final = 0x09
UNSUBSCRIBE: Final = 0x0A
UNSUBACK: Final = 0x0B
PINGREQ: Final = 0x0C
PINGRESP: Final = 0x0D
DISCONNECT: Final = 0x0E
AUTH: Final = 0x0F
REGISTER: Final = 0x10
REGACK: Final = 0x11
PUBWOS: Final = 0x12
SLEEPREQ: Final = 0x13
SLEEPRESP: Final = 0x14
WAKEUP: Final = 0x15
ADVERTISE: Final = 0x16
SEARCHGW: Final = 0x17
GWINFO: Final = 0x18

PROTOCOL_VERSION: Final = 2
MIN_CONNECT_SIZE: Final = 10
MIN_PACKET_SIZE: Final = 10  # the least that a client may name as its maximum

TOPIC_ALIAS_EXISTS: Final = 0x1A
ONLY_PROTECTED: Final = 0xE6
UNKNOWN_TOPIC_ALIAS: Final = 0xF0
CONGESTION: Final = 0xF1
PROTECTION_NOT_SUPPORTED: Final = 0xF2
NO_VIRTUAL_CONNECTION: Final = 0xF4

# Flags of CONNECT.
SUGGESTIONS_FLAG: Final = 0x40
MOVE_FLAG: Final = 0x20
AWAKE_FLAG: Final = 0x10
EXPIRY_FLAG: Final = 0x08
AUTH_FLAG: Final = 0x04
WILL_FLAG: Final = 0x02
CLEAN_FLAG: Final = 0x01

ACK_TYPES: Final = {
    PUBACK_ACK: PUBACK,
    PUBREC_ACK: PUBREC,
    PUBREL_ACK: PUBREL,
    PUBCOMP_ACK: PUBCOMP,
    UNSUBACK_ACK: UNSUBACK,
}
ACK_KINDS: Final = {
    PUBACK: PUBACK_ACK,
    PUBREC: PUBREC_ACK,
    PUBREL: PUBREL_ACK,
    PUBCOMP: PUBCOMP_ACK,
    UNSUBACK: UNSUBACK_ACK,
}

_PUBLISH_ANSWERS: Final = frozenset((0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x99, 0xF0, 0xF1))
_RELEASES: Final = frozenset((0x00, 0x92))
_EVERYWHERE: Final = frozenset((ONLY_PROTECTED,))

# fmt: off
ALLOWED_REASONS: Final[dict[int, frozenset[int]]] = {
    CONNACK: frozenset((
        0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x9A, 0x9B, 0x9C,
        0x9D, 0x9F, 0xF1,
    )),
    PUBACK: _PUBLISH_ANSWERS,
    PUBREC: _PUBLISH_ANSWERS,
    PUBREL: _RELEASES,
    PUBCOMP: _RELEASES,
    SUBACK: frozenset((0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2, 0xF0, 0xF1)),
    UNSUBACK: frozenset((0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91, 0xF0)),
    REGACK: frozenset((0x00, 0x1A, 0x83, 0x87, 0x91, 0x97, 0xF0, 0xF1)),
    SLEEPRESP: frozenset((0x00, 0x91)),
    AUTH: frozenset((0x00, 0x18, 0x19)),
    DISCONNECT: frozenset((
        0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95, 0x96,
        0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2, 0xE7, 0xE8, 0xF2, 0xF3, 0xF4,
    )),
}
# fmt: on


def is_allowed(kind: int, reason: int) -> bool:
    """Whether a packet of that type may carry that reason code [SN2: 3.2.4-1, 3.6.3.3-1, 3.8.5-1, 3.13.4-1]."""
    return reason in ALLOWED_REASONS[kind] or reason in _EVERYWHERE
