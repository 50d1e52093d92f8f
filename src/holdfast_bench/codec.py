"""Frames by the thousand: what a load generator needs of MQTT, and nothing else.

Building is done ahead of time, in chunks that are sent as they are. Reading counts whole packets in whole reads and
builds the acknowledgements they call for as one block. No packet objects: one object per message would make the
generator slower than the brokers it measures. Compiled, so it follows the rules of the hot set: no I/O, no clock.
"""

from typing import Final, final

V5: Final = 5

PINGREQ: Final = b"\xc0\x00"
DISCONNECT: Final = b"\xe0\x00"

STAMP_BYTES: Final = 8  # a send time in nanoseconds, at the start of the payload

_STEPS: Final = 64  # histogram steps per power of two: a value is right to within 1 / 64, about 1.6 %
_EXACT_BITS: Final = 7  # below 2 ** 7 every value has its own step


def varint(value: int) -> bytes:
    out: list[int] = []
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


@final
class PublishFrame:
    """One PUBLISH, cut into the pieces that stay the same from message to message."""

    def __init__(self, topic: bytes, payload: bytes, qos: int, retain: bool, version: int, expiry_s: int = 0) -> None:
        properties = b""
        if version == V5:
            properties = b"\x05\x02" + expiry_s.to_bytes(4, "big") if expiry_s else b"\x00"
        remaining = 2 + len(topic) + (2 if qos else 0) + len(properties) + len(payload)
        first = 0x30 | qos << 1 | (1 if retain else 0)
        self.qos = qos
        self.head = bytes([first]) + varint(remaining) + len(topic).to_bytes(2, "big") + topic
        self.properties = properties
        self.payload = payload
        self.size = len(self.head) + (2 if qos else 0) + len(properties) + len(payload)

    def block(self, count: int, first_id: int = 1) -> bytes:
        """`count` frames; at QoS 1 and 2 with packet ids from `first_id` on, 65535 being followed by 1."""
        if self.qos == 0:
            return (self.head + self.properties + self.payload) * count
        rest = self.properties + self.payload
        parts: list[bytes] = []
        packet_id = first_id
        for _ in range(count):
            parts.append(self.head)
            parts.append(packet_id.to_bytes(2, "big"))
            parts.append(rest)
            packet_id = packet_id + 1 if packet_id < 65535 else 1
        return b"".join(parts)

    def stamped_block(self, count: int, first_id: int, stamp_ns: int) -> bytes:
        """As `block`, with `stamp_ns` in place of the first eight bytes of the payload."""
        rest = self.properties + stamp_ns.to_bytes(STAMP_BYTES, "big") + self.payload[STAMP_BYTES:]
        if self.qos == 0:
            return (self.head + rest) * count
        parts: list[bytes] = []
        packet_id = first_id
        for _ in range(count):
            parts.append(self.head)
            parts.append(packet_id.to_bytes(2, "big"))
            parts.append(rest)
            packet_id = packet_id + 1 if packet_id < 65535 else 1
        return b"".join(parts)


def fleet_topic(index: int) -> bytes:
    """The topics of a made-up fleet: 50 sites, ten lines each, any number of devices."""
    return f"site/{index % 50}/line/{index // 50 % 10}/dev{index:06d}/temp".encode()


def numbered_topic(pattern: bytes, index: int) -> bytes:
    """`pattern` with its `%i` replaced; an empty pattern stands for the fleet."""
    if not pattern:
        return fleet_topic(index)
    return pattern.replace(b"%i", str(index).encode())


def retained_block(pattern: bytes, first: int, count: int, payload: bytes, version: int, expiry_s: int = 0) -> bytes:
    """QoS 0 retained publishes for `count` topics; an empty payload clears them."""
    rest = payload
    if version == V5:
        rest = (b"\x05\x02" + expiry_s.to_bytes(4, "big") if expiry_s else b"\x00") + payload
    parts: list[bytes] = []
    for index in range(first, first + count):
        topic = numbered_topic(pattern, index)
        parts.append(b"\x31" + varint(2 + len(topic) + len(rest)) + len(topic).to_bytes(2, "big"))
        parts.append(topic)
        parts.append(rest)
    return b"".join(parts)


def publish_block(pattern: bytes, first: int, count: int, payload: bytes, version: int) -> bytes:
    """QoS 0 publishes to `count` different topics, none of them retained."""
    rest = (b"\x00" if version == V5 else b"") + payload
    parts: list[bytes] = []
    for index in range(first, first + count):
        topic = numbered_topic(pattern, index)
        parts.append(b"\x30" + varint(2 + len(topic) + len(rest)) + len(topic).to_bytes(2, "big"))
        parts.append(topic)
        parts.append(rest)
    return b"".join(parts)


def subscribe_block(pattern: bytes, first: int, count: int, qos: int, version: int) -> bytes:
    """SUBSCRIBE packets with one numbered filter each; packet ids follow the numbers."""
    properties = b"\x00" if version == V5 else b""
    parts: list[bytes] = []
    for index in range(first, first + count):
        topic_filter = numbered_topic(pattern, index)
        parts.append(b"\x82" + varint(2 + len(properties) + 2 + len(topic_filter) + 1))
        parts.append((index % 65535 + 1).to_bytes(2, "big") + properties + len(topic_filter).to_bytes(2, "big"))
        parts.append(topic_filter)
        parts.append(bytes([qos]))
    return b"".join(parts)


@final
class Histogram:
    """Counts of values in steps that grow with the value, so that any number of latencies costs the same memory."""

    def __init__(self) -> None:
        self.total = 0
        self.highest = 0
        self._counts: list[int] = [0] * (_STEPS * 48)

    def add(self, value: int, count: int = 1) -> None:
        if value < 0:
            value = 0
        if value > self.highest:
            self.highest = value
        step = _step_of(value)
        if step >= len(self._counts):
            step = len(self._counts) - 1
        self._counts[step] += count
        self.total += count

    def merge(self, highest: int, counts: list[tuple[int, int]]) -> None:
        """Takes in what another process exported."""
        if highest > self.highest:
            self.highest = highest
        for step, count in counts:
            self._counts[step] += count
            self.total += count

    def export(self) -> list[tuple[int, int]]:
        return [(step, count) for step, count in enumerate(self._counts) if count]

    def percentile(self, share: float) -> int:
        """The value that `share` (0 to 1) of all values do not exceed, to within a step; 0 when there are none."""
        wanted = share * self.total
        seen = 0
        for step, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min(_top_of(step), self.highest)
        return self.highest


def _step_of(value: int) -> int:
    if value < 1 << _EXACT_BITS:
        return value
    shift = 0
    while value >= 1 << _EXACT_BITS:
        value >>= 1
        shift += 1
    return _STEPS * shift + value


def _top_of(step: int) -> int:
    """The largest value that falls into `step`."""
    if step < 1 << _EXACT_BITS:
        return step
    shift = step // _STEPS - 1
    return ((step - _STEPS * shift + 1) << shift) - 1


@final
class ReceiveParser:
    """Everything one connection received, counted; a packet split over two reads is counted with the second.

    Serves both ends. A subscriber counts PUBLISH packets and owes PUBACK, PUBREC or PUBCOMP; a publisher counts the
    acknowledgements of what it sent and owes PUBREL. `feed` returns what is owed, to be written by the caller.
    """

    def __init__(self, version: int, stamped: bool = False) -> None:
        self.version = version
        self.stamped = stamped
        self.latencies = Histogram()
        self.messages = 0  # PUBLISH packets
        self.retained = 0  # those with the RETAIN flag
        self.duplicates = 0  # those with the DUP flag
        self.acknowledged = 0  # PUBACK, PUBCOMP, and PUBREC that refuse
        self.refused = 0  # acknowledgements and SUBACK codes of 0x80 and above
        self.subscribed = 0  # SUBACK and UNSUBACK packets
        self.pongs = 0
        self.connected = -1  # the CONNACK's reason code once there is one
        self.receive_maximum = 65535  # what the CONNACK of MQTT 5 allows the publisher
        self.disconnected = -1  # the DISCONNECT's reason code once there is one
        self._tail = b""

    def feed(self, data: bytes, now_ns: int) -> bytes:
        """Counts `data`, received at `now_ns`; returns the acknowledgements to send back."""
        if self._tail:
            data = self._tail + data
        end = len(data)
        position = 0
        owed: list[bytes] = []
        messages = 0
        while end - position >= 2:
            length = data[position + 1]
            body = position + 2
            if length > 127:
                shift = 7
                length &= 127
                more = True
                while more and body < end:
                    byte = data[body]
                    length |= (byte & 127) << shift
                    shift += 7
                    body += 1
                    more = byte > 127
                if more:
                    break
            stop = body + length
            if stop > end:
                break
            first = data[position]
            if first == 0x30 and not self.stamped:
                messages += 1
            elif first & 0xF0 == 0x30:
                messages += 1
                self._on_publish(data, first, body, now_ns, owed)
            else:
                self._on_answer(data, first, body, stop, owed)
            position = stop
        self.messages += messages
        self._tail = data[position:] if position < end else b""
        return b"".join(owed) if owed else b""

    def _on_publish(self, data: bytes, first: int, body: int, now_ns: int, owed: list[bytes]) -> None:
        if first & 1:
            self.retained += 1
        if first & 8:
            self.duplicates += 1
        position = body + 2 + (data[body] << 8 | data[body + 1])
        qos = first >> 1 & 3
        if qos:
            packet_id = data[position : position + 2]
            owed.append(b"\x40\x02" + packet_id if qos == 1 else b"\x50\x02" + packet_id)
            position += 2
        if self.stamped:
            if self.version == V5:
                position += 1 + data[position]  # the generator's own messages carry less than 128 bytes of properties
            stamp_ns = int.from_bytes(data[position : position + STAMP_BYTES], "big")
            self.latencies.add(now_ns - stamp_ns)

    def _on_answer(self, data: bytes, first: int, body: int, stop: int, owed: list[bytes]) -> None:
        kind = first >> 4
        if kind == 4 or kind == 7:
            self.acknowledged += 1
            if stop - body > 2 and data[body + 2] >= 0x80:
                self.refused += 1
        elif kind == 5:
            if stop - body > 2 and data[body + 2] >= 0x80:
                self.refused += 1
                self.acknowledged += 1
            else:
                owed.append(b"\x62\x02" + data[body : body + 2])
        elif kind == 6:
            owed.append(b"\x70\x02" + data[body : body + 2])
        elif kind == 9 or kind == 11:
            self.subscribed += 1
            if kind == 9 and data[stop - 1] >= 0x80:
                self.refused += 1
        elif kind == 13:
            self.pongs += 1
        elif kind == 2:
            self.connected = data[body + 1]
            if self.version == V5 and stop - body > 2:
                self.receive_maximum = _receive_maximum(data, body + 2, stop)
        elif kind == 14:
            self.disconnected = data[body] if stop > body else 0


def _receive_maximum(data: bytes, position: int, stop: int) -> int:
    """The Receive Maximum among the properties of a CONNACK, 65535 without one."""
    while data[position] > 127:
        position += 1
    position += 1
    while position < stop:
        identifier = data[position]
        position += 1
        if identifier == 0x21:
            return data[position] << 8 | data[position + 1]
        if identifier in (0x24, 0x25, 0x28, 0x29, 0x2A):
            position += 1
        elif identifier in (0x22, 0x13):
            position += 2
        elif identifier in (0x11, 0x27):
            position += 4
        else:
            position += 2 + (data[position] << 8 | data[position + 1])
            if identifier == 0x26:  # a user property is two strings
                position += 2 + (data[position] << 8 | data[position + 1])
    return 65535


def encode_connect(
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


def encode_subscribe(packet_id: int, topic_filters: list[str], qos: int, version: int) -> bytes:
    body = packet_id.to_bytes(2, "big") + (b"\x00" if version == V5 else b"")
    for topic_filter in topic_filters:
        body += _text(topic_filter) + bytes([qos])
    return b"\x82" + varint(len(body)) + body


def encode_unsubscribe(packet_id: int, topic_filters: list[str], version: int) -> bytes:
    body = packet_id.to_bytes(2, "big") + (b"\x00" if version == V5 else b"")
    for topic_filter in topic_filters:
        body += _text(topic_filter)
    return b"\xa2" + varint(len(body)) + body


def _text(value: str) -> bytes:
    encoded = value.encode()
    return len(encoded).to_bytes(2, "big") + encoded
