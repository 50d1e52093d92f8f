"""Which packet may follow which on one connection, as the server sees it.

Rows are states, entries are the packet types a client may send there. A client need not wait for CONNACK before it
sends more, unless it asked for an authentication method: then only AUTH and DISCONNECT may come in between
[5: MQTT-3.1.2-30]. What the server may send follows the same states: nothing but CONNACK and AUTH before the client is
accepted [5: MQTT-3.2.0-1, 3.14.0-1].
"""

from typing import Final

from holdfast.errors import ProtocolError, UsageError
from holdfast.protocol.mqtt.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    Connect,
    Packet,
)

WAITING: Final = 0  # for CONNECT
AUTHENTICATING: Final = 1  # CONNECT named a method; CONNACK not sent yet
CONNECTED: Final = 2
CLOSED: Final = 3

STATE_NAMES: Final = ("waiting for CONNECT", "authenticating", "connected", "closed")

_EXCHANGE: Final = 1 << PUBLISH | 1 << PUBACK | 1 << PUBREC | 1 << PUBREL | 1 << PUBCOMP

# Bit n stands for packet type n.
CLIENT_MAY_SEND: Final = (
    1 << CONNECT,  # [3.1.1: MQTT-3.1.0-1] [5: MQTT-3.1.0-1]
    1 << AUTH | 1 << DISCONNECT,
    _EXCHANGE | 1 << SUBSCRIBE | 1 << UNSUBSCRIBE | 1 << PINGREQ | 1 << DISCONNECT | 1 << AUTH,
    0,  # [3.1.1: MQTT-3.14.4-2] [5: MQTT-3.14.4-1]
)
SERVER_MAY_SEND: Final = (
    1 << CONNACK,  # the refusal of a CONNECT that could not be read
    1 << CONNACK | 1 << AUTH,
    _EXCHANGE | 1 << CONNACK | 1 << SUBACK | 1 << UNSUBACK | 1 << PINGRESP | 1 << DISCONNECT | 1 << AUTH,
    0,
)


def check_received(state: int, kind: int, version: int) -> None:
    """Raises ProtocolError when a client may not send that packet type in that state."""
    if CLIENT_MAY_SEND[state] >> kind & 1 == 0 or (kind == AUTH and version != V5):
        raise ProtocolError(f"packet type {kind} may not come while {STATE_NAMES[state]}")


def check_sent(state: int, kind: int, version: int) -> None:
    """Raises UsageError when the server may not send that packet type in that state."""
    allowed = SERVER_MAY_SEND[state] >> kind & 1 != 0
    if not allowed or (version != V5 and kind in (AUTH, DISCONNECT)):
        raise UsageError(f"packet type {kind} may not be sent while {STATE_NAMES[state]}")


def after_received(state: int, packet: Packet, version: int) -> int:
    """The state that follows when a client's packet has been taken; raises ProtocolError when it may not come."""
    kind = packet.kind
    check_received(state, kind, version)
    if isinstance(packet, Connect):
        properties = packet.properties
        if properties is not None and properties.auth_method is not None:
            return AUTHENTICATING
        return CONNECTED
    if kind == DISCONNECT:
        return CLOSED
    return state


def after_sent(state: int, kind: int, reason: int, version: int) -> int:
    """The state that follows when the server has sent a packet; `reason` is that of CONNACK, elsewhere 0."""
    check_sent(state, kind, version)
    if kind == CONNACK:
        return CONNECTED if reason == 0 else CLOSED  # [5: MQTT-3.2.2-7] [3.1.1: MQTT-3.2.2-5]
    if kind == DISCONNECT:
        return CLOSED  # [5: MQTT-3.14.4-1]
    return state
