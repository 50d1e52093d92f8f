"""The packets a load generator sends once per connection, not once per message."""

from holdfast.bench.codec import V5, varint

PINGREQ = b"\xc0\x00"
DISCONNECT = b"\xe0\x00"


def connect(
    client_id: str,
    version: int,
    *,
    clean: bool = True,
    keep_alive_s: int = 0,
    username: str | None = None,
    password: str | None = None,
) -> bytes:
    """A CONNECT with keep alive 0, because a saturated generator would miss its own pings."""
    flags = 0x02 if clean else 0
    payload = _text(client_id)
    if username is not None:
        flags |= 0x80
        payload += _text(username)
    if password is not None:
        flags |= 0x40
        payload += _text(password)
    properties = b"\x03\x21\xff\xff" if version == V5 else b""  # Receive Maximum 65535: the broker sets the pace
    body = _text("MQTT") + bytes([version, flags]) + keep_alive_s.to_bytes(2, "big") + properties + payload
    return b"\x10" + varint(len(body)) + body


def subscribe(packet_id: int, topic_filters: list[str], qos: int, version: int) -> bytes:
    body = packet_id.to_bytes(2, "big") + (b"\x00" if version == V5 else b"")
    for topic_filter in topic_filters:
        body += _text(topic_filter) + bytes([qos])
    return b"\x82" + varint(len(body)) + body


def unsubscribe(packet_id: int, topic_filters: list[str], version: int) -> bytes:
    body = packet_id.to_bytes(2, "big") + (b"\x00" if version == V5 else b"")
    for topic_filter in topic_filters:
        body += _text(topic_filter)
    return b"\xa2" + varint(len(body)) + body


def _text(value: str) -> bytes:
    encoded = value.encode()
    return len(encoded).to_bytes(2, "big") + encoded
