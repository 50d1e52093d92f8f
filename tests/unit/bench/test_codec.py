"""The generator's codec against packets built independently of it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_bench.codec import (
    Histogram,
    PublishFrame,
    ReceiveParser,
    encode_connect,
    encode_subscribe,
    encode_unsubscribe,
    fleet_topic,
    publish_block,
    retained_block,
    subscribe_block,
    varint,
)
from wire import P
from wire_packets import connect, puback, pubcomp, publish, pubrec, pubrel, subscribe, unsubscribe

VERSIONS = pytest.mark.parametrize("version", [4, 5], ids=["v311", "v5"])


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (16383, "ff7f"), (16384, "808001"), (268435455, "ffffff7f")],
)
def test_varint_is_the_specifications(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 64, 300])
def test_block_is_whole_publish_packets_in_a_row(version: int, qos: int, size: int) -> None:
    frame = PublishFrame(b"a/b", b"x" * size, qos, True, version)
    ids: list[int | None] = [5, 6, 7] if qos else [None] * 3
    expected = [publish("a/b", b"x" * size, qos=qos, retain=True, packet_id=i, version=version) for i in ids]
    assert frame.block(3, 5) == b"".join(expected)
    assert frame.size == len(expected[0])


def test_packet_ids_go_from_65535_to_1_and_never_to_0() -> None:
    block = PublishFrame(b"t", b"", 1, False, 4).block(3, 65534)
    assert block == b"".join(publish("t", b"", qos=1, packet_id=i) for i in (65534, 65535, 1))


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1])
def test_stamped_block_begins_each_payload_with_the_send_time(version: int, qos: int) -> None:
    block = PublishFrame(b"t", b"x" * 10, qos, False, version).stamped_block(2, 9, 0x0102030405060708)
    payload = bytes(range(1, 9)) + b"xx"
    ids: list[int | None] = [9, 10] if qos else [None, None]
    assert block == b"".join(publish("t", payload, qos=qos, packet_id=i, version=version) for i in ids)


def test_expiry_interval_travels_as_a_property() -> None:
    expected = publish("t", b"x", version=5, retain=True, properties=[(P.MESSAGE_EXPIRY, 30)])
    assert PublishFrame(b"t", b"x", 0, True, 5, 30).block(1) == expected
    assert retained_block(b"t%i", 1, 1, b"x", 5, 30) == publish(
        "t1", b"x", version=5, retain=True, properties=[(P.MESSAGE_EXPIRY, 30)]
    )


@VERSIONS
def test_retained_block_numbers_its_topics(version: int) -> None:
    expected = [publish(f"r/{i}/v", b"abc", retain=True, version=version) for i in (8, 9, 10)]
    assert retained_block(b"r/%i/v", 8, 3, b"abc", version) == b"".join(expected)


@VERSIONS
def test_publish_block_numbers_its_topics_and_retains_nothing(version: int) -> None:
    expected = [publish(f"r/{i}", b"abc", version=version) for i in (0, 1)]
    assert publish_block(b"r/%i", 0, 2, b"abc", version) == b"".join(expected)


@VERSIONS
def test_subscribe_block_has_one_filter_per_packet(version: int) -> None:
    expected = [subscribe(i + 1, [(f"f/{i}/+", 1)], version=version) for i in (0, 1)]
    assert subscribe_block(b"f/%i/+", 0, 2, 1, version) == b"".join(expected)


def test_fleet_topics_are_all_different() -> None:
    topics = {fleet_topic(index) for index in range(20_000)}
    assert len(topics) == 20_000
    assert fleet_topic(123_456) == b"site/6/line/9/dev123456/temp"


@VERSIONS
def test_control_frames_are_the_specifications(version: int) -> None:
    properties = [(P.RECEIVE_MAXIMUM, 65535)] if version == 5 else []
    expected = connect(
        "id", version=version, keep_alive=7, username="u", password=b"p", clean=True, properties=properties
    )
    assert encode_connect("id", version, keep_alive_s=7, username="u", password="p") == expected
    assert encode_subscribe(3, ["a", "b/#"], 2, version) == subscribe(3, [("a", 2), ("b/#", 2)], version=version)
    assert encode_unsubscribe(3, ["a", "b/#"], version) == unsubscribe(3, ["a", "b/#"], version=version)


def stream(version: int) -> bytes:
    """One of everything a broker sends, messages of one, two and three length bytes among it."""
    return b"".join(
        [
            b"\x20\x03\x00\x00\x00" if version == 5 else b"\x20\x02\x00\x00",
            b"\x90\x04\x00\x01\x00\x00" if version == 5 else b"\x90\x03\x00\x01\x00",
            publish("t", b"x" * 20, version=version),
            publish("t", b"x" * 200, qos=1, packet_id=0x1234, version=version),
            publish("t", b"x" * 20_000, qos=2, packet_id=2, retain=True, version=version),
            publish("t", b"", qos=1, packet_id=3, dup=True, version=version),
            puback(7),
            pubrec(8),
            pubrel(9),
            pubcomp(10),
            b"\xd0\x00",
        ]
    )


def check_whole_stream(received: ReceiveParser, owed: bytes) -> None:
    assert (received.messages, received.retained, received.duplicates) == (4, 1, 1)
    assert (received.connected, received.subscribed, received.acknowledged, received.pongs) == (0, 1, 2, 1)
    assert received.refused == 0
    assert owed == b"".join([puback(0x1234), pubrec(2), puback(3), pubrel(8), pubcomp(9)])


@VERSIONS
def test_parser_counts_one_of_everything_and_owes_the_right_answers(version: int) -> None:
    received = ReceiveParser(version)
    owed = received.feed(stream(version), 0)
    check_whole_stream(received, owed)


@given(st.sampled_from([4, 5]), st.lists(st.integers(0, 20_500), max_size=12))
def test_any_split_of_the_stream_counts_the_same(version: int, cuts: list[int]) -> None:
    data = stream(version)
    edges = [0, *sorted(cut % len(data) for cut in cuts), len(data)]
    received = ReceiveParser(version)
    owed = b"".join(received.feed(data[a:b], 0) for a, b in itertools.pairwise(edges))
    check_whole_stream(received, owed)


@VERSIONS
def test_stream_fed_byte_by_byte_counts_the_same(version: int) -> None:
    data = stream(version)
    received = ReceiveParser(version)
    owed = b"".join(received.feed(data[i : i + 1], 0) for i in range(len(data)))
    check_whole_stream(received, owed)


def test_reason_codes_from_0x80_on_count_as_refused() -> None:
    received = ReceiveParser(5)
    assert received.feed(puback(1, 0x97) + puback(2, 0x10), 0) == b""
    assert (received.acknowledged, received.refused) == (2, 1)


def test_refusing_pubrec_ends_the_exchange() -> None:
    received = ReceiveParser(5)
    assert received.feed(pubrec(1, 0x97), 0) == b""
    assert (received.acknowledged, received.refused) == (1, 1)


def test_refused_subscription_is_seen() -> None:
    received = ReceiveParser(4)
    received.feed(b"\x90\x03\x00\x01\x80", 0)
    assert (received.subscribed, received.refused) == (1, 1)


@pytest.mark.parametrize(
    ("connack", "allowed"),
    [
        ("20 03 00 00 00", 65535),
        ("20 06 00 00 03 21 00 0a", 10),
        ("20 14 00 00 11 25 01 27 00 10 00 00 12 00 01 41 22 00 0a 21 01 00", 256),
        ("20 10 00 00 0d 26 00 01 61 00 02 62 63 2a 00 21 00 05", 5),
    ],
)
def test_receive_maximum_of_the_broker_is_found_among_its_properties(connack: str, allowed: int) -> None:
    packet = bytes.fromhex(connack)
    assert packet[1] == len(packet) - 2
    received = ReceiveParser(5)
    received.feed(packet, 0)
    assert (received.connected, received.receive_maximum) == (0, allowed)


def test_disconnect_reason_is_kept() -> None:
    received = ReceiveParser(5)
    received.feed(b"\xe0\x02\x8b\x00", 0)
    assert received.disconnected == 0x8B


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_latency_is_arrival_less_the_stamp(version: int, qos: int) -> None:
    received = ReceiveParser(version, stamped=True)
    received.feed(PublishFrame(b"a/b", bytes(64), qos, False, version).stamped_block(3, 1, 1_000), 1_100)
    assert (received.latencies.total, received.latencies.highest) == (3, 100)
    assert received.latencies.percentile(0.5) == 100


@given(st.lists(st.integers(0, 10**11), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99, 0.999, 1.0]))
def test_percentile_is_within_a_sixty_fourth_of_the_exact_one(values: list[int], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    wanted = share * len(values)
    exact = next(v for i, v in enumerate(sorted(values), 1) if i >= wanted)
    assert exact <= histogram.percentile(share) <= exact * (1 + 1 / 64)


@given(st.lists(st.integers(0, 10**10), max_size=50), st.lists(st.integers(0, 10**10), max_size=50))
def test_merged_histograms_equal_one_that_saw_everything(left: list[int], right: list[int]) -> None:
    whole, first, second = Histogram(), Histogram(), Histogram()
    for value in left:
        whole.add(value)
        first.add(value)
    for value in right:
        whole.add(value)
        second.add(value)
    first.merge(second.highest, second.export())
    assert (first.total, first.highest, first.export()) == (whole.total, whole.highest, whole.export())


def test_empty_histogram_answers_zero() -> None:
    assert Histogram().percentile(0.99) == 0
