"""Which packet a client may send when, as the server sees it.

Rows are states, entries are the packet types a client may send there. A client need not wait for CONNACK before it
sends more, unless it asked for an authentication method: then only AUTH and DISCONNECT may come in between
[5: MQTT-3.1.2-30].
"""

from typing import Final

from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.packets import (
    AUTH,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    V5,
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


def check_received(state: int, kind: int, version: int) -> None:
    """Raises ProtocolError when a client may not send that packet type in that state."""
    if CLIENT_MAY_SEND[state] >> kind & 1 == 0 or (kind == AUTH and version != V5):
        raise ProtocolError(f"packet type {kind} may not come while {STATE_NAMES[state]}")
