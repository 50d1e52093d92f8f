import socket
import struct

import pytest

from holdfast.net.proxy_protocol import SIGNATURE_2, Header, parse_header


def v2(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE_2 + bytes([0x20 | command, family]) + struct.pack(">H", len(body)) + body


IPV4 = socket.inet_aton("192.0.2.7") + socket.inet_aton("10.0.0.1") + struct.pack(">HH", 40000, 1883)
IPV6 = (
    socket.inet_pton(socket.AF_INET6, "2001:db8::7")
    + socket.inet_pton(socket.AF_INET6, "2001:db8::1")
    + struct.pack(">HH", 40000, 1883)
)

GOOD = {
    "1, IPv4": (b"PROXY TCP4 192.0.2.7 10.0.0.1 40000 1883\r\n", ("192.0.2.7", 40000)),
    "1, IPv6": (b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 1883\r\n", ("2001:db8::7", 40000)),
    "1, unknown": (b"PROXY UNKNOWN\r\n", ("", 0)),
    "1, unknown with more": (b"PROXY UNKNOWN ffff:: ffff:: 1 2\r\n", ("", 0)),
    "2, IPv4": (v2(1, 0x11, IPV4), ("192.0.2.7", 40000)),
    "2, IPv6": (v2(1, 0x21, IPV6), ("2001:db8::7", 40000)),
    "2, local": (v2(0, 0x00, b""), ("", 0)),
    "2, with extras": (v2(1, 0x11, IPV4 + b"\x03\x00\x04abcd"), ("192.0.2.7", 40000)),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_header_says_whose_connection_it_is_and_where_it_ends(name: str) -> None:
    header, (host, port) = GOOD[name]
    assert parse_header(header) == Header(host, port, len(header))
    assert parse_header(header + b"\x10\x00rest") == Header(host, port, len(header))


@pytest.mark.parametrize("name", GOOD)
def test_a_header_may_come_in_pieces(name: str) -> None:
    header, _ = GOOD[name]
    for size in range(1, len(header)):
        assert parse_header(header[:size]) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\x10\x0c\x00\x04MQTT",
        b"GET / HTTP/1.1\r\n",
        b"PROXY\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 40000\r\n",
        b"PROXY TCP4 2001:db8::7 2001:db8::1 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 65536 1\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 1 -1\r\n",
        b"PROXY TCP4 192.0.2.7  10.0.0.1 1 1\r\n",
        b"PROXY TCP4 0300.1 10.0.0.1 1 1\r\n",
        b"PROXY UDP4 192.0.2.7 10.0.0.1 1 1\r\n",
        b"PROXY TCP4 " + b"1" * 120,
        b"POST",
        SIGNATURE_2 + b"\x11\x11\x00\x0c" + IPV4,
        SIGNATURE_2 + b"\x22\x11\x00\x0c" + IPV4,
        v2(1, 0x11, IPV4[:8]),
        v2(1, 0x21, IPV4),
        v2(1, 0x12, IPV4),
        v2(1, 0x31, bytes(216)),
        SIGNATURE_2 + b"\x21\x11\xff\xff",
        SIGNATURE_2[:5] + b"x",
    ],
)
def test_what_is_no_header_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_header(data)
