"""The packets of MQTT-SN 1.2 and 2.0: one model for both, whatever code and layout a version gives them.

Fields that only one version has are optional. `NONE` stands for a number that is not there. Topics and topic filters
are UTF-8 bytes, as everywhere; a short topic name of 1.2 is both `topic` (its two bytes) and `topic_id` (the same as a
number).
"""

from typing import Final, final

NONE: Final = -1

# What the field after the flags means. NAME is a full topic name: in 1.2 only where a topic filter stands.
NORMAL: Final = 0  # an id or alias that belongs to one client
PREDEFINED: Final = 1
SHORT: Final = 2  # 1.2; reserved in 2.0
NAME: Final = 3  # 2.0


# Acknowledgements, and messages that are nothing but their type.
PUBACK: Final = 1
PUBREC: Final = 2
PUBREL: Final = 3
PUBCOMP: Final = 4
UNSUBACK: Final = 5
WILL_TOPIC_REQUEST: Final = 6
WILL_MESSAGE_REQUEST: Final = 7
WAKE_UP: Final = 8


class Packet:
    """Any of them."""


@final
class Advertise(Packet):
    def __init__(self, gateway_id: int, duration_s: int) -> None:
        self.gateway_id = gateway_id
        self.duration_s = duration_s


@final
class SearchGateway(Packet):
    """`radius` is of 1.2, `extra` of 2.0."""

    def __init__(self, radius: int = 0, extra: bytes = b"") -> None:
        self.radius = radius
        self.extra = extra


@final
class GatewayInfo(Packet):
    def __init__(self, gateway_id: int, address: bytes = b"") -> None:
        self.gateway_id = gateway_id
        self.address = address


@final
class Will:
    """The will as it stands in CONNECT of 2.0: its topic may be an alias."""

    def __init__(
        self, topic_type: int, topic_id: int, topic: bytes, payload: bytes, qos: int = 0, retain: bool = False
    ) -> None:
        self.topic_type = topic_type
        self.topic_id = topic_id
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain


@final
class Connect(Packet):
    """In 1.2 `asks_for_will` starts the prompting; in 2.0 the will is here."""

    def __init__(self, client_id: str, version: int, clean_start: bool, keep_alive_s: int) -> None:
        self.client_id = client_id
        self.version = version  # the byte on the wire: 1 or 2
        self.clean_start = clean_start
        self.keep_alive_s = keep_alive_s
        self.asks_for_will = False
        self.packet_id = 0
        self.max_packet_size = 0  # 0: no limit
        self.will: Will | None = None
        self.expiry_s: int = NONE
        self.awake_messages: int = NONE
        self.takes_suggestions = False
        self.may_move = False
        self.auth_method: str | None = None
        self.auth_data = b""


@final
class ConnAck(Packet):
    def __init__(self, reason: int, packet_id: int = 0, session_present: bool = False, client_id: str = "") -> None:
        self.reason = reason
        self.packet_id = packet_id
        self.session_present = session_present
        self.client_id = client_id
        self.expiry_s: int = NONE
        self.keep_alive_s: int = NONE
        self.auth_method: str | None = None
        self.auth_data = b""


@final
class Bare(Packet):
    """WILLTOPICREQ, WILLMSGREQ, WAKEUP."""

    def __init__(self, kind: int) -> None:
        self.kind = kind


@final
class WillTopic(Packet):
    """An empty topic deletes the will. `update` tells WILLTOPICUPD from WILLTOPIC."""

    def __init__(self, topic: bytes, qos: int = 0, retain: bool = False, update: bool = False) -> None:
        self.topic = topic
        self.qos = qos
        self.retain = retain
        self.update = update


@final
class WillMessage(Packet):
    def __init__(self, payload: bytes, update: bool = False) -> None:
        self.payload = payload
        self.update = update


@final
class WillResponse(Packet):
    """WILLTOPICRESP or WILLMSGRESP."""

    def __init__(self, of_topic: bool, reason: int) -> None:
        self.of_topic = of_topic
        self.reason = reason


@final
class Register(Packet):
    """`topic_id` is 0 (1.2) or NONE (2.0) when a client asks for one."""

    def __init__(self, topic_id: int, packet_id: int, topic: bytes) -> None:
        self.topic_id = topic_id
        self.packet_id = packet_id
        self.topic = topic


@final
class RegAck(Packet):
    def __init__(self, topic_id: int, packet_id: int, reason: int, topic_type: int = NORMAL) -> None:
        self.topic_id = topic_id
        self.packet_id = packet_id
        self.reason = reason
        self.topic_type = topic_type


@final
class Publish(Packet):
    def __init__(
        self,
        topic_type: int,
        topic_id: int,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
    ) -> None:
        self.topic_type = topic_type
        self.topic_id = topic_id
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.packet_id = packet_id


@final
class PublishWithoutSession(Packet):
    """PUBWOS of 2.0. In 1.2 it is a PUBLISH at QoS -1."""

    def __init__(self, topic_type: int, topic_id: int, topic: bytes, payload: bytes, retain: bool = False) -> None:
        self.topic_type = topic_type
        self.topic_id = topic_id
        self.topic = topic
        self.payload = payload
        self.retain = retain


@final
class Ack(Packet):
    """PUBACK, PUBREC, PUBREL, PUBCOMP, UNSUBACK. Only PUBACK of 1.2 has a topic id."""

    def __init__(self, kind: int, packet_id: int, reason: int = 0, topic_id: int = 0) -> None:
        self.kind = kind
        self.packet_id = packet_id
        self.reason = reason
        self.topic_id = topic_id


@final
class Subscribe(Packet):
    """`topic` is a topic filter, or empty when the subscription is by id."""

    def __init__(self, packet_id: int, topic_type: int, topic_id: int, topic: bytes, qos: int = 0) -> None:
        self.packet_id = packet_id
        self.topic_type = topic_type
        self.topic_id = topic_id
        self.topic = topic
        self.qos = qos
        self.dup = False
        self.no_local = False
        self.retain_as_published = False
        self.retain_handling = 0


@final
class SubAck(Packet):
    """In 2.0 the granted QoS is the reason; in 1.2 both are there. `topic_id` NONE: no alias returned (2.0)."""

    def __init__(self, packet_id: int, topic_type: int, topic_id: int, reason: int, qos: int = 0) -> None:
        self.packet_id = packet_id
        self.topic_type = topic_type
        self.topic_id = topic_id
        self.reason = reason
        self.qos = qos


@final
class Unsubscribe(Packet):
    def __init__(self, packet_id: int, topic_type: int, topic_id: int, topic: bytes) -> None:
        self.packet_id = packet_id
        self.topic_type = topic_type
        self.topic_id = topic_id
        self.topic = topic


@final
class PingRequest(Packet):
    """1.2 has the client id, of a client that wakes; 2.0 has the packet id."""

    def __init__(self, packet_id: int = 0, client_id: str = "") -> None:
        self.packet_id = packet_id
        self.client_id = client_id


@final
class PingResponse(Packet):
    def __init__(self, packet_id: int = 0, remaining: int = NONE) -> None:
        self.packet_id = packet_id
        self.remaining = remaining


@final
class Disconnect(Packet):
    """1.2 knows only the duration, with which a client goes to sleep; 2.0 only the rest."""

    def __init__(
        self, duration_s: int = NONE, reason: int = NONE, packet_id: int = NONE, expiry_s: int = NONE, text: str = ""
    ) -> None:
        self.duration_s = duration_s
        self.reason = reason
        self.packet_id = packet_id
        self.expiry_s = expiry_s
        self.text = text


@final
class Auth(Packet):
    def __init__(self, packet_id: int, reason: int, method: str, data: bytes) -> None:
        self.packet_id = packet_id
        self.reason = reason
        self.method = method
        self.data = data


@final
class SleepRequest(Packet):
    def __init__(self, packet_id: int, duration_s: int, keeps_aliases: bool) -> None:
        self.packet_id = packet_id
        self.duration_s = duration_s
        self.keeps_aliases = keeps_aliases


@final
class SleepResponse(Packet):
    def __init__(self, packet_id: int, reason: int = 0, duration_s: int = NONE) -> None:
        self.packet_id = packet_id
        self.reason = reason
        self.duration_s = duration_s
