"""A client of MQTT-SN 1.2. Test labels `SN12-nn` name the rules."""

from typing import Final, final

from holdfast.broker.lifecycle import close, validate_connect
from holdfast.broker.message import topic_field
from holdfast.broker.session import FOREVER, PendingWill, Session
from holdfast.broker.sn.link import (
    ACTIVE,
    ASLEEP,
    AWAKE,
    CONNECTING,
    MAX_DATAGRAM,
    Link,
)
from holdfast.broker.sn.outgoing import NEEDS_ID, READY, TOO_LARGE, Outgoing
from holdfast.broker.sn.publishing import release, take_publish
from holdfast.broker.sn.repeats import SUBSCRIBED, UNSUBSCRIBED
from holdfast.broker.sn.welcome import attach, may_have, start, take_session
from holdfast.broker.snapshot import step
from holdfast.broker.subscribing import FIRST_QUANTUM, subscribe, unsubscribe
from holdfast.broker.topics import SHARE, check_topic
from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.connection import AUTHENTICATING
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
NO_ID: Final = 0


def tolerance_ms(seconds: int) -> int:
    """How long a client may be silent: a tenth more than it said above a minute, half as much again below."""
    return seconds * 1100 if seconds > 60 else seconds * 1500


def return_code(reason: int) -> int:
    """What 1.2 has to say instead of a reason of MQTT 5."""
    if reason < 0x80:
        return v12.ACCEPTED
    if reason in (QUOTA_EXCEEDED, SERVER_BUSY, CONNECTION_RATE_EXCEEDED):
        return v12.CONGESTION
    return v12.NOT_SUPPORTED


@final
class Link12(Link):
    protocol = "SN1.2"
    version = SN12

    def begin(self, packet: Connect, data: bytes) -> None:
        self.connect = packet
        self.connect_packet = data
        self.will_topic: WillTopic | None = None
        self.will: MqttWill | None = None
        self.announced: set[int] = set()  # ids that the client has been told in this connection
        if packet.asks_for_will:  # [SN12-03]
            self.gateway.pend(self)
            self.write(v12.encode(Bare(WILL_TOPIC_REQUEST)))
        else:
            self.complete()

    # The will prompt.

    def on_will_topic(self, packet: WillTopic) -> None:
        if self.state != CONNECTING:
            return
        if not packet.topic:  # [SN12-05]
            self.will_topic = None
            self.will = None
            self.complete()
            return
        self.will_topic = packet
        self.write(v12.encode(Bare(WILL_MESSAGE_REQUEST)))

    def on_will_message(self, packet: WillMessage) -> None:
        topic = self.will_topic
        if self.state != CONNECTING or topic is None:
            return
        self.will = MqttWill(topic.topic, packet.payload, topic.qos, topic.retain, None)
        self.complete()

    def complete(self) -> None:
        """All of CONNECT is known: ask who it is, or go on at once."""
        broker = self.broker
        connect = self.connect
        packet = self.mqtt_connect()
        if not connect.client_id:
            self.refuse(CLIENT_ID_NOT_VALID)
            return
        try:
            reason = validate_connect(broker, packet)
        except ProtocolError as error:
            reason = error.reason
        if reason != SUCCESS:
            self.refuse(reason)
        elif broker.authenticator is not None:
            self.gateway.pend(self)
            self.connection.state = AUTHENTICATING
            broker.begin_authentication(self.connection, packet)
        else:
            self.welcome("")

    def mqtt_connect(self) -> MqttConnect:
        connect = self.connect
        return MqttConnect(connect.client_id, V311, connect.clean_start, connect.keep_alive_s, self.will)

    def on_authenticated(self, reason: int, username: str) -> None:
        if reason != SUCCESS:
            self.refuse(reason)
        else:
            self.welcome(username)

    def welcome(self, username: str) -> None:
        connect = self.connect
        packet = self.mqtt_connect()
        reason = may_have(self, packet, username)
        if reason != SUCCESS:
            self.refuse(reason)
            return
        if not connect.clean_start and self.gateway.bring_back(self):
            return
        broker = self.broker
        session, present = take_session(self, connect.client_id, username, connect.clean_start, False)
        state = session.sensor
        if connect.asks_for_will:  # [SN12-04]
            self.link_will(session, packet.will)
        elif state is not None:
            packet.will = state.will  # it outlives the connection
        expiry_s = 0 if connect.clean_start else broker.cap_session_expiry(FOREVER)
        attach(self, session, present, username, expiry_s, packet)
        if connect.asks_for_will:
            self.sensor_state().will = packet.will
        self.keep_alive_ms = tolerance_ms(connect.keep_alive_s)
        broker.recorder.on_attached(session, self.connection)
        self.connack = v12.encode(ConnAck(v12.ACCEPTED))
        self.write(self.connack)
        start(self)

    def link_will(self, session: Session, will: MqttWill | None) -> None:
        if session.sensor is not None:
            session.sensor.will = will

    def come_back(self, other: "Link12") -> None:
        """A client that sleeps here has sent CONNECT through `other`: it is active again, with all it had."""
        connect = other.connect
        self.connect = connect
        self.connect_packet = other.connect_packet
        self.heard = False
        self.keep_alive_ms = tolerance_ms(connect.keep_alive_s)
        self.connection.last_seen_ms = self.broker.now_ms
        self.announced.clear()
        if connect.asks_for_will:
            self.set_will(other.will)
        self.connack = v12.encode(ConnAck(v12.ACCEPTED))
        self.write(self.connack)
        self.become_active()

    def refuse(self, reason: int) -> None:
        self.broker.counters.connects_refused += 1
        self.write(v12.encode(ConnAck(return_code(reason) or v12.NOT_SUPPORTED)))
        close(self.broker, self.connection, f"connect refused with reason 0x{reason:02X}")

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
            if not self.repeat_answer(data):
                self.on_subscribe(packet, data)
        elif isinstance(packet, Unsubscribe):
            if not self.repeat_answer(data):
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
            self.write(v12.encode(GatewayInfo(self.gateway.settings.gateway_id)))

    def fail(self, error: ProtocolError) -> None:
        """1.2 has no word for it: the datagram is not taken, and the client stays."""
        self.broker.counters.protocol_errors += 1
        self.broker.effects.notes.append((self.connection, f"protocol error: {error}"))

    def on_publish(self, packet: Publish) -> None:
        session = self.session
        assert session is not None
        if packet.qos < 0:
            self.gateway.publish_without_connection(packet, self.host)
            return
        field = self.field_of(packet)
        if not field:  # [SN12-08]
            self.write(v12.encode_puback(packet.topic_id, packet.packet_id, v12.INVALID_TOPIC_ID))
            return
        if not self.in_rate():
            code = v12.CONGESTION
        elif packet.qos > 0 and packet.packet_id == 0:
            code = v12.NOT_SUPPORTED
        else:
            try:
                code = return_code(
                    take_publish(
                        self.broker,
                        self.connection,
                        session,
                        field,
                        packet.payload,
                        packet.qos,
                        packet.retain,
                        packet.packet_id,
                    )
                )
            except ProtocolError as error:
                self.fail(error)
                code = v12.NOT_SUPPORTED
        self.acknowledge(packet, code)

    def acknowledge(self, packet: Publish, code: int) -> None:
        """PUBACK is the answer to QoS 1, and says at any QoS what went wrong."""
        if packet.qos == 2 and code == v12.ACCEPTED:
            self.write(v12.encode(Ack(PUBREC, packet.packet_id)))
        elif packet.qos == 1 or code != v12.ACCEPTED:
            self.write(v12.encode_puback(packet.topic_id, packet.packet_id, code))
        if packet.qos > 0:
            self.broker.recorder.hold(self.connection)

    def field_of(self, packet: Publish) -> bytes:
        """The topic that the packet names; empty when the id means nothing."""
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
            release(self.broker, self.connection, session, packet_id)
            self.write(v12.encode(Ack(PUBCOMP, packet_id)))

    def forget_id(self, topic_id: int) -> None:
        self.announced.discard(topic_id)

    def on_register(self, packet: Register) -> None:
        """[SN12-06] The same topic always gets the same id, so an answer that was lost needs no memory."""
        check_topic(packet.topic, self.broker.settings.max_topic_levels)
        topic_id = self.id_for(topic_field(packet.topic))
        code = v12.ACCEPTED if topic_id else v12.CONGESTION
        self.write(v12.encode(RegAck(topic_id, packet.packet_id, code)))

    def id_for(self, field: bytes) -> int:
        """The client's own id of a topic, given if need be; 0 when the table is full."""
        state = self.sensor_state()
        topic_id = state.by_field.get(field, NO_ID)
        if topic_id == NO_ID:
            settings = self.gateway.settings
            topic_id = state.add(field, settings.max_topics, settings.max_topic_bytes)
        if topic_id:
            self.announced.add(topic_id)
        return topic_id

    def on_subscribe(self, packet: Subscribe, data: bytes) -> None:
        """[SN12-07, SN12-17]"""
        session = self.session
        assert session is not None
        topic_filter = self.filter_of(packet.topic_type, packet.topic_id, packet.topic)
        answer_id = packet.topic_id if packet.topic_type == PREDEFINED else NO_ID
        if not topic_filter:
            self.answer(SUBSCRIBED, data, v12.encode(SubAck(packet.packet_id, NORMAL, answer_id, v12.INVALID_TOPIC_ID)))
            return
        if topic_filter.startswith(SHARE):
            self.answer(SUBSCRIBED, data, v12.encode(SubAck(packet.packet_id, NORMAL, NO_ID, v12.NOT_SUPPORTED)))
            return
        begun = self.gateway.begun
        begun.clear()
        request = SubscriptionRequest(topic_filter, packet.qos, False, False, 0)
        granted = subscribe(self.broker, session, request, 0, -1, begun)
        if granted >= 0x80:
            self.answer(SUBSCRIBED, data, v12.encode(SubAck(packet.packet_id, NORMAL, answer_id, return_code(granted))))
            return
        if packet.topic_type == NORMAL and b"+" not in topic_filter and b"#" not in topic_filter:
            answer_id = self.id_for(topic_field(topic_filter))
        self.answer(SUBSCRIBED, data, v12.encode(SubAck(packet.packet_id, NORMAL, answer_id, v12.ACCEPTED, granted)))
        for snapshot in begun:
            step(self.broker, snapshot, FIRST_QUANTUM)

    def on_unsubscribe(self, packet: Unsubscribe, data: bytes) -> None:
        session = self.session
        assert session is not None
        topic_filter = self.filter_of(packet.topic_type, packet.topic_id, packet.topic)
        if topic_filter:
            unsubscribe(self.broker, session, topic_filter)
        self.answer(UNSUBSCRIBED, data, v12.encode(Ack(UNSUBACK, packet.packet_id)))

    def filter_of(self, topic_type: int, topic_id: int, topic: bytes) -> bytes:
        if topic_type == PREDEFINED:
            return self.gateway.predefined.by_id.get(topic_id, b"")[2:]
        return topic

    def on_ping(self, packet: PingRequest) -> None:
        if packet.client_id and packet.client_id != self.client_id:
            self.gateway.wake_elsewhere(packet.client_id, self.key, self.host, self.envelope)
        elif self.state == ACTIVE:
            self.write(v12.encode(PingResponse()))
        else:  # [SN12-12]
            self.wake_up(self.gateway.settings.awake_messages)

    def on_disconnect(self, packet: Disconnect) -> None:
        """[SN12-14] Always answered; with a duration the client only goes to sleep."""
        self.write(GOODBYE)
        if packet.duration_s > 0:
            self.fall_asleep(tolerance_ms(packet.duration_s))
            return
        session = self.session
        assert session is not None
        if session.will is not None:
            session.will = None
            self.broker.recorder.on_will_cleared(session)
        close(self.broker, self.connection, "client disconnected")

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
        connect = self.connect
        packet = MqttConnect(connect.client_id, V311, connect.clean_start, connect.keep_alive_s, will)
        try:
            check_topic(will.topic, self.broker.settings.max_topic_levels)
            if may_have(self, packet, self.connection.username) != SUCCESS:
                return False
        except ProtocolError:
            return False
        self.set_will(will)
        return True

    def set_will(self, will: MqttWill | None) -> None:
        session = self.session
        assert session is not None
        self.sensor_state().will = will
        session.will = PendingWill(will, 0) if will is not None else None
        self.broker.recorder.on_attached(session, self.connection)

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
            settings = self.gateway.settings
            topic_id = state.lend(field, settings.max_topics, settings.max_topic_bytes)
        return v12.encode(Register(topic_id, packet_id, field[2:])) if topic_id else b""

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
        return self.gateway.settings.retry_ms

    def sets_dup(self, qos: int) -> bool:
        return qos > 0


def without_dup(packet: Subscribe) -> Subscribe:
    return Subscribe(packet.packet_id, packet.topic_type, packet.topic_id, packet.topic, packet.qos)


def is_sleeping(link: Link) -> bool:
    return link.state == ASLEEP or link.state == AWAKE
