"""Hypothesis strategies for every packet in every version, and packets as plain values that compare.

Compiled packet classes have no `__dict__` and no equality, so `plain` reads their public attributes: the same in both
builds.
"""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from holdfast.protocol.mqtt.packets import (
    CONNACK,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    SUBACK,
    UNSUBACK,
    V5,
    V31,
    V311,
    Ack,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Ping,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from holdfast.protocol.mqtt.properties import Properties
from holdfast.protocol.mqtt.reasons import ALLOWED_REASONS, SUBACK_311_CODES

Fields = Mapping[str, SearchStrategy[Any]]

VERSIONS = (V31, V311, V5)


def plain(value: object) -> object:
    """A packet, or anything inside one, as nested tuples; `forward` is left out because only decoding fills it."""
    if value is None or isinstance(value, (int, str, bytes)):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(plain(item) for item in value)
    names = [name for name in dir(value) if not name.startswith("_") and name != "forward"]
    fields = [(name, getattr(value, name)) for name in names]
    return (type(value).__name__, *((name, plain(field)) for name, field in fields if not callable(field)))


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
topics = texts.filter(bool).map(str.encode)
payloads = st.binary(max_size=200)
binaries = st.binary(max_size=40)
packet_ids = st.integers(1, 0xFFFF)
u16s = st.integers(0, 0xFFFF)
u32s = st.integers(0, 0xFFFFFFFF)
flags = st.integers(0, 1)
qoses = st.integers(0, 2)
user_properties = st.lists(st.tuples(texts, texts), min_size=1, max_size=4)
plain_topics = topics.filter(lambda topic: b"#" not in topic and b"+" not in topic)

_MESSAGE: dict[str, SearchStrategy[Any]] = {
    "payload_format": flags,
    "message_expiry": u32s,
    "content_type": texts,
    "response_topic": plain_topics,
    "correlation_data": binaries,
    "user_properties": user_properties,
}
_ANSWER: dict[str, SearchStrategy[Any]] = {"reason_string": texts, "user_properties": user_properties}
_LIMITS: dict[str, SearchStrategy[Any]] = {
    "session_expiry": u32s,
    "receive_maximum": st.integers(1, 0xFFFF),
    "maximum_packet_size": st.integers(1, 0xFFFFFFFF),
    "topic_alias_maximum": u16s,
}
_SERVER: dict[str, SearchStrategy[Any]] = {
    "assigned_client_id": texts,
    "server_keep_alive": u16s,
    "response_info": texts,
    "server_reference": texts,
    "maximum_qos": flags,
    "retain_available": flags,
    "wildcard_available": flags,
    "subscription_id_available": flags,
    "shared_available": flags,
}


@st.composite
def properties_of(draw: st.DrawFn, fields: Fields, authentication: bool = False) -> Properties | None:
    """Any subset of those properties; `None` for the empty one, as decoding gives it."""
    chosen = Properties()
    filled = False
    for name, values in fields.items():
        if draw(st.booleans()):
            setattr(chosen, name, draw(values))
            filled = True
    if authentication and draw(st.booleans()):
        chosen.auth_method = draw(texts)
        chosen.auth_data = draw(st.none() | binaries)
        filled = True
    return chosen if filled else None


def _if_v5(version: int, properties: SearchStrategy[Properties | None]) -> SearchStrategy[Properties | None]:
    return properties if version == V5 else st.none()


@st.composite
def connects(draw: st.DrawFn, version: int) -> Connect:
    username = draw(st.none() | texts)
    password = draw(st.none() | binaries) if username is not None or version == V5 else None
    will = None
    if draw(st.booleans()):
        will_properties = draw(_if_v5(version, properties_of(_MESSAGE | {"will_delay": u32s})))
        will = Will(draw(topics), draw(payloads), draw(qoses), draw(st.booleans()), will_properties)
    requests = {"request_problem_info": flags, "request_response_info": flags, "user_properties": user_properties}
    properties = draw(_if_v5(version, properties_of(_LIMITS | requests, authentication=True)))
    return Connect(draw(texts), version, draw(st.booleans()), draw(u16s), will, username, password, properties)


@st.composite
def connacks(draw: st.DrawFn, version: int) -> ConnAck:
    reasons = sorted(ALLOWED_REASONS[CONNACK]) if version == V5 else range(6)
    properties = draw(_if_v5(version, properties_of(_LIMITS | _SERVER | _ANSWER, authentication=True)))
    return ConnAck(draw(st.booleans()), draw(st.sampled_from(reasons)), properties)


@st.composite
def publishes(draw: st.DrawFn, version: int, from_server: bool = False) -> Publish:
    qos = draw(qoses)
    fields: dict[str, SearchStrategy[Any]] = _MESSAGE | {"topic_alias": st.integers(1, 0xFFFF)}
    if from_server:
        fields["subscription_ids"] = st.lists(st.integers(1, 268_435_455), min_size=1, max_size=3)
    properties = draw(_if_v5(version, properties_of(fields)))
    aliased = properties is not None and properties.topic_alias is not None
    topic = b"" if aliased and draw(st.booleans()) else draw(topics)
    packet_id = draw(packet_ids) if qos else 0
    dup = bool(qos) and draw(st.booleans())
    return Publish(topic, draw(payloads), qos, draw(st.booleans()), dup, packet_id, properties)


@st.composite
def acks(draw: st.DrawFn, version: int) -> Ack:
    kind = draw(st.sampled_from((PUBACK, PUBREC, PUBREL, PUBCOMP)))
    if version != V5:
        return Ack(kind, draw(packet_ids))
    reason = draw(st.sampled_from(sorted(ALLOWED_REASONS[kind])))
    return Ack(kind, draw(packet_ids), reason, draw(properties_of(_ANSWER)))


@st.composite
def subscribes(draw: st.DrawFn, version: int) -> Subscribe:
    requests = []
    for topic_filter in draw(st.lists(topics, min_size=1, max_size=4)):
        if version == V5:
            no_local = not topic_filter.startswith(b"$share/") and draw(st.booleans())
            handling = draw(st.integers(0, 2))
            requests.append(SubscriptionRequest(topic_filter, draw(qoses), no_local, draw(st.booleans()), handling))
        else:
            requests.append(SubscriptionRequest(topic_filter, draw(qoses)))
    fields = {
        "subscription_ids": st.lists(st.integers(1, 268_435_455), min_size=1, max_size=1),
        "user_properties": user_properties,
    }
    return Subscribe(draw(packet_ids), requests, draw(_if_v5(version, properties_of(fields))))


@st.composite
def subacks(draw: st.DrawFn, version: int) -> SubAck:
    kind = draw(st.sampled_from((SUBACK, UNSUBACK)))
    if version == V5:
        codes = sorted(ALLOWED_REASONS[kind])
    elif kind == UNSUBACK:
        return SubAck(kind, draw(packet_ids), [])
    else:
        codes = sorted(SUBACK_311_CODES)
    reasons = draw(st.lists(st.sampled_from(codes), min_size=1, max_size=5))
    return SubAck(kind, draw(packet_ids), reasons, draw(_if_v5(version, properties_of(_ANSWER))))


@st.composite
def unsubscribes(draw: st.DrawFn, version: int) -> Unsubscribe:
    properties = draw(_if_v5(version, properties_of({"user_properties": user_properties})))
    return Unsubscribe(draw(packet_ids), draw(st.lists(topics, min_size=1, max_size=4)), properties)


@st.composite
def disconnects(draw: st.DrawFn, version: int, from_server: bool = False) -> Disconnect:
    if version != V5:
        return Disconnect()
    fields: dict[str, SearchStrategy[Any]] = _ANSWER | {"server_reference": texts}
    if not from_server:
        fields["session_expiry"] = u32s
    return Disconnect(draw(st.sampled_from(sorted(ALLOWED_REASONS[14]))), draw(properties_of(fields)))


@st.composite
def auths(draw: st.DrawFn) -> Auth:
    if draw(st.booleans()):
        return Auth()
    properties = draw(properties_of(_ANSWER)) or Properties()
    properties.auth_method = draw(texts)
    properties.auth_data = draw(st.none() | binaries)
    return Auth(draw(st.sampled_from((0x00, 0x18, 0x19))), properties)


pings = st.sampled_from((PINGREQ, PINGRESP)).map(Ping)


def packets(version: int, from_server: bool = False) -> SearchStrategy[Packet]:
    """Every packet that side may send in that version."""
    both: list[SearchStrategy[Packet]] = [
        publishes(version, from_server),
        acks(version),
        pings,
        disconnects(version, from_server),
    ]
    if version == V5:
        both.append(auths())
    if from_server:
        return st.one_of(*both, connacks(version), subacks(version))
    return st.one_of(*both, connects(version), subscribes(version), unsubscribes(version))
