"""Which version a datagram speaks. The two share type codes and give them other meanings, so size, type and version
byte are looked at together.
"""

from typing import Final

from holdfast.protocol.sn import v2_types as v2
from holdfast.protocol.sn import v12
from holdfast.protocol.sn.frame import head_size, stated_size

DROP: Final = 0
# Recognised whatever the peer spoke before: it may have got new firmware.
CONNECT_12: Final = 1
CONNECT_2: Final = 2
# What a peer that is bound to no version may send besides.
SEARCH_12: Final = 3
SEARCH_2: Final = 4
WITHOUT_CONNECTION_12: Final = 5  # PUBLISH at QoS -1
WITHOUT_SESSION_2: Final = 6  # PUBWOS
LEAVE_12: Final = 7  # DISCONNECT
OTHER_12: Final = 8
OTHER_2: Final = 9

# Messages of 1.2 whose code 2.0 has for another packet that a client sends, by that packet: their one size tells them.
SIZES_12: Final = {
    v2.PUBREC: 3,  # CONNACK
    v2.PUBREL: 2,  # WILLTOPICREQ
    v2.SUBSCRIBE: 2,  # WILLMSGREQ
    v2.AUTH: 4,  # PUBREC
    v2.REGISTER: 4,  # PUBREL
    v2.SLEEPREQ: 8,  # SUBACK
}
# Messages of 1.2 whose code 2.0 does not have, or only for a server's packet. WILLTOPIC is the exception: a PUBCOMP of
# 2.0 can look the same. 1.2 asks for an answer there, 2.0 does not.
TYPES_12: Final = frozenset(
    (
        v12.WILLTOPIC,
        v12.WILLMSG,
        v12.REGACK,
        v12.PUBACK,
        v12.UNSUBSCRIBE,
        v12.UNSUBACK_TYPE,
        v12.WILLTOPICUPD,
        v12.WILLTOPICRESP,
        v12.WILLMSGUPD,
        v12.WILLMSGRESP,
    )
)


def is_connect(data: bytes) -> int:
    """Return CONNECT_12, CONNECT_2 or DROP."""
    head = head_size(data)
    if head == 0:
        return DROP
    shift = head - 1
    kind = data[head]
    size = len(data) - shift  # as if the length had one byte
    if kind == v12.CONNECT:
        return CONNECT_12 if size >= 7 and data[shift + 3] == v12.PROTOCOL_ID else DROP
    if kind == v2.CONNECT and size >= v2.MIN_CONNECT_SIZE and data[shift + 2] & 0x80 == 0:
        version_at = shift + 5 + (1 if data[shift + 2] & v2.WILL_FLAG else 0)
        if data[version_at] == v2.PROTOCOL_VERSION:
            return CONNECT_2
    return DROP


def classify(data: bytes) -> int:
    """Return what a datagram from an address without a virtual connection is, as one of the codes above."""
    head = head_size(data)
    if head == 0 or stated_size(data) != len(data):
        return DROP
    shift = head - 1
    kind = data[head]
    size = len(data) - shift
    if kind == 0x01:
        if size == 3:
            return SEARCH_12
        return CONNECT_2 if size >= v2.MIN_CONNECT_SIZE else DROP
    if kind == 0x04:
        if size >= 7:
            return CONNECT_12
        return OTHER_2 if size in (4, 5) else DROP
    if kind == 0x0C:
        if size == 4:
            return OTHER_2
        if size < 7:
            return DROP
        return WITHOUT_CONNECTION_12 if data[shift + 2] & 0x60 == 0x60 else OTHER_12
    if kind == 0x12:
        if size >= 5 and data[shift + 2] & 0xEC == 0 and data[shift + 2] & 3 in (1, 3):
            return WITHOUT_SESSION_2
        return OTHER_12
    if kind == 0x16:
        return OTHER_12
    if kind == 0x17:
        return SEARCH_2
    if kind == 0x18:
        return LEAVE_12 if size in (2, 4) else DROP
    if kind == 0x0A:
        # By its flags an UNSUBSCRIBE of 2.0; in a client's REGISTER a topic id of 0 begins here.
        return OTHER_2 if size > 2 and data[shift + 2] in (1, 3) else OTHER_12
    if kind == 0x0E:
        # PUBCOMP, or the DISCONNECT of 2.0 that gives a reason: that is never answered.
        return OTHER_12 if size == 4 and data[shift + 2] != 4 else DROP
    if kind in TYPES_12:
        return OTHER_12
    size_12 = SIZES_12.get(kind)
    if size_12 is not None:
        return OTHER_12 if size == size_12 else OTHER_2
    return OTHER_2 if kind in (v2.PUBLISH, v2.REGACK) else DROP
