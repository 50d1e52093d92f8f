"""Which topics a bridge takes where, and what of a message goes along."""

from hashlib import blake2b
from typing import Final

from holdfast.broker.topics import matches
from holdfast.protocol.mqtt.properties import Properties
from holdfast.rules.bridge_topic import VIA, BridgeTopic
from holdfast.service.messages import decode_forwarded

MOST_HOPS: Final = 16
# What is about the way and not about the message.
NOT_CONTENT: Final = frozenset([VIA, "hf-offset", "hf-stored-at", "hf-publisher"])
CACHED: Final = 10_000
DIGEST_BYTES: Final = 16


class Plan:
    """The lines of a bridge. The first that matches decides, as in mosquitto."""

    def __init__(self, topics: tuple[BridgeTopic, ...]) -> None:
        self.outward = [topic for topic in topics if topic.goes_out]
        self.inward = [topic for topic in topics if topic.comes_in]
        self._out = [(topic.local_filter.encode().split(b"/"), topic) for topic in self.outward]
        self._in = [(topic.remote_filter.encode().split(b"/"), topic) for topic in self.inward]
        self._known_out: dict[bytes, BridgeTopic | None] = {}
        self._known_in: dict[bytes, BridgeTopic | None] = {}

    def outgoing(self, topic: bytes) -> BridgeTopic | None:
        return find(topic, self._out, self._known_out)

    def incoming(self, topic: bytes) -> BridgeTopic | None:
        return find(topic, self._in, self._known_in)

    def incoming_here(self, topic: bytes) -> BridgeTopic | None:
        """The line by which a topic of ours has come in."""
        for rule in self.inward:
            if matches(rule.local_filter.encode().split(b"/"), topic.split(b"/")):
                return rule
        return None


def find(
    topic: bytes, rules: list[tuple[list[bytes], BridgeTopic]], known: dict[bytes, BridgeTopic | None]
) -> BridgeTopic | None:
    if topic in known:
        return known[topic]
    levels = topic.split(b"/")
    found = next((rule for filter_levels, rule in rules if matches(filter_levels, levels)), None)
    if len(known) >= CACHED:
        known.clear()
    known[topic] = found
    return found


def digest(payload: bytes, forwarded: bytes, version: int) -> bytes:
    """What tells two contents of a topic apart, as far as the other side can hold them: MQTT 3.1.1 has payloads only.
    QoS makes no difference: a subscription may lower it.
    """
    found = blake2b(payload, digest_size=DIGEST_BYTES)
    if forwarded and version == 5:
        properties = decode_forwarded(forwarded)
        pairs = [pair for pair in properties.user_properties or [] if pair[0] not in NOT_CONTENT]
        content = (
            properties.content_type,
            properties.response_topic,
            properties.correlation_data,
            properties.payload_format,
            pairs,
        )
        if content != (None, None, None, None, []):
            found.update(repr(content).encode())
    return found.digest()


def passed(properties: Properties | None) -> list[str]:
    """The brokers that a message has come over."""
    if properties is None or properties.user_properties is None:
        return []
    return [value for name, value in properties.user_properties if name == VIA]


def carry(properties: Properties | None, expiry_s: int, via: str = "") -> Properties:
    """What of a message's properties goes along, with one more broker on its way."""
    to = Properties()
    pairs: list[tuple[str, str]] = []
    if properties is not None:
        to.payload_format = properties.payload_format
        to.message_expiry = properties.message_expiry
        to.content_type = properties.content_type
        to.response_topic = properties.response_topic
        to.correlation_data = properties.correlation_data
        pairs = [pair for pair in properties.user_properties or [] if pair[0] == VIA or pair[0] not in NOT_CONTENT]
    if expiry_s:
        to.message_expiry = expiry_s if to.message_expiry is None else min(expiry_s, to.message_expiry)
    if via:
        pairs.append((VIA, via))
    to.user_properties = pairs or None
    return to
