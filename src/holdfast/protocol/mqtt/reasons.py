"""Reason codes of MQTT 5 by the specification's names, the return codes of 3.1.1, and which packet may carry which."""

from typing import Final

SUCCESS: Final = 0x00
NORMAL_DISCONNECTION: Final = 0x00
GRANTED_QOS_0: Final = 0x00
GRANTED_QOS_1: Final = 0x01
GRANTED_QOS_2: Final = 0x02
DISCONNECT_WITH_WILL: Final = 0x04
NO_MATCHING_SUBSCRIBERS: Final = 0x10
NO_SUBSCRIPTION_EXISTED: Final = 0x11
CONTINUE_AUTHENTICATION: Final = 0x18
REAUTHENTICATE: Final = 0x19
UNSPECIFIED_ERROR: Final = 0x80
MALFORMED_PACKET: Final = 0x81
PROTOCOL_ERROR: Final = 0x82
IMPLEMENTATION_SPECIFIC_ERROR: Final = 0x83
UNSUPPORTED_PROTOCOL_VERSION: Final = 0x84
CLIENT_ID_NOT_VALID: Final = 0x85
BAD_USERNAME_OR_PASSWORD: Final = 0x86
NOT_AUTHORIZED: Final = 0x87
SERVER_UNAVAILABLE: Final = 0x88
SERVER_BUSY: Final = 0x89
BANNED: Final = 0x8A
SERVER_SHUTTING_DOWN: Final = 0x8B
BAD_AUTHENTICATION_METHOD: Final = 0x8C
KEEP_ALIVE_TIMEOUT: Final = 0x8D
SESSION_TAKEN_OVER: Final = 0x8E
TOPIC_FILTER_INVALID: Final = 0x8F
TOPIC_NAME_INVALID: Final = 0x90
PACKET_ID_IN_USE: Final = 0x91
PACKET_ID_NOT_FOUND: Final = 0x92
RECEIVE_MAXIMUM_EXCEEDED: Final = 0x93
TOPIC_ALIAS_INVALID: Final = 0x94
PACKET_TOO_LARGE: Final = 0x95
MESSAGE_RATE_TOO_HIGH: Final = 0x96
QUOTA_EXCEEDED: Final = 0x97
ADMINISTRATIVE_ACTION: Final = 0x98
PAYLOAD_FORMAT_INVALID: Final = 0x99
RETAIN_NOT_SUPPORTED: Final = 0x9A
QOS_NOT_SUPPORTED: Final = 0x9B
USE_ANOTHER_SERVER: Final = 0x9C
SERVER_MOVED: Final = 0x9D
SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0x9E
CONNECTION_RATE_EXCEEDED: Final = 0x9F
MAXIMUM_CONNECT_TIME: Final = 0xA0
SUBSCRIPTION_IDS_NOT_SUPPORTED: Final = 0xA1
WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0xA2

# 3.1.1 CONNACK return codes and the one failure of its SUBACK.
ACCEPTED_311: Final = 0x00
UNACCEPTABLE_PROTOCOL_311: Final = 0x01
IDENTIFIER_REJECTED_311: Final = 0x02
SERVER_UNAVAILABLE_311: Final = 0x03
BAD_USERNAME_OR_PASSWORD_311: Final = 0x04
NOT_AUTHORIZED_311: Final = 0x05
SUBSCRIBE_FAILURE_311: Final = 0x80

_NAMES: Final[dict[int, str]] = {
    0x00: "success",
    0x01: "granted QoS 1",
    0x02: "granted QoS 2",
    0x04: "disconnect with will message",
    0x10: "no matching subscribers",
    0x11: "no subscription existed",
    0x18: "continue authentication",
    0x19: "re-authenticate",
    0x80: "unspecified error",
    0x81: "malformed packet",
    0x82: "protocol error",
    0x83: "implementation specific error",
    0x84: "unsupported protocol version",
    0x85: "client identifier not valid",
    0x86: "bad user name or password",
    0x87: "not authorized",
    0x88: "server unavailable",
    0x89: "server busy",
    0x8A: "banned",
    0x8B: "server shutting down",
    0x8C: "bad authentication method",
    0x8D: "keep alive timeout",
    0x8E: "session taken over",
    0x8F: "topic filter invalid",
    0x90: "topic name invalid",
    0x91: "packet identifier in use",
    0x92: "packet identifier not found",
    0x93: "receive maximum exceeded",
    0x94: "topic alias invalid",
    0x95: "packet too large",
    0x96: "message rate too high",
    0x97: "quota exceeded",
    0x98: "administrative action",
    0x99: "payload format invalid",
    0x9A: "retain not supported",
    0x9B: "QoS not supported",
    0x9C: "use another server",
    0x9D: "server moved",
    0x9E: "shared subscriptions not supported",
    0x9F: "connection rate exceeded",
    0xA0: "maximum connect time",
    0xA1: "subscription identifiers not supported",
    0xA2: "wildcard subscriptions not supported",
}

_NAMES_311: Final[dict[int, str]] = {
    0x00: "accepted",
    0x01: "unacceptable protocol version",
    0x02: "identifier rejected",
    0x03: "server unavailable",
    0x04: "bad user name or password",
    0x05: "not authorized",
}

CONNACK_311_CODES: Final = frozenset((0x00, 0x01, 0x02, 0x03, 0x04, 0x05))
SUBACK_311_CODES: Final = frozenset((0x00, 0x01, 0x02, 0x80))  # [3.1.1: MQTT-3.9.3-2]

_PUBLISH_ANSWERS: Final = frozenset((0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99))
_RELEASE_ANSWERS: Final = frozenset((0x00, 0x92))

# fmt: off
_CONNACK_REASONS: Final = frozenset((
    0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C,
    0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F,
))
_DISCONNECT_REASONS: Final = frozenset((
    0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95,
    0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2,
))
# fmt: on

# Packet type to the reason codes it may carry. [5: MQTT-3.2.2-8, 3.4.2-1, 3.5.2-1, 3.6.2-1, 3.7.2-1, 3.9.3-2, 3.11.3-2,
# 3.14.2-1, 3.15.2-1]
ALLOWED_REASONS: Final[dict[int, frozenset[int]]] = {
    2: _CONNACK_REASONS,
    4: _PUBLISH_ANSWERS,
    5: _PUBLISH_ANSWERS,
    6: _RELEASE_ANSWERS,
    7: _RELEASE_ANSWERS,
    9: frozenset((0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2)),
    11: frozenset((0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91)),
    14: _DISCONNECT_REASONS,
    15: frozenset((0x00, 0x18, 0x19)),
}


def is_allowed(kind: int, reason: int) -> bool:
    """Whether a packet of that type may carry that reason code in MQTT 5."""
    return reason in ALLOWED_REASONS[kind]


def reason_name(code: int) -> str:
    """What people read: the specification's name in lower case."""
    name = _NAMES.get(code)
    return f"unknown reason 0x{code:02X}" if name is None else name


def return_code_name(code: int) -> str:
    """The same for a 3.1.1 CONNACK return code."""
    name = _NAMES_311.get(code)
    return f"unknown return code 0x{code:02X}" if name is None else name


def return_code_311(reason: int) -> int:
    """The CONNACK return code that says in 3.1.1 what `reason` says in 5.0; -1 where 3.1.1 has none.

    Without a suitable code the connection is closed with no CONNACK. [3.1.1: MQTT-3.2.2-6]
    """
    if reason == SUCCESS:
        return ACCEPTED_311
    if reason == UNSUPPORTED_PROTOCOL_VERSION:
        return UNACCEPTABLE_PROTOCOL_311
    if reason == CLIENT_ID_NOT_VALID:
        return IDENTIFIER_REJECTED_311
    if reason == BAD_USERNAME_OR_PASSWORD:
        return BAD_USERNAME_OR_PASSWORD_311
    if reason in (NOT_AUTHORIZED, BANNED, BAD_AUTHENTICATION_METHOD):
        return NOT_AUTHORIZED_311
    if reason in (
        SERVER_UNAVAILABLE,
        SERVER_BUSY,
        QUOTA_EXCEEDED,
        USE_ANOTHER_SERVER,
        SERVER_MOVED,
        CONNECTION_RATE_EXCEEDED,
    ):
        return SERVER_UNAVAILABLE_311
    return -1
