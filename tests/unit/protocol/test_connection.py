import pytest

from holdfast.errors import ProtocolError, UsageError
from holdfast.protocol.mqtt.connection import (
    AUTHENTICATING,
    CLOSED,
    CONNECTED,
    WAITING,
    after_received,
    after_sent,
    check_received,
    check_sent,
)
from holdfast.protocol.mqtt.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBLISH,
    SUBACK,
    SUBSCRIBE,
    UNSUBSCRIBE,
    V5,
    V311,
    Connect,
    Disconnect,
    Ping,
)
from holdfast.protocol.mqtt.properties import Properties

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
    with pytest.raises(UsageError):
        check_sent(CONNECTED, AUTH, V311)


def test_connect_opens_and_a_second_one_is_refused() -> None:
    connect = Connect("c", V311, True, 60)
    assert after_received(WAITING, connect, V311) == CONNECTED
    with pytest.raises(ProtocolError, match="connected"):
        after_received(CONNECTED, connect, V311)


def test_connect_with_a_method_waits_for_authentication() -> None:
    properties = Properties()
    properties.auth_method = "SCRAM-SHA-256"
    state = after_received(WAITING, Connect("c", V5, True, 60, properties=properties), V5)
    assert state == AUTHENTICATING
    with pytest.raises(ProtocolError, match="authenticating"):
        after_received(state, Ping(PINGREQ), V5)
    assert after_sent(state, AUTH, 0, V5) == AUTHENTICATING
    assert after_sent(state, CONNACK, 0, V5) == CONNECTED
    assert after_sent(state, CONNACK, 0x8C, V5) == CLOSED


def test_nothing_follows_disconnect() -> None:
    assert after_received(CONNECTED, Disconnect(), V311) == CLOSED
    assert after_sent(CONNECTED, DISCONNECT, 0x8B, V5) == CLOSED
    with pytest.raises(UsageError, match="closed"):
        check_sent(CLOSED, PINGRESP, V5)


def test_server_sends_nothing_but_connack_before_connect_is_accepted() -> None:
    check_sent(WAITING, CONNACK, V5)
    for kind in (PUBLISH, SUBACK, PINGRESP, DISCONNECT):
        with pytest.raises(UsageError):
            check_sent(WAITING, kind, V5)
        with pytest.raises(UsageError):
            check_sent(AUTHENTICATING, kind, V5)


def test_server_has_no_disconnect_before_5() -> None:
    with pytest.raises(UsageError):
        check_sent(CONNECTED, DISCONNECT, V311)


def test_other_packets_keep_the_state() -> None:
    assert after_received(CONNECTED, Ping(PINGREQ), V311) == CONNECTED
    assert after_sent(CONNECTED, PUBLISH, 0, V311) == CONNECTED
