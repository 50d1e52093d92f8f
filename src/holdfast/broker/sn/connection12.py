"""A client of MQTT-SN 1.2. Test labels `SN12-nn` name the rules."""

from typing import Final, final

from holdfast.broker.message import topic_field
from holdfast.broker.session import FOREVER, PendingWill, Session
from holdfast.broker.sn.admission import LATER, accept_publish, check_connect, on_pubrel
from holdfast.broker.sn.connection import MAX_DATAGRAM, SUBSCRIBED, UNSUBSCRIBED, SnConnection
from holdfast.broker.sn.ids import NO_ID
from holdfast.broker.sn.proof import CHALLENGE_TOPIC
from holdfast.broker.sn.sender import ACTIVE, CONNECTING, GONE, NEEDS_ID, READY, TOO_LARGE, Outgoing
from holdfast.broker.topics import SHARE, check_topic
from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.packets import SN12, V311, SubscriptionRequest
from holdfast.protocol.mqtt.packets import Connect as MqttConnect
from holdfast.protocol.mqtt.packets import Will as MqttWill
from holdfast.protocol.mqtt.reasons import (
    CLIENT_ID_NOT_VALID,
    CONNECTION_RATE_EXCEEDED,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    SUCCESS,
)
from holdfast.protocol.sn import v12
from holdfast.protocol.sn.frame import framed_size
from holdfast.protocol.sn.packets import (
    NORMAL,
    PREDEFINED,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    SHORT,
    UNSUBACK,
    WILL_MESSAGE_REQUEST,
    WILL_TOPIC_REQUEST,
    Ack,
    Bare,
    ConnAck,
    Connect,
    Disconnect,
    GatewayInfo,
    PingRequest,
    PingResponse,
    Publish,
    RegAck,
    Register,
    SearchGateway,
    SubAck,
    Subscribe,
    Unsubscribe,
    WillMessage,
    WillResponse,
    WillTopic,
)

GOODBYE: Final = v12.encode(Disconnect())


def tolerance_ms(seconds: int) -> int:
    """Return how long a client may be silent: a tenth more than it said above a minute, half as much again below."""
    return seconds * 1100 if seconds > 60 else seconds * 1500


def return_code(reason: int) -> int:
    """Return the code that 1.2 has for a reason of MQTT 5."""
    if reason < 0x80:
        return v12.ACCEPTED
    if reason in (QUOTA_EXCEEDED, SERVER_BUSY, CONNECTION_RATE_EXCEEDED):
        return v12.CONGESTION
    return v12.NOT_SUPPORTED


@final
class SnConnection12(SnConnection):
    protocol = "SN1.2"
    version = SN12

    def begin(self, packet: Connect, data: bytes) -> None:
        self.connect = packet
        self.connect_datagram = data
        self.will_topic: WillTopic | None = None
        self.will: MqttWill | None = None
        self.announced: set[int] = set()  # ids that the client has been told in this connection
        if packet.asks_for_will:  # [SN12-03]
            self.gateway.add_pending(self)
            self.write(v12.encode(Bare(WILL_TOPIC_REQUEST)))
        else:
            self.authenticate()

    # The will prompt.

    def on_will_topic(self, packet: WillTopic) -> None:
        if self.state != CONNECTING:
            return
        if not packet.topic:  # [SN12-05]
            self.will_topic = None
            self.will = None
            self.authenticate()
            return
        self.will_topic = packet
        self.write(v12.encode(Bare(WILL_MESSAGE_REQUEST)))

    def on_will_message(self, packet: WillMessage) -> None:
        topic = self.will_topic
        if self.state != CONNECTING or topic is None:
            return
        self.will = MqttWill(topic.topic, packet.payload, topic.qos, topic.retain, None)
        self.authenticate()

    # CONNECT.

    def requested_connect(self) -> MqttConnect:
        if not self.connect.client_id:
            raise ProtocolError("client id is empty, expected at least one character", CLIENT_ID_NOT_VALID)
        return self.mqtt_connect(self.will)

    def asks_for(self) -> tuple[str, bool]:
        return self.connect.client_id, not self.connect.clean_start

    def accepted_connect(self) -> MqttConnect:
        return self.mqtt_connect(self.will)

    def mqtt_connect(self, will: MqttWill | None) -> MqttConnect:
        connect = self.connect
        return MqttConnect(connect.client_id, V311, connect.clean_start, connect.keep_alive_s, will)

    def wakes_sleeper(self, packet: MqttConnect) -> bool:
        return not packet.clean_start and self.gateway.resume_sleeper(self)

    def will_of(self, packet: MqttConnect, known: Session | None) -> MqttWill | None:
        if self.connect.asks_for_will or known is None or known.sensor is None:
            return packet.will
        return known.sensor.will  # it outlives the connection

    def granted_expiry(self) -> int:
        return 0 if self.connect.clean_start else self.cap_expiry(FOREVER)

    def agree(self, session: Session, packet: MqttConnect, present: bool) -> None:
        connect = self.connect
        if connect.asks_for_will:  # [SN12-04]
            self.sensor_state().will = packet.will
        self.watch(tolerance_ms(connect.keep_alive_s))
        self.connack = v12.encode(ConnAck(v12.ACCEPTED))

    def come_back(self, other: "SnConnection12") -> None:
        """Go on after sleep: the client has sent CONNECT through `other`, and is active here with all it had."""
        connect = other.connect
        self.connect = connect
        self.connect_datagram = other.connect_datagram
        self.heard = False
        self.watch(tolerance_ms(connect.keep_alive_s))
        self.connection.last_seen_ms = self.broker.now_ms
        self.announced.clear()
        if connect.asks_for_will:
            self.set_will(other.will)
        self.connack = v12.encode(ConnAck(v12.ACCEPTED))
        self.write(self.connack)
        self.become_active()

    def refusal_packet(self, reason: int) -> bytes:
        return v12.encode(ConnAck(return_code(reason) or v12.NOT_SUPPORTED))

    # Packets of a connected client.

    def receive(self, data: bytes) -> None:
        packet = v12.decode(data)
        if self.state == CONNECTING:
            if isinstance(packet, WillTopic) and not packet.update:
                self.on_will_topic(packet)
            elif isinstance(packet, WillMessage) and not packet.update:
                self.on_will_message(packet)
            return
        self.connection.last_seen_ms = self.broker.now_ms
        self.heard = True
        if isinstance(packet, Publish):
            self.on_publish(packet)
        elif isinstance(packet, Ack):
            self.on_ack(packet)
        elif isinstance(packet, PingRequest):
            self.on_ping(packet)
        elif isinstance(packet, Subscribe):
            if packet.dup:
                data = v12.encode(without_dup(packet))
            if not self.answer_duplicate(data):
                self.on_subscribe(packet, data)
        elif isinstance(packet, Unsubscribe):
            if not self.answer_duplicate(data):
                self.on_unsubscribe(packet, data)
        elif isinstance(packet, Register):
            self.on_register(packet)
        elif isinstance(packet, RegAck):
            self.on_regack(packet.packet_id, packet.reason == v12.ACCEPTED)
        elif isinstance(packet, Disconnect):
            self.on_disconnect(packet)
        elif isinstance(packet, WillTopic):
            if packet.update:
                self.on_will_topic_update(packet)
        elif isinstance(packet, WillMessage):
            if packet.update:
                self.on_will_message_update(packet)
        elif isinstance(packet, SearchGateway):
            self.write(v12.encode(GatewayInfo(self.settings.gateway_id)))

    def fail(self, error: ProtocolError) -> None:
        """Only note it: 1.2 has no answer, so the datagram has no effect and the client stays."""
        self.broker.counters.protocol_errors += 1
        self.broker.effects.notes.append((self.connection, f"protocol error: {error}"))

    def on_publish(self, packet: Publish) -> None:
        session = self.session
        assert session is not None
        if packet.qos < 0:
            self.gateway.publish_qos_minus_one(packet, self.host)
            return
        field = self.field_of(packet)
        if not field:  # [SN12-08]
            self.write(v12.encode_puback(packet.topic_id, packet.packet_id, v12.INVALID_TOPIC_ID))
            return
        if not self.is_in_rate(len(packet.payload)):
            code = v12.CONGESTION
        elif packet.qos > 0 and packet.packet_id == 0:
            code = v12.NOT_SUPPORTED
        else:
            try:

                def on_back(reason: int) -> None:
                    if self.state != GONE:
                        self.acknowledge(packet, return_code(reason))

                reason = accept_publish(
                    self.broker,
                    self.connection,
                    session,
                    field,
                    packet.payload,
                    packet.qos,
                    packet.retain,
                    packet.packet_id,
                    on_back,
                )
                if reason == LATER:
                    return
                code = return_code(reason)
            except ProtocolError as error:
                self.fail(error)
                code = v12.NOT_SUPPORTED
        self.acknowledge(packet, code)

    def acknowledge(self, packet: Publish, code: int) -> None:
        """Answer PUBLISH. PUBACK is the answer to QoS 1, and says at any QoS what went wrong."""
        if packet.qos == 2 and code == v12.ACCEPTED:
            self.write(v12.encode(Ack(PUBREC, packet.packet_id)))
        elif packet.qos == 1 or code != v12.ACCEPTED:
            self.write(v12.encode_puback(packet.topic_id, packet.packet_id, code))
        if packet.qos > 0:
            self.broker.hold(self.connection)

    def field_of(self, packet: Publish) -> bytes:
        """Return the topic that the packet names, or nothing when its id is not known."""
        if packet.topic_type == NORMAL:
            return self.sensor_state().by_id.get(packet.topic_id, b"")
        if packet.topic_type == PREDEFINED:
            return self.gateway.predefined.by_id.get(packet.topic_id, b"")
        return topic_field(packet.topic)

    def on_ack(self, packet: Ack) -> None:
        session = self.session
        assert session is not None
        packet_id = packet.packet_id
        if packet.kind == PUBACK:
            if packet.reason == v12.INVALID_TOPIC_ID:
                self.on_unknown_id(packet.topic_id, packet_id)
            else:
                self.on_puback(packet_id)
        elif packet.kind == PUBREC:
            self.on_pubrec(packet_id, SUCCESS)
        elif packet.kind == PUBCOMP:
            self.on_pubcomp(packet_id)
        elif packet.kind == PUBREL:

            def on_back(reason: int) -> None:
                self.write(v12.encode(Ack(PUBCOMP, packet_id)))

            if not on_pubrel(self.broker, self.connection, session, packet_id, on_back):
                on_back(SUCCESS)

    def forget_id(self, topic_id: int) -> None:
        self.announced.discard(topic_id)

    def on_register(self, packet: Register) -> None:
        """[SN12-06] The same topic always gets the same id, so an answer that was lost needs no memory."""
        check_topic(packet.topic, self.broker.settings.max_topic_levels)
        topic_id = self.announced_id_for(topic_field(packet.topic))
        code = v12.ACCEPTED if topic_id else v12.CONGESTION
        self.write(v12.encode(RegAck(topic_id, packet.packet_id, code)))

    def announced_id_for(self, field: bytes) -> int:
        """Return the client's own id of a topic, of which it is about to be told, or NO_ID when its table is full."""
        topic_id = self.topic_id_for(field)
        if topic_id:
            self.announced.add(topic_id)
        return topic_id

    def on_subscribe(self, packet: Subscribe, data: bytes) -> None:
        """[SN12-07, SN12-17]"""
        topic_filter = self.filter_of(packet.topic_type, packet.topic_id, packet.topic)
        answer_id = packet.topic_id if packet.topic_type == PREDEFINED else NO_ID
        if not topic_filter:
            self.answer(SUBSCRIBED, data, v12.encode(SubAck(packet.packet_id, NORMAL, answer_id, v12.INVALID_TOPIC_ID)))
            return
        if topic_filter.startswith(SHARE):
            self.answer(SUBSCRIBED, data, v12.encode(SubAck(packet.packet_id, NORMAL, NO_ID, v12.NOT_SUPPORTED)))
            return

        def then(granted: int) -> None:
            topic_id = answer_id
            if granted >= 0x80:
                code = return_code(granted)
                self.answer(SUBSCRIBED, data, v12.encode(SubAck(packet.packet_id, NORMAL, topic_id, code)))
                return
            if packet.topic_type == NORMAL and b"+" not in topic_filter and b"#" not in topic_filter:
                topic_id = self.announced_id_for(topic_field(topic_filter))
            answer = SubAck(packet.packet_id, NORMAL, topic_id, v12.ACCEPTED, granted)
            self.answer(SUBSCRIBED, data, v12.encode(answer))
            self.send_snapshots()

        self.subscribe_then(SubscriptionRequest(topic_filter, packet.qos, False, False, 0), data, then)

    def on_unsubscribe(self, packet: Unsubscribe, data: bytes) -> None:
        topic_filter = self.filter_of(packet.topic_type, packet.topic_id, packet.topic)

        def then(reason: int) -> None:
            self.answer(UNSUBSCRIBED, data, v12.encode(Ack(UNSUBACK, packet.packet_id)))

        if topic_filter:
            self.unsubscribe_then(topic_filter, data, then)
        else:
            then(SUCCESS)

    def filter_of(self, topic_type: int, topic_id: int, topic: bytes) -> bytes:
        if topic_type == PREDEFINED:
            return self.gateway.predefined.by_id.get(topic_id, b"")[2:]
        return topic

    def on_ping(self, packet: PingRequest) -> None:
        if packet.client_id and packet.client_id != self.client_id:
            # Of another client, which is not here: who knows the name of a sleeper is not the sleeper.
            self.gateway.answer(GOODBYE, self.address, self.host, self.envelope)
        elif self.state == ACTIVE:
            self.write(v12.encode(PingResponse()))
        else:  # [SN12-12]
            self.wake_up(self.settings.awake_messages)

    def on_disconnect(self, packet: Disconnect) -> None:
        """[SN12-14] Always answered; with a duration the client only goes to sleep."""
        self.write(GOODBYE)
        if packet.duration_s > 0:
            self.fall_asleep(tolerance_ms(packet.duration_s))
            return
        self.gateway.on_left(self)
        self.leave()

    # Updates of the will.

    def on_will_topic_update(self, packet: WillTopic) -> None:
        code = v12.ACCEPTED
        if not packet.topic:
            self.set_will(None)
        else:
            old = self.sensor_state().will
            payload = old.payload if old is not None else b""
            if not self.change_will(MqttWill(packet.topic, payload, packet.qos, packet.retain, None)):
                code = v12.NOT_SUPPORTED
        self.write(v12.encode(WillResponse(True, code)))

    def on_will_message_update(self, packet: WillMessage) -> None:
        old = self.sensor_state().will
        code = v12.NOT_SUPPORTED
        if old is not None and self.change_will(MqttWill(old.topic, packet.payload, old.qos, old.retain, None)):
            code = v12.ACCEPTED
        self.write(v12.encode(WillResponse(False, code)))

    def change_will(self, will: MqttWill) -> bool:
        """Set another will; returns False when the client may not publish it."""
        try:
            check_topic(will.topic, self.broker.settings.max_topic_levels)
            packet = self.mqtt_connect(will)
            if check_connect(self.broker, packet, self.connection.username, True, False) != SUCCESS:
                return False
        except ProtocolError:
            return False
        self.set_will(will)
        return True

    def set_will(self, will: MqttWill | None) -> None:
        session = self.session
        assert session is not None
        self.sensor_state().will = will
        if self.broker.shared is not None:
            self.broker.shared.set_will(self.connection, will)
            return
        session.will = PendingWill(will, 0) if will is not None else None
        self.broker.recorder.on_attached(session, self.connection.agreed.version)
        if session.kept:
            self.broker.hold(self.connection)

    # Deliveries.

    def prepare(self, out: Outgoing) -> int:
        if framed_size(5 + len(out.message.payload)) > MAX_DATAGRAM:
            return TOO_LARGE
        field = out.message.topic_field
        topic_id = self.sensor_state().by_field.get(field, NO_ID)
        if topic_id and topic_id in self.announced:
            out.topic_type = NORMAL
            out.topic_id = topic_id
            return READY
        predefined = self.gateway.predefined.by_field.get(field)
        if predefined is not None:
            out.topic_type = PREDEFINED
            out.topic_id = predefined
            return READY
        if len(field) == 4:  # [SN12-11] two letters need no id
            out.topic_type = SHORT
            out.topic_id = field[2] << 8 | field[3]
            return READY
        return TOO_LARGE if framed_size(2 + len(field)) > MAX_DATAGRAM else NEEDS_ID

    def publish_packet(self, out: Outgoing, dup: bool) -> bytes:
        message = out.message
        return v12.encode_publish(
            Publish(out.topic_type, out.topic_id, b"", message.payload, out.qos, out.retain, dup, out.packet_id)
        )

    def register_packet(self, field: bytes, packet_id: int) -> bytes:
        state = self.sensor_state()
        topic_id = state.by_field.get(field, NO_ID)
        if topic_id == NO_ID:
            settings = self.settings
            topic_id = state.assign_for_delivery(field, settings.max_topics, settings.max_topic_bytes)
        return v12.encode(Register(topic_id, packet_id, field[2:])) if topic_id else b""

    def challenge_packet(self, packet_id: int) -> bytes:
        return v12.encode(Register(self.sensor_state().unused_id(), packet_id, CHALLENGE_TOPIC))

    def on_registered(self, field: bytes) -> None:
        topic_id = self.sensor_state().by_field.get(field, NO_ID)
        if topic_id:
            self.announced.add(topic_id)

    def release_packet(self, packet_id: int) -> bytes:
        return v12.encode(Ack(PUBREL, packet_id))

    def ping_response(self, remaining: int) -> bytes:
        return v12.encode(PingResponse())

    def goodbye_packet(self, reason: int) -> bytes:
        return GOODBYE

    def retry_delay_ms(self, tries: int) -> int:
        return self.settings.retry_ms

    def sets_dup(self, qos: int) -> bool:
        return qos > 0


def without_dup(packet: Subscribe) -> Subscribe:
    return Subscribe(packet.packet_id, packet.topic_type, packet.topic_id, packet.topic, packet.qos)
