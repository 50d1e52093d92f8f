"""The packets of MQTT 3.1, 3.1.1 and 5.0: one model for all of them, version 5 parts are optional fields.

Topics and topic filters are UTF-8 bytes as they stand on the wire: the broker compares, splits and sends them without
ever decoding. Text that people read (client ids, user names, reason strings) is `str`.
"""

from typing import Final, final

from holdfast.protocol.mqtt.properties import Properties

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

V31: Final = 3
V311: Final = 4
V5: Final = 5
# What the broker calls the versions of MQTT-SN wherever it keeps a version's number: no MQTT has these.
SN12: Final = 1
SN2: Final = 2
PROTOCOL_NAMES: Final = {V31: "3.1", V311: "3.1.1", V5: "5.0", SN12: "SN1.2", SN2: "SN2.0"}


class Packet:
    """Any of the fifteen. `kind` is the packet type of the fixed header."""

    kind: int

    def __init__(self, kind: int) -> None:
        self.kind = kind


@final
class Will:
    def __init__(self, topic: bytes, payload: bytes, qos: int, retain: bool, properties: Properties | None) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties


@final
class Connect(Packet):
    def __init__(
        self,
        client_id: str,
        version: int,
        clean_start: bool,
        keep_alive: int,
        will: Will | None = None,
        username: str | None = None,
        password: bytes | None = None,
        properties: Properties | None = None,
    ) -> None:
        super().__init__(CONNECT)
        self.client_id = client_id
        self.version = version
        self.clean_start = clean_start  # CleanSession in 3.1.1
        self.keep_alive = keep_alive
        self.will = will
        self.username = username
        self.password = password
        self.properties = properties


@final
class ConnAck(Packet):
    def __init__(self, session_present: bool, reason: int, properties: Properties | None = None) -> None:
        super().__init__(CONNACK)
        self.session_present = session_present
        self.reason = reason  # the return code in 3.1.1
        self.properties = properties


@final
class Publish(Packet):
    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        properties: Properties | None = None,
    ) -> None:
        super().__init__(PUBLISH)
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.packet_id = packet_id  # 0 when QoS is 0
        self.properties = properties


@final
class Ack(Packet):
    """PUBACK, PUBREC, PUBREL or PUBCOMP, told apart by `kind`."""

    def __init__(self, kind: int, packet_id: int, reason: int = 0, properties: Properties | None = None) -> None:
        super().__init__(kind)
        self.packet_id = packet_id
        self.reason = reason
        self.properties = properties


@final
class SubscriptionRequest:
    """One topic filter of a SUBSCRIBE with its options."""

    def __init__(
        self,
        topic_filter: bytes,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
    ) -> None:
        self.topic_filter = topic_filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling


@final
class Subscribe(Packet):
    def __init__(
        self, packet_id: int, requests: list[SubscriptionRequest], properties: Properties | None = None
    ) -> None:
        super().__init__(SUBSCRIBE)
        self.packet_id = packet_id
        self.requests = requests
        self.properties = properties


@final
class Unsubscribe(Packet):
    def __init__(self, packet_id: int, topic_filters: list[bytes], properties: Properties | None = None) -> None:
        super().__init__(UNSUBSCRIBE)
        self.packet_id = packet_id
        self.topic_filters = topic_filters
        self.properties = properties


@final
class SubAck(Packet):
    """SUBACK or UNSUBACK (which has no reasons in 3.1.1), told apart by `kind`."""

    def __init__(self, kind: int, packet_id: int, reasons: list[int], properties: Properties | None = None) -> None:
        super().__init__(kind)
        self.packet_id = packet_id
        self.reasons = reasons
        self.properties = properties


@final
class Ping(Packet):
    """PINGREQ or PINGRESP, told apart by `kind`."""


@final
class Disconnect(Packet):
    def __init__(self, reason: int = 0, properties: Properties | None = None) -> None:
        super().__init__(DISCONNECT)
        self.reason = reason
        self.properties = properties


@final
class Auth(Packet):
    def __init__(self, reason: int = 0, properties: Properties | None = None) -> None:
        super().__init__(AUTH)
        self.reason = reason
        self.properties = properties
