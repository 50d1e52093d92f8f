import pytest

from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.connection import (
    AUTHENTICATING,
    CLOSED,
    CONNECTED,
    WAITING,
    check_received,
)
from holdfast.protocol.mqtt.packets import (
    AUTH,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    V5,
    V311,
)

EXCHANGE = {PUBLISH, 4, 5, 6, 7}
FROM_CLIENT: dict[int, set[int]] = {
    WAITING: {CONNECT},
    AUTHENTICATING: {AUTH, DISCONNECT},
    CONNECTED: EXCHANGE | {SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT, AUTH},
    CLOSED: set(),
}


@pytest.mark.parametrize("state", FROM_CLIENT)
@pytest.mark.parametrize("kind", range(16))
def test_client_may_send_only_what_the_state_allows(state: int, kind: int) -> None:
    if kind in FROM_CLIENT[state]:
        check_received(state, kind, V5)
    else:
        with pytest.raises(ProtocolError) as caught:
            check_received(state, kind, V5)
        assert caught.value.reason == 0x82


def test_auth_does_not_exist_before_5() -> None:
    with pytest.raises(ProtocolError, match="packet type 15"):
        check_received(CONNECTED, AUTH, V311)
