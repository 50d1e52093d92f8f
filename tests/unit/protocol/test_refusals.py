"""Each malformed or forbidden packet is one row: version, who sent it, bytes, the reason to answer, the clause."""

import pytest
from _pytest.mark import ParameterSet

from holdfast.errors import MalformedPacket, ProtocolError, UnsupportedProtocol
from holdfast.protocol.mqtt.decode import decode
from holdfast.protocol.mqtt.packets import V5, V31, V311, Connect

MALFORMED = 0x81
FORBIDDEN = 0x82
C = False  # sent by a client
S = True  # sent by a server


def clause(version: str, *ids: str) -> pytest.MarkDecorator:
    return pytest.mark.clause(version, *(f"MQTT-{number}" for number in ids))


def row(name: str, version: int, sender: bool, wire: str, reason: int, *marks: pytest.MarkDecorator) -> ParameterSet:
    return pytest.param(version, sender, bytes.fromhex(wire), reason, id=name, marks=marks)


CONNECT_311 = "0004 4d515454 04"
CONNECT_5 = "0004 4d515454 05"

ROWS = [
    # fixed header
    row("packet type 0", V311, C, "00", MALFORMED),
    row("auth in 3.1.1", V311, C, "f0", MALFORMED),
    row(
        "connect flags", V311, C, f"11 {CONNECT_311} 02 003c 0001 63", MALFORMED, clause("3.1.1", "2.2.2-1", "2.2.2-2")
    ),
    row("puback flags", V5, C, "42 0001", MALFORMED, clause("5.0", "2.1.3-1")),
    row("pubrel flags", V311, C, "60 0001", MALFORMED, clause("3.1.1", "3.6.1-1")),
    row("pubrel flags in 5", V5, C, "66 0001", MALFORMED, clause("5.0", "3.6.1-1")),
    row("pubrel with DUP", V311, C, "6a 0001", MALFORMED, clause("3.1.1", "3.6.1-1")),
    row("subscribe flags", V311, C, "80 0001 0001 61 00", MALFORMED, clause("3.1.1", "3.8.1-1")),
    row("subscribe flags in 5", V5, C, "80 0001 00 0001 61 00", MALFORMED, clause("5.0", "3.8.1-1")),
    row("unsubscribe flags", V311, C, "a0 0001 0001 61", MALFORMED, clause("3.1.1", "3.10.1-1")),
    row("unsubscribe flags in 5", V5, C, "a1 0001 00 0001 61", MALFORMED, clause("5.0", "3.10.1-1")),
    row("pingreq flags", V311, C, "c1", MALFORMED, clause("3.1.1", "2.2.2-2")),
    row("disconnect flags", V311, C, "e1", MALFORMED, clause("3.1.1", "3.14.1-1")),
    row("disconnect flags in 5", V5, C, "e8", MALFORMED, clause("5.0", "3.14.1-1")),
    row("auth flags", V5, C, "f1", MALFORMED, clause("5.0", "3.15.1-1")),
    # CONNECT
    row("connect reserved flag", V311, C, f"10 {CONNECT_311} 03 003c 0001 63", MALFORMED, clause("3.1.1", "3.1.2-3")),
    row("connect reserved flag in 5", V5, C, f"10 {CONNECT_5} 03 003c 00 0001 63", MALFORMED, clause("5.0", "3.1.2-3")),
    row(
        "will QoS 3", V311, C, f"10 {CONNECT_311} 1e 003c 0001 63 0001 77 0000", MALFORMED, clause("3.1.1", "3.1.2-14")
    ),
    row("will QoS 3 in 5", V5, C, f"10 {CONNECT_5} 1e 003c 00 0001 63 00 0001 77 0000", MALFORMED),
    row("will QoS without will", V311, C, f"10 {CONNECT_311} 0a 003c 0001 63", MALFORMED, clause("3.1.1", "3.1.2-13")),
    row("will retain without will", V5, C, f"10 {CONNECT_5} 22 003c 00 0001 63", MALFORMED, clause("5.0", "3.1.2-13")),
    row("will flag without will", V311, C, f"10 {CONNECT_311} 06 003c 0001 63", MALFORMED, clause("3.1.1", "3.1.2-9")),
    row("password alone", V311, C, f"10 {CONNECT_311} 42 003c 0001 63 0001 70", MALFORMED, clause("3.1.1", "3.1.2-22")),
    row("user name missing", V311, C, f"10 {CONNECT_311} 82 003c 0001 63", MALFORMED, clause("3.1.1", "3.1.2-19")),
    row("password missing", V5, C, f"10 {CONNECT_5} 42 003c 00 0001 63", MALFORMED, clause("5.0", "3.1.2-19")),
    row("user name without flag", V311, C, f"10 {CONNECT_311} 02 003c 0001 63 0001 75", MALFORMED),
    row("no client id", V311, C, f"10 {CONNECT_311} 02 003c", MALFORMED, clause("3.1.1", "3.1.3-3")),
    row("client id not UTF-8", V311, C, f"10 {CONNECT_311} 02 003c 0001 ff", MALFORMED, clause("3.1.1", "3.1.3-4")),
    row("will topic not UTF-8", V311, C, f"10 {CONNECT_311} 06 003c 0001 63 0001 ff 0000", MALFORMED),
    row("user name not UTF-8", V311, C, f"10 {CONNECT_311} 82 003c 0001 63 0001 ff", MALFORMED),
    row("connect cut in its name", V311, C, "10 0004 4d51", MALFORMED),
    # PUBLISH
    row("publish QoS 3", V311, C, "36 0001 61 0001", MALFORMED, clause("3.1.1", "3.3.1-4")),
    row("publish QoS 3 in 5", V5, C, "36 0001 61 0001 00", MALFORMED, clause("5.0", "3.3.1-4")),
    row("publish QoS 0 with DUP", V311, C, "38 0001 61", MALFORMED, clause("3.1.1", "3.3.1-2")),
    row("publish QoS 0 with DUP in 5", V5, C, "38 0001 61 00", MALFORMED, clause("5.0", "3.3.1-2")),
    row("publish packet id 0", V311, C, "32 0001 61 0000", FORBIDDEN, clause("3.1.1", "2.3.1-1")),
    row("publish packet id 0 in 5", V5, C, "32 0001 61 0000 00", FORBIDDEN, clause("5.0", "2.2.1-3")),
    row("publish topic not UTF-8", V311, C, "30 0001 ff", MALFORMED, clause("3.1.1", "3.3.2-1")),
    row("publish topic with U+0000", V5, C, "30 0001 00 00", MALFORMED, clause("5.0", "4.7.3-2")),
    row("publish topic cut short", V311, C, "30 0005 6161", MALFORMED),
    row("publish without topic", V5, C, "30 0000 00", FORBIDDEN),
    row("publish from client with subscription id", V5, C, "30 0001 61 02 0b 01", FORBIDDEN, clause("5.0", "3.3.4-6")),
    row("publish alias 0", V5, C, "30 0001 61 03 23 0000", 0x94, clause("5.0", "3.3.2-8")),
    row("publish without property length", V5, C, "30 0001 61", MALFORMED, clause("5.0", "2.2.2-1")),
    # acknowledgements
    row("puback packet id 0", V311, C, "40 0000", FORBIDDEN),
    row("puback too long in 3.1.1", V311, C, "40 0001 00", MALFORMED),
    row("puback empty", V5, C, "40", MALFORMED),
    row("puback with a foreign reason", V5, C, "40 0001 92", FORBIDDEN, clause("5.0", "3.4.2-1")),
    row("pubrec with a foreign reason", V5, C, "50 0001 92", FORBIDDEN, clause("5.0", "3.5.2-1")),
    row("pubrel with a foreign reason", V5, C, "62 0001 80", FORBIDDEN, clause("5.0", "3.6.2-1")),
    row("pubcomp with a foreign reason", V5, C, "70 0001 10", FORBIDDEN, clause("5.0", "3.7.2-1")),
    row("puback bytes behind properties", V5, C, "40 0001 00 00 00", MALFORMED),
    # SUBSCRIBE and UNSUBSCRIBE
    row("subscribe empty", V311, C, "82 0001", FORBIDDEN, clause("3.1.1", "3.8.3-3")),
    row("subscribe empty in 5", V5, C, "82 0001 00", FORBIDDEN, clause("5.0", "3.8.3-2")),
    row("subscribe packet id 0", V5, C, "82 0000 00 0001 61 00", FORBIDDEN, clause("5.0", "2.2.1-3")),
    row("subscribe QoS 3", V311, C, "82 0001 0001 61 03", MALFORMED, clause("3.1.1", "3.8.3-4")),
    row("subscribe reserved bits", V311, C, "82 0001 0001 61 04", MALFORMED, clause("3.1.1", "3.8.3-4")),
    row("subscribe reserved bits in 5", V5, C, "82 0001 00 0001 61 40", MALFORMED, clause("5.0", "3.8.3-5")),
    row("subscribe QoS 3 in 5", V5, C, "82 0001 00 0001 61 03", FORBIDDEN),
    row("subscribe retain handling 3", V5, C, "82 0001 00 0001 61 30", FORBIDDEN),
    row("shared no local", V5, C, "82 0001 00 000a 2473686172652f672f61 04", FORBIDDEN, clause("5.0", "3.8.3-4")),
    row("subscribe without options", V311, C, "82 0001 0001 61", MALFORMED),
    row("subscribe filter not UTF-8", V311, C, "82 0001 0001 ff 00", MALFORMED, clause("3.1.1", "3.8.3-1")),
    row("subscribe id 0", V5, C, "82 0001 02 0b 00 0001 61 00", FORBIDDEN),
    row("subscribe two ids", V5, C, "82 0001 04 0b01 0b02 0001 61 00", FORBIDDEN),
    row("unsubscribe empty", V311, C, "a2 0001", FORBIDDEN, clause("3.1.1", "3.10.3-2")),
    row("unsubscribe empty in 5", V5, C, "a2 0001 00", FORBIDDEN, clause("5.0", "3.10.3-2")),
    row("unsubscribe packet id 0", V311, C, "a2 0000 0001 61", FORBIDDEN, clause("3.1.1", "2.3.1-1")),
    row("unsubscribe filter not UTF-8", V5, C, "a2 0001 00 0001 ff", MALFORMED, clause("5.0", "3.10.3-1")),
    # the rest of the client's
    row("ping with a body", V311, C, "c0 00", MALFORMED),
    row("disconnect with a body in 3.1.1", V311, C, "e0 00", MALFORMED),
    row("disconnect with a foreign reason", V5, C, "e0 10", FORBIDDEN, clause("5.0", "3.14.2-1")),
    row("auth without method", V5, C, "f0 18 00", FORBIDDEN),
    row("auth with a foreign reason", V5, C, "f0 04", FORBIDDEN, clause("5.0", "3.15.2-1")),
    row("auth data without method", V5, C, "f0 18 03 16 0000", FORBIDDEN),
    # the server's
    row("connack reserved flags", V5, S, "20 02 00 00", MALFORMED, clause("5.0", "3.2.2-1")),
    row("connack unknown code", V311, S, "20 00 06", FORBIDDEN),
    row("connack unknown reason", V5, S, "20 00 01 00", FORBIDDEN, clause("5.0", "3.2.2-8")),
    row("suback unknown code", V311, S, "90 0001 03", FORBIDDEN, clause("3.1.1", "3.9.3-2")),
    row("suback unknown reason", V5, S, "90 0001 00 11", FORBIDDEN, clause("5.0", "3.9.3-2")),
    row("suback without codes", V311, S, "90 0001", FORBIDDEN),
    row("unsuback unknown reason", V5, S, "b0 0001 00 01", FORBIDDEN, clause("5.0", "3.11.3-2")),
    row("unsuback with codes in 3.1.1", V311, S, "b0 0001 00", MALFORMED),
    row("disconnect with session expiry", V5, S, "e0 8b 05 11 00000001", FORBIDDEN, clause("5.0", "3.14.2-2")),
]


@pytest.mark.parametrize(("version", "from_server", "wire", "reason"), ROWS)
def test_packet_is_refused_with_its_reason(version: int, from_server: bool, wire: bytes, reason: int) -> None:
    """`wire` leaves out the length: it is first byte and body."""
    with pytest.raises(ProtocolError) as caught:
        decode(wire[0], wire[1:], version, from_server)
    assert caught.value.reason == reason
    assert isinstance(caught.value, MalformedPacket) == (reason == MALFORMED)


@pytest.mark.parametrize(
    ("wire", "level", "known_name"),
    [
        pytest.param("0004 4d515454 06 02 003c 00", 6, True, id="MQTT level 6"),
        pytest.param("0004 4d515454 03 02 003c 00", 3, True, id="MQTT level 3"),
        pytest.param("0006 4d5149736470 04 02 003c 00", 4, True, id="MQIsdp level 4"),
        pytest.param("0004 4d515454 84 02 003c 00", 0x84, True, id="a bridge's private level"),
        pytest.param("0004 6d717474 04 02 003c 00", 4, False, id="lower case name"),
        pytest.param("0000 04 02 003c 00", 4, False, id="empty name"),
        pytest.param("0003 ff0041 04 02 003c 00", 4, False, id="name that is no text"),
    ],
)
@pytest.mark.clause("3.1.1", "MQTT-3.1.2-1", "MQTT-3.1.2-2")
@pytest.mark.clause("5.0", "MQTT-3.1.2-1", "MQTT-3.1.2-2")
def test_unknown_protocol_says_what_was_asked(wire: str, level: int, known_name: bool) -> None:
    with pytest.raises(UnsupportedProtocol, match=f"level {level}") as caught:
        decode(0x10, bytes.fromhex(wire), V311)
    assert caught.value.reason == 0x84
    assert (caught.value.level, caught.value.known_name) == (level, known_name)


@pytest.mark.parametrize("version", [V31, V311, V5])
def test_every_cut_of_a_connect_is_malformed(version: int) -> None:
    body = {
        V31: "0006 4d5149736470 03 06 003c 0001 63 0001 77 0001 78",
        V311: "0004 4d515454 04 c6 003c 0001 63 0001 77 0001 78 0001 75 0001 70",
        V5: "0004 4d515454 05 c6 003c 03 21 0001 0001 63 00 0001 77 0001 78 0001 75 0001 70",
    }[version]
    whole = bytes.fromhex(body)
    packet = decode(0x10, whole, version)
    assert isinstance(packet, Connect)
    assert packet.version == version
    for size in range(len(whole)):
        with pytest.raises(MalformedPacket):
            decode(0x10, whole[:size], version)
