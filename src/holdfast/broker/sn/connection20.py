"""A client of MQTT-SN 2.0. Clauses are those of the draft of August 2026."""

from typing import Final, final

from holdfast.broker.lifecycle import disconnect, set_expiry
from holdfast.broker.message import topic_field
from holdfast.broker.session import Session
from holdfast.broker.sn.admission import LATER, accept_publish, on_pubrel
from holdfast.broker.sn.connection import MAX_DATAGRAM, REGISTERED, SUBSCRIBED, UNSUBSCRIBED, SnConnection
from holdfast.broker.sn.ids import NO_ID
from holdfast.broker.sn.proof import CHALLENGE_TOPIC
from holdfast.broker.sn.sender import ACTIVE, ASLEEP, AWAKE, CONNECTING, GONE, NEEDS_ID, READY, TOO_LARGE, Outgoing
from holdfast.broker.topics import SHARE, check_topic
from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.packets import SN2, V5, SubscriptionRequest
from holdfast.protocol.mqtt.packets import Connect as MqttConnect
from holdfast.protocol.mqtt.packets import Will as MqttWill
from holdfast.protocol.mqtt.reasons import (
    BAD_AUTHENTICATION_METHOD,
    NORMAL_DISCONNECTION,
    PACKET_ID_NOT_FOUND,
    QUOTA_EXCEEDED,
    RECEIVE_MAXIMUM_EXCEEDED,
    RETAIN_NOT_SUPPORTED,
    SERVER_BUSY,
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    SUCCESS,
    UNSPECIFIED_ERROR,
)
from holdfast.protocol.sn import v2_types as v2
from holdfast.protocol.sn.frame import framed_size
from holdfast.protocol.sn.packets import (
    NAME,
    NONE,
    NORMAL,
    PREDEFINED,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    UNSUBACK,
    Ack,
    Advertise,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    GatewayInfo,
    PingRequest,
    PingResponse,
    Publish,
    PublishWithoutSession,
    RegAck,
    Register,
    SearchGateway,
    SleepRequest,
    SleepResponse,
    SubAck,
    Subscribe,
    Unsubscribe,
    Will,
)
from holdfast.protocol.sn.v2_decode import decode
from holdfast.protocol.sn.v2_encode import encode, encode_publish
from holdfast.protocol.wire import Reader

BASIC: Final = "MQTT-BASIC"
MAX_RETRY_MS: Final = 60_000


def refusal(packet_id: int, reason: int) -> bytes:
    """Return CONNACK with the reason, as far as it can carry it."""
    return encode(ConnAck(reason if v2.is_allowed(v2.CONNACK, reason) else UNSPECIFIED_ERROR, packet_id))


def publish_reason(reason: int) -> int:
    """Return the reason as PUBACK or PUBREC can carry it [3.6.3.3-1]."""
    if reason == QUOTA_EXCEEDED:
        return v2.CONGESTION
    return reason if v2.is_allowed(v2.PUBACK, reason) else UNSPECIFIED_ERROR


@final
class SnConnection20(SnConnection):
    protocol = "SN2.0"
    version = SN2
    takeover_publishes_will = True

    def begin(self, packet: Connect, data: bytes) -> None:
        self.connect = packet
        self.connect_datagram = data
        self.ping_id = 0
        self.open_publish = 0  # the QoS 2 publish between PUBREC and PUBREL
        self.last_publish = 0
        limit = packet.max_packet_size
        self.max_packet_size = MAX_DATAGRAM if limit == 0 else min(limit, MAX_DATAGRAM)
        self.authenticate()

    # CONNECT.

    def requested_connect(self) -> MqttConnect:
        connect = self.connect
        will = connect.will
        packet = MqttConnect(connect.client_id, V5, connect.clean_start, connect.keep_alive_s)
        method = connect.auth_method
        if method is not None:
            if method != BASIC:  # [4.11.1-1]
                raise ProtocolError(f"authentication method is {method!r}, expected {BASIC}", BAD_AUTHENTICATION_METHOD)
            reader = Reader(connect.auth_data)
            packet.username = reader.text()
            packet.password = reader.binary()
            reader.finish("authentication data")
        if will is not None and will.topic_type != NORMAL:  # a session alias means nothing before the session is known
            packet.will = self.resolve_will(will, None)
        return packet

    def validate(self, packet: MqttConnect) -> int:
        reason = super().validate(packet)
        return v2.CONGESTION if reason == SERVER_BUSY else reason

    def asks_for(self) -> tuple[str, bool]:
        return self.connect.client_id, self.connect.expiry_s not in (NONE, 0)

    def accepted_connect(self) -> MqttConnect:
        broker = self.broker
        connect = self.connect
        client_id = connect.client_id or broker.new_client_id()  # [4.1.2-1, 4.1.2-2]
        packet = MqttConnect(client_id, V5, connect.clean_start, connect.keep_alive_s)
        if connect.will is not None:
            known = None if connect.clean_start else broker.sessions.get(client_id)
            packet.will = self.resolve_will(connect.will, known)
            check_topic(packet.will.topic, broker.settings.max_topic_levels)
        return packet

    def resolve_will(self, will: Will, session: Session | None) -> MqttWill:
        """Return the will with the topic's name in place of its alias."""
        topic = will.topic
        if will.topic_type == PREDEFINED:
            topic = self.gateway.predefined.by_id.get(will.topic_id, b"")[2:]
        elif will.topic_type == NORMAL:
            state = session.sensor if session is not None else None
            topic = state.by_id.get(will.topic_id, b"")[2:] if state is not None else b""
        if not topic:
            raise ProtocolError(f"topic alias {will.topic_id} of the will is not known")
        return MqttWill(topic, will.payload, will.qos, will.retain, None)

    def granted_expiry(self) -> int:
        connect = self.connect
        asked_s = connect.expiry_s if connect.expiry_s != NONE else 0
        # What the client cannot be told must stay as it asked for it [3.1.2.7-1, 3.1.2.7-2]. That is for clients with a
        # name: a session for ever would be too much for a datagram from anywhere.
        is_capped = connect.takes_suggestions or not self.connection.username
        return self.cap_expiry(asked_s) if is_capped else asked_s

    def agree(self, session: Session, packet: MqttConnect, present: bool) -> None:
        broker = self.broker
        connect = self.connect
        asked_s = connect.expiry_s if connect.expiry_s != NONE else 0
        keep_alive_s = connect.keep_alive_s
        most_s = broker.settings.keep_alive_max
        if connect.takes_suggestions and 0 < most_s < keep_alive_s:
            keep_alive_s = most_s
        self.watch(keep_alive_s * 1500)  # [3.1.6-2]
        answer = ConnAck(SUCCESS, connect.packet_id, present)
        if not connect.client_id:
            answer.client_id = packet.client_id
        if session.expiry_s != asked_s and connect.takes_suggestions:
            answer.expiry_s = session.expiry_s
        if keep_alive_s != connect.keep_alive_s:
            answer.keep_alive_s = keep_alive_s
        answer.auth_method = connect.auth_method  # [4.11.1-5]
        self.connack = encode(answer)

    def refusal_packet(self, reason: int) -> bytes:
        return refusal(self.connect.packet_id, reason)

    # Packets of a connected client.

    def receive(self, data: bytes) -> None:
        if self.state == CONNECTING:
            return  # [3.1.19-7]
        packet = decode(data)
        self.connection.last_seen_ms = self.broker.now_ms
        self.heard = True
        if isinstance(packet, Ack):
            self.on_ack(packet)
        elif isinstance(packet, RegAck):
            if packet.topic_id != NONE:  # [3.5.4-1]
                raise ProtocolError("REGACK of a client carries a topic alias, expected none")
            self.on_regack(packet.packet_id, packet.reason < 0x80)
        elif isinstance(packet, Disconnect):
            self.on_disconnect(packet)
        elif isinstance(packet, PingRequest):
            self.on_ping(packet)
        elif isinstance(packet, PublishWithoutSession):
            self.gateway.publish_without_session(packet, self.host)
        elif isinstance(packet, SearchGateway):
            self.write(encode(GatewayInfo(self.settings.gateway_id)))
        elif isinstance(packet, Advertise | GatewayInfo):
            return  # another gateway's business
        elif self.state != ACTIVE:
            self.receive_asleep(packet, data)
        elif isinstance(packet, Publish):
            self.on_publish(packet)
        else:
            self.on_request(packet, data)

    def receive_asleep(self, packet: object, data: bytes) -> None:
        """Handle what else a sleeping client may send: SLEEPREQ, and late copies of packets [4.14-2, 4.14-3]."""
        if isinstance(packet, SleepRequest) and self.state == ASLEEP:
            self.on_sleep(packet)
        elif isinstance(packet, Publish) and packet.qos > 0 and packet.packet_id == self.last_publish:
            return  # a late copy
        elif not self.answer_duplicate(data):
            raise ProtocolError("the client is asleep, expected PINGREQ, CONNECT, DISCONNECT or SLEEPREQ")

    def on_request(self, packet: object, data: bytes) -> None:
        """Carry out a request, or answer it again when it was carried out before."""
        if self.answer_duplicate(data):
            return
        if self.open_publish:
            raise self.second_request()
        if isinstance(packet, Subscribe):
            self.on_subscribe(packet, data)
        elif isinstance(packet, Unsubscribe):
            self.on_unsubscribe(packet, data)
        elif isinstance(packet, Register):
            self.on_register(packet, data)
        elif isinstance(packet, SleepRequest):
            self.on_sleep(packet)
        elif isinstance(packet, Auth):
            self.on_auth(packet)
        else:
            raise ProtocolError(f"a client that is connected may not send {type(packet).__name__}")

    def second_request(self) -> ProtocolError:  # [4.9-1]
        return ProtocolError(
            f"a request came before packet {self.open_publish} was released, expected one at a time",
            RECEIVE_MAXIMUM_EXCEEDED,
        )

    def fail(self, error: ProtocolError) -> None:
        """Disconnect the client and tell it why [4.12.1-2]."""
        broker = self.broker
        broker.counters.protocol_errors += 1
        broker.effects.notes.append((self.connection, f"protocol error: {error}"))
        disconnect(broker, self.connection, error.reason, str(error))

    def on_publish(self, packet: Publish) -> None:
        session = self.session
        assert session is not None
        qos = packet.qos
        if qos > 0:
            if self.open_publish not in (0, packet.packet_id):
                raise self.second_request()
            self.last_publish = packet.packet_id
        if packet.topic_type == NAME:
            field = topic_field(packet.topic)
        elif packet.topic_type == PREDEFINED:
            field = self.gateway.predefined.by_id.get(packet.topic_id, b"")
            if not field:  # [4.7.2.1-2]
                raise ProtocolError(f"predefined topic alias {packet.topic_id} is not known")
        else:
            field = self.sensor_state().by_id.get(packet.topic_id, b"")
            if not field:
                self.acknowledge(packet, v2.UNKNOWN_TOPIC_ALIAS)
                return
        if packet.retain and not self.broker.settings.retain_available:
            raise ProtocolError("RETAIN is set, but retained messages are off", RETAIN_NOT_SUPPORTED)
        if not self.is_in_rate(len(packet.payload)):
            self.acknowledge(packet, v2.CONGESTION)
            return

        def on_back(reason: int) -> None:
            if self.state == GONE:
                return
            if qos == 2 and reason < 0x80:
                self.open_publish = packet.packet_id
            self.acknowledge(packet, publish_reason(reason))

        reason = accept_publish(
            self.broker, self.connection, session, field, packet.payload, qos, packet.retain, packet.packet_id, on_back
        )
        if reason != LATER:
            on_back(reason)

    def acknowledge(self, packet: Publish, reason: int) -> None:
        """Answer PUBLISH [3.6.2.7-1]. There is no answer to QoS 0, whatever was wrong with it."""
        if packet.qos == 0:
            return
        self.write(encode(Ack(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id, reason)))
        self.broker.hold(self.connection)

    def on_ack(self, packet: Ack) -> None:
        session = self.session
        assert session is not None
        packet_id = packet.packet_id
        if packet.kind == PUBREL:
            if self.open_publish == packet_id:
                self.open_publish = 0

            def on_back(reason: int) -> None:
                self.write(encode(Ack(PUBCOMP, packet_id, reason)))

            if not on_pubrel(self.broker, self.connection, session, packet_id, on_back):
                on_back(PACKET_ID_NOT_FOUND)
        elif packet.reason == v2.UNKNOWN_TOPIC_ALIAS and packet.kind in (PUBACK, PUBREC):
            out = self.exchange.out
            self.on_unknown_id(out.topic_id if out is not None else NO_ID, packet_id)
        elif packet.kind == PUBACK:
            self.on_puback(packet_id)
        elif packet.kind == PUBREC:
            self.on_pubrec(packet_id, packet.reason)
        elif packet.kind == PUBCOMP:
            self.on_pubcomp(packet_id)

    def on_register(self, packet: Register, data: bytes) -> None:
        if packet.topic_id != NONE:  # [3.4-1]
            raise ProtocolError("REGISTER of a client carries a topic alias, expected none")
        check_topic(packet.topic, self.broker.settings.max_topic_levels)
        field = topic_field(packet.topic)
        predefined = self.gateway.predefined.by_field.get(field)
        if predefined is not None:  # [4.7.2.2-5]
            self.answer(
                REGISTERED, data, encode(RegAck(predefined, packet.packet_id, v2.TOPIC_ALIAS_EXISTS, PREDEFINED))
            )
            return
        reason = v2.TOPIC_ALIAS_EXISTS if field in self.sensor_state().by_field else SUCCESS
        topic_id = self.topic_id_for(field)
        if topic_id == NO_ID:
            self.answer(REGISTERED, data, encode(RegAck(NONE, packet.packet_id, QUOTA_EXCEEDED)))
        else:
            self.answer(REGISTERED, data, encode(RegAck(topic_id, packet.packet_id, reason)))

    def on_subscribe(self, packet: Subscribe, data: bytes) -> None:
        packet_id = packet.packet_id
        topic_filter = self.filter_of(packet.topic_type, packet.topic_id, packet.topic)
        if not topic_filter:
            self.answer(SUBSCRIBED, data, encode(SubAck(packet_id, PREDEFINED, NONE, v2.UNKNOWN_TOPIC_ALIAS)))
            return
        if topic_filter.startswith(SHARE):
            self.answer(
                SUBSCRIBED, data, encode(SubAck(packet_id, PREDEFINED, NONE, SHARED_SUBSCRIPTIONS_NOT_SUPPORTED))
            )
            return

        def then(reason: int) -> None:
            alias = NONE
            alias_type = PREDEFINED
            if reason < 0x80:
                if packet.topic_type == NORMAL:
                    alias, alias_type = packet.topic_id, NORMAL
                elif packet.topic_type == NAME and b"+" not in topic_filter and b"#" not in topic_filter:
                    alias, alias_type = self.alias_for(topic_field(topic_filter))  # [4.7.2.2-2]
            self.answer(SUBSCRIBED, data, encode(SubAck(packet_id, alias_type, alias, reason)))
            self.send_snapshots()

        request = SubscriptionRequest(
            topic_filter, packet.qos, packet.no_local, packet.retain_as_published, packet.retain_handling
        )
        self.subscribe_then(request, data, then)

    def alias_for(self, field: bytes) -> tuple[int, int]:
        """Return the alias of a topic and its type; a predefined one goes before the client's own [4.7.2.2-4]."""
        predefined = self.gateway.predefined.by_field.get(field)
        if predefined is not None:
            return predefined, PREDEFINED
        topic_id = self.topic_id_for(field)
        return (topic_id, NORMAL) if topic_id else (NONE, PREDEFINED)

    def filter_of(self, topic_type: int, topic_id: int, topic: bytes) -> bytes:
        """Return the filter that is meant, or nothing for a session alias that is not known."""
        if topic_type == PREDEFINED:
            field = self.gateway.predefined.by_id.get(topic_id)
            if field is None:
                raise ProtocolError(f"predefined topic alias {topic_id} is not known")
            return field[2:]
        if topic_type == NORMAL:
            return self.sensor_state().by_id.get(topic_id, b"")[2:]
        return topic

    def on_unsubscribe(self, packet: Unsubscribe, data: bytes) -> None:
        topic_filter = self.filter_of(packet.topic_type, packet.topic_id, packet.topic)  # [3.9.6-1]

        def then(reason: int) -> None:
            self.answer(UNSUBSCRIBED, data, encode(Ack(UNSUBACK, packet.packet_id, reason)))

        if topic_filter:
            self.unsubscribe_then(topic_filter, data, then)
        else:
            then(v2.UNKNOWN_TOPIC_ALIAS)

    def on_sleep(self, packet: SleepRequest) -> None:
        """Carried out again when it comes again: that only starts the same sleep once more [3.15.5-2 to 3.15.5-7]."""
        if not packet.keeps_aliases:
            self.sensor_state().forget_all()
        self.write(encode(SleepResponse(packet.packet_id)))
        self.fall_asleep(packet.duration_s * 1500)  # [4.14.2-1]

    def on_ping(self, packet: PingRequest) -> None:
        if self.state == ACTIVE:
            self.write(encode(PingResponse(packet.packet_id, 0)))
        elif self.state == ASLEEP or (self.state == AWAKE and packet.packet_id == self.ping_id):
            self.ping_id = packet.packet_id
            asked = self.connect.awake_messages
            self.wake_up(asked if asked > 0 else self.settings.awake_messages)
        else:
            raise ProtocolError("PINGREQ came while another is being answered", RECEIVE_MAXIMUM_EXCEEDED)

    def on_disconnect(self, packet: Disconnect) -> None:
        session = self.session
        assert session is not None
        if packet.expiry_s != NONE:
            if session.expiry_s == 0 and packet.expiry_s != 0:
                raise ProtocolError("DISCONNECT turns a session expiry of 0 into another, which it may not")
            set_expiry(self.broker, self.connection, session, self.cap_expiry(packet.expiry_s))
        reason = packet.reason if packet.reason != NONE else NORMAL_DISCONNECTION
        self.leave(reason != NORMAL_DISCONNECTION)  # [3.13.7-3]

    def on_auth(self, packet: Auth) -> None:
        if self.connect.auth_method is None:  # [4.11.1-7]
            raise ProtocolError("AUTH came without an authentication method in CONNECT")
        # The one method there is ends with CONNACK, so there is nothing to go on with [4.11.1.1-2].
        raise ProtocolError(f"AUTH names the method {packet.method!r}", BAD_AUTHENTICATION_METHOD)

    # Deliveries.

    def prepare(self, out: Outgoing) -> int:
        """Use an alias where there is one [4.7.2-1], else the name, and a new alias where only that fits."""
        message = out.message
        field = message.topic_field
        size = 3 + len(message.payload) + (2 if out.qos > 0 else 0)
        by_alias = framed_size(size) <= self.max_packet_size
        predefined = self.gateway.predefined.by_field.get(field)
        if predefined is not None:
            out.topic_type = PREDEFINED
            out.topic_id = predefined
            return READY if by_alias else TOO_LARGE
        topic_id = self.sensor_state().by_field.get(field, NO_ID)
        if topic_id:
            out.topic_type = NORMAL
            out.topic_id = topic_id
            return READY if by_alias else TOO_LARGE
        if framed_size(size + len(field) - 2) <= self.max_packet_size:
            out.topic_type = NAME
            out.topic_id = 0
            return READY
        return NEEDS_ID if by_alias and framed_size(3 + len(field)) <= self.max_packet_size else TOO_LARGE

    def publish_packet(self, out: Outgoing, dup: bool) -> bytes:
        message = out.message
        topic = message.topic_field[2:] if out.topic_type == NAME else b""
        return encode_publish(
            Publish(out.topic_type, out.topic_id, topic, message.payload, out.qos, out.retain, dup, out.packet_id)
        )

    def register_packet(self, field: bytes, packet_id: int) -> bytes:
        settings = self.settings
        topic_id = self.sensor_state().assign_for_delivery(field, settings.max_topics, settings.max_topic_bytes)
        return encode(Register(topic_id, packet_id, field[2:])) if topic_id else b""

    def challenge_packet(self, packet_id: int) -> bytes:
        return encode(Register(self.sensor_state().unused_id(), packet_id, CHALLENGE_TOPIC))

    def on_registered(self, field: bytes) -> None:
        """The alias is in the table already, and nothing else can have been sent meanwhile."""

    def release_packet(self, packet_id: int) -> bytes:
        return encode(Ack(PUBREL, packet_id))

    def unknown_release_packet(self, packet_id: int) -> bytes:
        return encode(Ack(PUBREL, packet_id, PACKET_ID_NOT_FOUND))

    def ping_response(self, remaining: int) -> bytes:
        return encode(PingResponse(self.ping_id, remaining))

    def goodbye_packet(self, reason: int) -> bytes:
        known = reason if v2.is_allowed(v2.DISCONNECT, reason) else UNSPECIFIED_ERROR
        return encode(Disconnect(NONE, known))

    def retry_delay_ms(self, tries: int) -> int:
        """Return a delay that grows from try to try and differs between clients, so that not all resend at once."""
        settings = self.settings
        jitter = (self.exchange.packet_id * 379 + len(self.client_id) * 131) % (settings.backoff_ms + 1)
        delay_ms = min((settings.backoff_ms << min(tries, 16)) + jitter, MAX_RETRY_MS)
        return delay_ms + settings.response_ms if tries == 0 else delay_ms

    def sets_dup(self, qos: int) -> bool:
        return qos == 2  # [4.3.3-2, 4.3.4-4]
