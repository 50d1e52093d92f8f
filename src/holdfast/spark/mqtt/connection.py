"""One connection to a broker on paho, made from options, and its messages as rows of the history's columns.

Options are plain values until `PahoConnection` opens them, because they go to executors. Its owner polls paho's loop,
in the owner's thread: callbacks then run where the data is used, and a task that ends leaves no thread behind.
"""

import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import paho.mqtt.client as paho
import pyarrow as pa
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from holdfast.errors import ProtocolError, UsageError
from holdfast.history.schema import OUTCOME_CLEARED, OUTCOME_LIVE, OUTCOME_SET, arrow_schema
from holdfast.spark.options import Options

# Bahir's names first; `host`, `port`, `filter` and `user` are what people type, `subscribe` and `kafka.*` are Kafka's.
BROKER_OPTIONS = (
    "brokerUrl",
    "kafka.bootstrap.servers",
    "path",
    "host",
    "port",
    "topic",
    "filter",
    "subscribe",
    "QoS",
    "clientId",
    "cleanSession",
    "username",
    "user",
    "password",
    "protocolVersion",
    "keepAlive",
    "connectionTimeout",
    "caFile",
    "certFile",
    "keyFile",
    "insecure",
)
SCHEMES = {
    "tcp": (1883, False, "tcp"),
    "mqtt": (1883, False, "tcp"),
    "ssl": (8883, True, "tcp"),
    "tls": (8883, True, "tcp"),
    "mqtts": (8883, True, "tcp"),
    "ws": (8083, False, "websockets"),
    "wss": (8084, True, "websockets"),
}
VERSIONS = {"3.1.1": paho.MQTTv311, "4": paho.MQTTv311, "5": paho.MQTTv5, "5.0": paho.MQTTv5}
REFUSED_VERSION = (0x84, 0x01)
META = ("hf-offset", "hf-stored-at", "hf-publisher")


class Address(NamedTuple):
    host: str
    port: int
    tls: bool
    transport: str
    path: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class BrokerOptions:
    """Where and as whom to connect. Picklable."""

    def __init__(self, options: Options) -> None:
        url = options.text("brokerUrl", "path", "kafka.bootstrap.servers")
        self.username = options.text("username", "user")
        self.password = options.text("password")
        self.address = self._address(url, options)
        version = options.text("protocolVersion")
        if version is not None and version not in VERSIONS:
            raise UsageError(f"option 'protocolVersion': expected 3.1.1 or 5, got {version!r}")
        self.version = None if version is None else int(VERSIONS[version])
        self.keep_alive = options.number("keepAlive", default=60, least=1, most=65535) or 60
        self.timeout = options.seconds("connectionTimeout", default=10.0)
        self.ca_file = options.text("caFile")
        self.cert_file = options.text("certFile")
        self.key_file = options.text("keyFile")
        self.insecure = options.flag("insecure", default=False)

    def _address(self, url: str | None, options: Options) -> Address:
        if url is None:
            return Address(
                options.text("host") or "127.0.0.1",
                options.number("port", default=1883, least=1, most=65535) or 1883,
                options.text("caFile") is not None,
                "tcp",
                "/mqtt",
            )
        parts = urlsplit(url if "://" in url else f"tcp://{url}")
        if parts.scheme not in SCHEMES or not parts.hostname:
            raise UsageError(f"option 'brokerUrl': expected {', '.join(SCHEMES)} followed by ://host:port, got {url!r}")
        try:
            given = parts.port
        except ValueError:
            raise UsageError(f"option 'brokerUrl': expected a port from 1 to 65535 in {url!r}") from None
        port, tls, transport = SCHEMES[parts.scheme]
        if parts.username is not None and self.username is None:
            self.username = unquote(parts.username)
        if parts.password is not None and self.password is None:
            self.password = unquote(parts.password)
        return Address(parts.hostname, given or port, tls, transport, parts.path or "/mqtt")


class PahoConnection:
    """An open connection. `poll` moves it; every failure of the broker's side is a ProtocolError with its reason."""

    def __init__(
        self,
        options: BrokerOptions,
        *,
        client_id: str = "",
        clean: bool = True,
        session_expiry_s: int = 0,
        receive_maximum: int | None = None,
        user_properties: tuple[tuple[str, str], ...] = (),
        manual_ack: bool = False,
        window: int = 20,
    ) -> None:
        self.options = options
        self.session_present = False
        self.window = window
        self.lost: str | None = None
        self.on_message: Callable[[paho.MQTTMessage], None] | None = None
        self.on_published: Callable[[int, ReasonCode], None] | None = None
        self._granted: list[ReasonCode] | None = None
        self.unsubscribed: set[int] = set()
        self._answer: ReasonCode | None = None
        self._settings = (client_id, clean, session_expiry_s, receive_maximum, user_properties, manual_ack, window)
        versions = [options.version] if options.version else [int(paho.MQTTv5), int(paho.MQTTv311)]
        for version in versions:
            self.version = version
            answer = self._open(version)
            if answer is not None and not answer.is_failure:
                return
            code = answer.value if answer is not None else 0x80
            if code not in REFUSED_VERSION or version == versions[-1]:
                break
        self.client.disconnect()
        why = answer if answer is not None else (self.lost or "no answer")
        raise ProtocolError(f"the broker at {options.address} refused the connection: {why}", code)

    def _open(self, version: int) -> ReasonCode | None:
        client_id, clean, session_expiry_s, receive_maximum, user_properties, manual_ack, window = self._settings
        five = version == paho.MQTTv5
        options = self.options
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=None if five else (clean or not client_id),
            protocol=MQTTProtocolVersion(version),
            transport="websockets" if options.address.transport == "websockets" else "tcp",
            reconnect_on_failure=False,
            manual_ack=manual_ack,
        )
        client = self.client
        client.connect_timeout = options.timeout
        client.max_queued_messages_set(0)
        client.max_inflight_messages_set(window)
        if options.username is not None:
            client.username_pw_set(options.username, options.password)
        if options.address.transport == "websockets":
            client.ws_set_options(path=options.address.path)
        if options.address.tls:
            self._secure(client)
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_subscribe = self._subscribed
        client.on_unsubscribe = self._gone
        client.on_message = self._arrived
        client.on_publish = self._published
        properties = None
        if five:
            properties = Properties(PacketTypes.CONNECT)
            if session_expiry_s:
                properties.SessionExpiryInterval = session_expiry_s
            if receive_maximum:
                properties.ReceiveMaximum = receive_maximum
            if user_properties:
                properties.UserProperty = list(user_properties)
        self._answer, self.lost = None, None
        try:
            if five:
                client.connect(
                    options.address.host,
                    options.address.port,
                    options.keep_alive,
                    clean_start=clean,
                    properties=properties,
                )
            else:
                client.connect(options.address.host, options.address.port, options.keep_alive)
        except (OSError, ValueError) as error:
            raise ProtocolError(
                f"could not connect to {options.address}: {getattr(error, 'strerror', None) or error}; "
                "is the broker running?",
                0x88,
            ) from None
        self.wait(lambda: self._answer is not None or self.lost is not None, options.timeout, "CONNACK")
        return self._answer

    def _secure(self, client: paho.Client) -> None:
        try:
            client.tls_set(
                ca_certs=self.options.ca_file,
                certfile=self.options.cert_file,
                keyfile=self.options.key_file,
                cert_reqs=ssl.CERT_NONE if self.options.insecure else ssl.CERT_REQUIRED,
            )
        except (OSError, ValueError) as error:
            raise UsageError(f"the certificates for {self.options.address} cannot be used: {error}") from None
        if self.options.insecure:
            client.tls_insecure_set(True)

    def _connected(self, _c: Any, _u: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        self._answer = reason
        # [5: MQTT-3.3.4-7] never more unacknowledged publishes than the broker allows
        self.window = min(self._settings[-1], getattr(properties, "ReceiveMaximum", 65535))
        self.session_present = bool(flags.session_present)

    def _disconnected(self, _c: Any, _u: Any, _flags: Any, reason: ReasonCode, _p: Any) -> None:
        self.lost = str(reason)

    def _subscribed(self, _c: Any, _u: Any, _mid: int, reasons: list[ReasonCode], _p: Any) -> None:
        self._granted = reasons

    def _gone(self, _c: Any, _u: Any, mid: int, _reasons: list[ReasonCode], _p: Any) -> None:
        self.unsubscribed.add(mid)

    def _arrived(self, _c: Any, _u: Any, message: paho.MQTTMessage) -> None:
        if self.on_message is not None:
            self.on_message(message)

    def _published(self, _c: Any, _u: Any, mid: int, reason: ReasonCode, _p: Any) -> None:
        if self.on_published is not None:
            self.on_published(mid, reason)

    def poll(self, timeout: float = 0.1) -> None:
        """Send and receive once. Raises when the connection is gone."""
        code = self.client.loop(timeout)
        if code != paho.MQTT_ERR_SUCCESS or self.lost is not None:
            why = self.lost or paho.error_string(code)
            raise ProtocolError(f"the connection to {self.options.address} was lost: {why}", 0x88)

    def wait(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                raise ProtocolError(f"{self.options.address} sent no {what} within {seconds:g} s", 0x88)
            code = self.client.loop(0.1)
            if code != paho.MQTT_ERR_SUCCESS and not done():
                self.lost = self.lost or paho.error_string(code)
                if what != "CONNACK":
                    raise ProtocolError(f"the connection to {self.options.address} was lost: {self.lost}", 0x88)

    def subscribe(
        self,
        topic_filter: str,
        qos: int,
        *,
        retain_handling: int = 0,
        as_published: bool = False,
        properties: Properties | None = None,
    ) -> None:
        self._granted = None
        if self.version == paho.MQTTv5:
            options = SubscribeOptions(qos=qos, retainAsPublished=as_published, retainHandling=retain_handling)
            self.client.subscribe(topic_filter, options=options, properties=properties)
        else:
            self.client.subscribe(topic_filter, qos)
        self.wait(lambda: self._granted is not None, self.options.timeout, "SUBACK")
        granted: ReasonCode = (self._granted or [])[0]
        if granted.is_failure:
            raise ProtocolError(
                f"the broker at {self.options.address} refused to subscribe to {topic_filter!r}: {granted}",
                granted.value,
            )

    def close(self) -> None:
        self.client.disconnect()
        for _ in range(5):
            if self.client.loop(0.05) != paho.MQTT_ERR_SUCCESS:
                break


def row_of(message: paho.MQTTMessage, version: int, offset: int | None = None) -> dict[str, Any]:
    """Returns a received message as a row.

    What the broker did not say is null; the time is the arrival's unless it said better.
    """
    properties = message.properties
    pairs = list(getattr(properties, "UserProperty", [])) if properties is not None else []
    meta = {key: value for key, value in pairs if key in META}
    now = datetime.fromtimestamp(time.time_ns() // 1000 / 1_000_000, UTC)
    expiry = getattr(properties, "MessageExpiryInterval", None)
    payload = bytes(message.payload)
    return {
        "offset": offset if offset is not None else _number(meta.get("hf-offset")),
        "timestamp": _time(meta.get("hf-stored-at")) or now,
        "topic": message.topic,
        "payload": payload,
        "qos": message.qos,
        "retain": bool(message.retain),
        "client_id": meta.get("hf-publisher"),
        "username": None,
        "protocol": "5.0" if version == paho.MQTTv5 else "3.1.1",
        "expires_at": None if expiry is None else now + timedelta(seconds=expiry),
        "content_type": getattr(properties, "ContentType", None),
        "response_topic": getattr(properties, "ResponseTopic", None),
        "correlation_data": getattr(properties, "CorrelationData", None),
        "payload_format": getattr(properties, "PayloadFormatIndicator", None),
        "user_properties": [{"key": key, "value": value} for key, value in pairs if key not in META],
        "outcome": OUTCOME_LIVE if not message.retain else OUTCOME_SET if payload else OUTCOME_CLEARED,
    }


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def batch_of(rows: list[dict[str, Any]], columns: list[str]) -> pa.RecordBatch:
    schema = pa.schema([arrow_schema().field(name) for name in columns])
    return pa.RecordBatch.from_pylist(rows, schema=schema)
