"""MQTT 5 properties: one class with a field for each, `None` where absent.

`forward` holds the properties of a PUBLISH (or will) that a server passes on unaltered and in order: payload format,
content type, response topic, correlation data and user properties, as the bytes that came in. What a server changes or
consumes (message expiry, topic alias, subscription identifier, will delay) is left out of it.
"""

from typing import Final, final

PAYLOAD_FORMAT: Final = 0x01
MESSAGE_EXPIRY: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
SUBSCRIPTION_ID: Final = 0x0B
SESSION_EXPIRY: Final = 0x11
ASSIGNED_CLIENT_ID: Final = 0x12
SERVER_KEEP_ALIVE: Final = 0x13
AUTH_METHOD: Final = 0x15
AUTH_DATA: Final = 0x16
REQUEST_PROBLEM_INFO: Final = 0x17
WILL_DELAY: Final = 0x18
REQUEST_RESPONSE_INFO: Final = 0x19
RESPONSE_INFO: Final = 0x1A
SERVER_REFERENCE: Final = 0x1C
REASON_STRING: Final = 0x1F
RECEIVE_MAXIMUM: Final = 0x21
TOPIC_ALIAS_MAXIMUM: Final = 0x22
TOPIC_ALIAS: Final = 0x23
MAXIMUM_QOS: Final = 0x24
RETAIN_AVAILABLE: Final = 0x25
USER_PROPERTY: Final = 0x26
MAXIMUM_PACKET_SIZE: Final = 0x27
WILDCARD_AVAILABLE: Final = 0x28
SUBSCRIPTION_ID_AVAILABLE: Final = 0x29
SHARED_AVAILABLE: Final = 0x2A


@final
class Properties:
    def __init__(self) -> None:
        self.payload_format: int | None = None
        self.message_expiry: int | None = None
        self.content_type: str | None = None
        self.response_topic: bytes | None = None
        self.correlation_data: bytes | None = None
        self.subscription_ids: list[int] | None = None
        self.session_expiry: int | None = None
        self.assigned_client_id: str | None = None
        self.server_keep_alive: int | None = None
        self.auth_method: str | None = None
        self.auth_data: bytes | None = None
        self.request_problem_info: int | None = None
        self.will_delay: int | None = None
        self.request_response_info: int | None = None
        self.response_info: str | None = None
        self.server_reference: str | None = None
        self.reason_string: str | None = None
        self.receive_maximum: int | None = None
        self.topic_alias_maximum: int | None = None
        self.topic_alias: int | None = None
        self.maximum_qos: int | None = None
        self.retain_available: int | None = None
        self.user_properties: list[tuple[str, str]] | None = None
        self.maximum_packet_size: int | None = None
        self.wildcard_available: int | None = None
        self.subscription_id_available: int | None = None
        self.shared_available: int | None = None
        self.forward: bytes = b""

    def user_property(self, name: str) -> str | None:
        """The first user property of that name."""
        if self.user_properties is not None:
            for key, value in self.user_properties:
                if key == name:
                    return value
        return None
