"""MQTT-SN packets through the codec: round trips, truncation, noise, and datagrams thrown at a whole gateway."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ProtocolError
from holdfast.protocol.sn import v2_decode, v2_encode, v12
from holdfast.protocol.sn.frame import Envelope, datagrams, frame, head_size, stated_size
from holdfast.protocol.sn.packets import Packet
from packet_strategies import plain
from sn_strategies import packets_2, packets_12
from sn_world import World

CODECS = {"1.2": (packets_12(), v12.encode, v12.decode), "2.0": (packets_2(), v2_encode.encode, v2_decode.decode)}
versions = pytest.mark.parametrize("version", CODECS)


def decode_or_refuse(decode: Callable[[bytes], Packet], data: bytes) -> Packet | None:
    """The packet, or None when it was refused as the protocol wants it."""
    try:
        return decode(data)
    except ProtocolError as error:
        refusal = error
    assert 0x80 <= refusal.reason <= 0xFF
    assert str(refusal)
    return None


@versions
@given(data=st.data())
def test_what_is_encoded_decodes_to_the_same(version: str, data: st.DataObject) -> None:
    packets, encode, decode = CODECS[version]
    packet = data.draw(packets)
    encoded = encode(packet)
    assert stated_size(encoded) == len(encoded)
    assert plain(decode(encoded)) == plain(packet)


@versions
@given(data=st.data())
def test_the_long_form_of_the_length_means_the_same(version: str, data: st.DataObject) -> None:
    packets, encode, decode = CODECS[version]
    packet = data.draw(packets)
    encoded = encode(packet)
    if head_size(encoded) == 1:
        encoded = b"\x01" + (len(encoded) + 2).to_bytes(2, "big") + encoded[1:]
    assert plain(decode(encoded)) == plain(packet)


@versions
@given(data=st.data())
def test_a_packet_cut_short_is_refused(version: str, data: st.DataObject) -> None:
    packets, encode, decode = CODECS[version]
    encoded = encode(data.draw(packets))
    cut = data.draw(st.integers(0, len(encoded) - 1))
    assert decode_or_refuse(decode, encoded[:cut]) is None


@versions
@given(data=st.data())
def test_noise_is_a_packet_or_a_protocol_error(version: str, data: st.DataObject) -> None:
    _, encode, decode = CODECS[version]
    kind = data.draw(st.integers(0, 255))
    packet = decode_or_refuse(decode, frame(kind, data.draw(st.binary(max_size=60))))
    if packet is not None:
        assert plain(decode(encode(packet))) == plain(packet)


@given(packets=st.lists(st.one_of(packets_12().map(v12.encode), packets_2().map(v2_encode.encode)), max_size=5))
def test_packets_one_behind_the_other_come_apart_again(packets: list[bytes]) -> None:
    assert datagrams(b"".join(packets), None) == packets


@given(packet=packets_2().map(v2_encode.encode), info=st.binary(max_size=100))
def test_an_envelope_of_2_0_counts_what_is_in_it(packet: bytes, info: bytes) -> None:
    wrapped = Envelope(2, b"", info).wrap(packet)
    assert stated_size(wrapped) == len(wrapped)
    assert wrapped.endswith(info + packet)


addresses = st.sampled_from(("one", "two", "three"))
anything = st.one_of(
    packets_12().map(v12.encode),
    packets_2().map(v2_encode.encode),
    st.binary(max_size=40),
    st.builds(frame, st.integers(0, 255), st.binary(max_size=30)),
)
connects = st.sampled_from(
    [bytes.fromhex("08 04 04 01 00 3C 63 31"), bytes.fromhex("0C 01 01 00 01 02 00 3C 00 00 63 32")]
)


@given(
    steps=st.lists(st.tuples(addresses, st.one_of(anything, connects), st.floats(0, 100)), max_size=40),
    open_topics=st.booleans(),
)
def test_a_gateway_survives_whatever_comes(steps: list[tuple[str, bytes, float]], open_topics: bool) -> None:
    """No exception, every datagram out is one packet, and strangers are sent no more than they sent."""
    world = World(open_filters=[b"#"] if open_topics else [], open_retain=True, predefined={7: b"a/b"})
    world.publish("a/b", "on", qos=1, retain=True)
    for address, data, seconds in steps:
        known = address in world.gateway.connections or address in world.gateway.pending
        earlier = world.taken(address)  # a goodbye when its time ran out, say: no answer to this datagram
        answers = world.send(address, data)
        for answer in earlier + answers:
            inner = answer[answer[0] :] if answer[1:2] == b"\xfe" and answer[0] < len(answer) else answer
            assert stated_size(inner) == len(inner)
        if not known and address not in world.gateway.connections and data[1:2] not in (b"\x01", b"\x17"):
            assert sum(map(len, answers)) <= max(len(data), 3)
        world.pass_time(seconds)
        assert len(world.gateway.connections) + len(world.gateway.pending) <= 6
    assert sum(world.gateway.hosts.values()) == len(world.gateway.connections) + len(world.gateway.pending)
