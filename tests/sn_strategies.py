"""Hypothesis strategies for every packet of MQTT-SN, and which of them each version has."""

from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from holdfast.protocol.sn import packets as sn
from packet_strategies import payloads, texts, topics

Filled = TypeVar("Filled", bound=sn.Packet)
Topic = tuple[int, int, bytes]  # type, id and name

ids = st.integers(1, 0xFFFE)
packet_ids = st.integers(1, 0xFFFF)
u8s = st.integers(0, 255)
u16s = st.integers(0, 0xFFFF)
u32s = st.integers(0, 0xFFFFFFFF)
qoses = st.integers(0, 2)
codes_12 = st.integers(0, 3)
short_names = st.text("abcxyz/", min_size=2, max_size=2).map(str.encode)
methods = texts.filter(lambda text: len(text.encode()) < 256)


def filled(packet: Filled, **fields: object) -> Filled:
    for name, value in fields.items():
        setattr(packet, name, value)
    return packet


@st.composite
def topic_12(draw: st.DrawFn) -> Topic:
    """Type, id and topic of what may be published to."""
    kind = draw(st.sampled_from((sn.NORMAL, sn.PREDEFINED, sn.SHORT)))
    if kind == sn.SHORT:
        name = draw(short_names)
        return kind, int.from_bytes(name, "big"), name
    return kind, draw(u16s), b""


@st.composite
def filter_12(draw: st.DrawFn) -> Topic:
    kind, number, name = draw(topic_12())
    return (kind, 0, draw(topics)) if kind == sn.NORMAL else (kind, number, name)


@st.composite
def topic_2(draw: st.DrawFn, kinds: tuple[int, ...] = (sn.NORMAL, sn.PREDEFINED, sn.NAME)) -> Topic:
    kind = draw(st.sampled_from(kinds))
    return (kind, 0, draw(topics)) if kind == sn.NAME else (kind, draw(u16s), b"")


@st.composite
def connect_12(draw: st.DrawFn) -> sn.Connect:
    packet = sn.Connect(draw(texts), draw(u8s), draw(st.booleans()), draw(u16s))
    return filled(packet, asks_for_will=draw(st.booleans()))


@st.composite
def publish_12(draw: st.DrawFn) -> sn.Publish:
    kind, number, name = draw(topic_12())
    qos = draw(st.integers(-1, 2))
    return sn.Publish(kind, number, name, draw(payloads), qos, draw(st.booleans()), draw(st.booleans()), draw(u16s))


@st.composite
def subscribe_12(draw: st.DrawFn) -> sn.Subscribe:
    packet = sn.Subscribe(draw(u16s), *draw(filter_12()), draw(qoses))
    return filled(packet, dup=draw(st.booleans()))


def packets_12() -> SearchStrategy[sn.Packet]:
    return st.one_of(
        connect_12(),
        publish_12(),
        subscribe_12(),
        st.builds(lambda number, topic: sn.Unsubscribe(number, *topic), u16s, filter_12()),
        st.builds(sn.Advertise, u8s, u16s),
        st.builds(sn.SearchGateway, u8s),
        st.builds(sn.GatewayInfo, u8s, st.binary(max_size=8)),
        st.builds(sn.ConnAck, codes_12),
        st.builds(sn.Bare, st.sampled_from((sn.WILL_TOPIC_REQUEST, sn.WILL_MESSAGE_REQUEST))),
        st.builds(sn.WillTopic, topics, qoses, st.booleans(), st.booleans()),
        st.builds(lambda update: sn.WillTopic(b"", update=update), st.booleans()),
        st.builds(sn.WillMessage, payloads, st.booleans()),
        st.builds(sn.WillResponse, st.booleans(), codes_12),
        st.builds(sn.Register, u16s, u16s, topics),
        st.builds(sn.RegAck, u16s, u16s, codes_12),
        st.builds(lambda number, code, topic: sn.Ack(sn.PUBACK, number, code, topic), u16s, codes_12, u16s),
        st.builds(sn.Ack, st.sampled_from((sn.PUBREC, sn.PUBREL, sn.PUBCOMP, sn.UNSUBACK)), u16s),
        st.builds(
            lambda number, topic, code, qos: sn.SubAck(number, sn.NORMAL, topic, code, qos), u16s, u16s, codes_12, qoses
        ),
        st.builds(lambda text: sn.PingRequest(0, text), texts),
        st.builds(sn.PingResponse),
        st.builds(sn.Disconnect, st.one_of(st.just(sn.NONE), u16s)),
    )


@st.composite
def connect_2(draw: st.DrawFn) -> sn.Connect:
    packet = sn.Connect(draw(texts), 2, draw(st.booleans()), draw(st.integers(1, 0xFFFF)))
    will = None
    if draw(st.booleans()):
        will = sn.Will(*draw(topic_2()), draw(payloads), draw(qoses), draw(st.booleans()))
    method = draw(st.one_of(st.none(), methods))
    return filled(
        packet,
        packet_id=draw(packet_ids),
        max_packet_size=draw(st.one_of(st.just(0), st.integers(10, 0xFFFF))),
        will=will,
        expiry_s=draw(st.one_of(st.just(sn.NONE), u32s)),
        awake_messages=draw(st.one_of(st.just(sn.NONE), u8s)),
        takes_suggestions=draw(st.booleans()),
        may_move=draw(st.booleans()),
        auth_method=method,
        auth_data=draw(payloads) if method is not None else b"",
    )


@st.composite
def connack_2(draw: st.DrawFn) -> sn.ConnAck:
    packet = sn.ConnAck(draw(u8s), draw(packet_ids), draw(st.booleans()), draw(texts))
    method = draw(st.one_of(st.none(), methods))
    return filled(
        packet,
        expiry_s=draw(st.one_of(st.just(sn.NONE), u32s)),
        keep_alive_s=draw(st.one_of(st.just(sn.NONE), u16s)),
        auth_method=method,
        auth_data=draw(payloads) if method is not None else b"",
    )


@st.composite
def publish_2(draw: st.DrawFn) -> sn.Publish:
    qos = draw(qoses)
    return sn.Publish(
        *draw(topic_2()),
        draw(payloads),
        qos,
        draw(st.booleans()),
        qos == 2 and draw(st.booleans()),
        draw(packet_ids) if qos else 0,
    )


@st.composite
def subscribe_2(draw: st.DrawFn) -> sn.Subscribe:
    packet = sn.Subscribe(draw(packet_ids), *draw(topic_2()), draw(qoses))
    return filled(
        packet,
        no_local=draw(st.booleans()),
        retain_as_published=draw(st.booleans()),
        retain_handling=draw(st.integers(0, 2)),
    )


@st.composite
def suback_2(draw: st.DrawFn) -> sn.SubAck:
    alias = draw(st.one_of(st.just(sn.NONE), u16s))
    kind = sn.PREDEFINED if alias == sn.NONE else draw(st.sampled_from((sn.NORMAL, sn.PREDEFINED)))
    reason = draw(u8s)
    return sn.SubAck(draw(packet_ids), kind, alias, reason, reason if reason <= 2 else 0)


def packets_2() -> SearchStrategy[sn.Packet]:
    optional = st.just(sn.NONE)
    kinds = st.sampled_from((sn.PUBACK, sn.PUBREC, sn.PUBREL, sn.PUBCOMP, sn.UNSUBACK))
    aliases = st.sampled_from((sn.NORMAL, sn.PREDEFINED))
    without = topic_2((sn.PREDEFINED, sn.NAME))
    return st.one_of(
        connect_2(),
        connack_2(),
        publish_2(),
        subscribe_2(),
        suback_2(),
        st.builds(
            lambda topic, data, retain: sn.PublishWithoutSession(topic[0], topic[1], topic[2], data, retain),
            without,
            payloads,
            st.booleans(),
        ),
        st.builds(lambda number, topic: sn.Unsubscribe(number, *topic), packet_ids, topic_2()),
        st.builds(sn.Ack, kinds, packet_ids, u8s),
        st.builds(sn.Register, st.one_of(optional, u16s), packet_ids, topics),
        st.builds(sn.RegAck, st.one_of(optional, u16s), packet_ids, u8s, aliases),
        st.builds(sn.PingRequest, packet_ids),
        st.builds(sn.PingResponse, packet_ids, st.one_of(optional, u8s)),
        st.builds(
            sn.Disconnect,
            optional,
            st.one_of(optional, u8s),
            st.one_of(optional, u16s),
            st.one_of(optional, u32s),
            texts,
        ),
        st.builds(sn.Auth, packet_ids, u8s, methods, payloads),
        st.builds(sn.SleepRequest, packet_ids, st.integers(1, 0xFFFFFFFF), st.booleans()),
        st.builds(sn.SleepResponse, packet_ids, u8s, st.one_of(optional, u32s)),
        st.builds(sn.Bare, st.just(sn.WAKE_UP)),
        st.builds(sn.Advertise, u8s, u16s),
        st.builds(sn.SearchGateway, st.just(0), st.binary(max_size=8)),
        st.builds(sn.GatewayInfo, u8s, st.binary(max_size=8)),
    )
