"""A virtual connection: one client of MQTT-SN at one address, and the messages on their way to it.

Only one exchange may be under way to a client at a time (REGISTER, a PUBLISH at QoS 1 or 2, PUBREL), and only while the
client is awake. The session sees that as a window of one or none, the snapshots as `busy`. What cannot leave at once
waits in `pending`, in order: at most one message above QoS 0, and a bounded number at QoS 0.
"""

from typing import TYPE_CHECKING, Final

from holdfast.broker.delivery import on_puback, on_pubcomp, on_pubrec, pump, resend_more, write
from holdfast.broker.lifecycle import disconnect
from holdfast.broker.message import Message
from holdfast.broker.ports import OutboundAdapter, Peer
from holdfast.broker.session import AWAITING_COMPLETE, Connection, Session
from holdfast.broker.sn.ids import SensorState
from holdfast.broker.sn.outgoing import NEEDS_ID, READY, TOO_LARGE, Outgoing
from holdfast.broker.sn.ports import DatagramPeer
from holdfast.broker.sn.repeats import Repeats
from holdfast.broker.timers import ADAPTER, Timer
from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.connection import CLOSED
from holdfast.protocol.mqtt.reasons import KEEP_ALIVE_TIMEOUT, UNSPECIFIED_ERROR
from holdfast.protocol.sn.frame import Envelope

if TYPE_CHECKING:
    from holdfast.broker.sn.gateway import Gateway

CONNECTING: Final = 0
ACTIVE: Final = 1
ASLEEP: Final = 2
AWAKE: Final = 3
GONE: Final = 4

# The exchange under way.
IDLE: Final = 0
REGISTERING: Final = 1
PUBLISHING: Final = 2
RELEASING: Final = 3

# The most that fits into a datagram over IPv4, less the room that a forwarder may need.
MAX_DATAGRAM: Final = 65_507 - 259
# A CONNECT that is the same again so soon is the network's doing.
REPEATED_CONNECT_MS: Final = 2_000
UNLIMITED: Final = -1

# Stands in for the connection of a link that is gone, so that the two do not keep each other in memory.
NOWHERE: Final = Connection(Peer(), 0)
NOWHERE.state = CLOSED


class Link(OutboundAdapter):
    """Invariants: `pending` is empty or its head waits for a topic id, for the exchange to end, or for the client to
    wake; `current` is the message of an exchange that is PUBLISHING.
    """

    protocol = ""
    version = 0  # as the counters and the log know it

    def __init__(
        self,
        gateway: "Gateway",
        key: object,
        host: str,
        envelope: Envelope | None,
        peer: DatagramPeer,
        connection: Connection,
    ) -> None:
        self.gateway: Final = gateway
        self.broker: Final = gateway.broker
        self.key = key
        self.host = host
        self.envelope = envelope
        self.peer: Final = peer
        self.connection = connection
        connection.agreed.version = self.version
        self.session: Session | None = None
        self.client_id = ""
        self.first_id = 1  # of a table of topic ids, should there be none yet
        self.state = CONNECTING
        self.silent = False  # ends without a word, because the same address goes on as another link

        self.connect_packet = b""
        self.connack = b""
        self.heard = False  # anything since CONNACK
        self.repeats: Final = Repeats()

        self.pending: list[Outgoing] = []
        self.driving = False
        self.exchange: int = IDLE
        self.exchange_id = 0
        self.exchange_packet = b""
        self.current: Outgoing | None = None
        self.tries = 0
        self.retry_at_ms = 0

        self.keep_alive_ms = 0  # with the tolerance; 0: not watched
        self.sleep_ms = 0
        self.asleep_since_ms = 0
        self.awake_left: int = UNLIMITED
        self.scheduled_ms = 0
        self.packets_owed = 0.0
        self.packets_since_ms = 0

    # What the versions fill in.

    def receive(self, data: bytes) -> None:
        """One packet from the client."""
        raise NotImplementedError

    def fail(self, error: ProtocolError) -> None:
        """A packet that cannot be accepted."""
        raise NotImplementedError

    def refuse(self, reason: int) -> None:
        """CONNACK with the reason, as far as the version has one."""
        raise NotImplementedError

    def prepare(self, out: Outgoing) -> int:
        """Settle how the topic is named on the wire: READY, NEEDS_ID or TOO_LARGE."""
        raise NotImplementedError

    def publish_packet(self, out: Outgoing, dup: bool) -> bytes:
        raise NotImplementedError

    def register_packet(self, field: bytes, packet_id: int) -> bytes:
        """REGISTER with an id that is set aside for the topic; empty when there is none left."""
        raise NotImplementedError

    def release_packet(self, packet_id: int) -> bytes:
        raise NotImplementedError

    def ping_response(self, remaining: int) -> bytes:
        raise NotImplementedError

    def goodbye_packet(self, reason: int) -> bytes:
        raise NotImplementedError

    def retry_delay_ms(self, tries: int) -> int:
        raise NotImplementedError

    def sets_dup(self, qos: int) -> bool:
        """Whether a resent PUBLISH is marked as such."""
        raise NotImplementedError

    # What the core asks.

    def publish(self, message: Message, qos: int, retain: bool, dup: bool, packet_id: int) -> bool:
        out = Outgoing(message, qos, retain, dup and self.sets_dup(qos), packet_id)
        found = self.prepare(out)
        if found == TOO_LARGE:
            return False
        if found == READY and not self.pending and self.is_open() and (qos == 0 or self.exchange == IDLE):
            self.send(out)
            return True
        if qos == 0 and len(self.pending) >= self.gateway.settings.max_buffered:
            self.broker.counters.dropped_slow += 1
            return True
        self.pending.append(out)
        if len(self.pending) >= self.gateway.settings.max_buffered:
            self.connection.outbox.limit = 0  # no more until some of these have left
        self.drive()
        return True

    def release(self, packet_id: int) -> None:
        self.start(RELEASING, packet_id, self.release_packet(packet_id))

    def goodbye(self, reason: int) -> None:
        if not self.silent:
            packet = self.goodbye_packet(reason)
            if packet:
                self.write(packet)

    def on_closed(self) -> None:
        self.state = GONE
        self.pending.clear()
        self.current = None
        self.repeats.clear()
        self.session = None
        self.gateway.unbind(self)
        self.connection = NOWHERE

    def on_room(self) -> None:
        if self.state != CONNECTING and self.state != GONE:
            self.drive()

    # Sending.

    def write(self, packet: bytes) -> None:
        write(self.connection, packet)
        self.broker.effects.write_to(self.connection)

    def is_open(self) -> bool:
        return self.state == ACTIVE or (self.state == AWAKE and self.awake_left != 0)

    def send(self, out: Outgoing) -> None:
        packet = self.publish_packet(out, out.dup)
        if self.state == AWAKE and self.awake_left > 0:
            self.awake_left -= 1
            if self.awake_left == 0 and self.session is not None:
                self.session.window = 0
        if out.qos == 0:
            self.write(packet)
            return
        self.start(PUBLISHING, out.packet_id, packet)
        self.current = out

    def start(self, exchange: int, packet_id: int, packet: bytes) -> None:
        self.exchange = exchange
        self.exchange_id = packet_id
        self.exchange_packet = packet
        self.current = None
        self.tries = 0
        self.retry_at_ms = self.broker.now_ms + self.retry_delay_ms(0)
        self.schedule(self.retry_at_ms)
        self.write(packet)

    def finish(self) -> None:
        self.exchange = IDLE
        self.exchange_id = 0
        self.exchange_packet = b""
        self.current = None
        self.retry_at_ms = 0

    def drive(self) -> None:
        """Send what waits, as far as the client can be sent anything."""
        if self.driving:
            return  # an acknowledgement inside the loop below led here; the loop goes on by itself
        self.driving = True
        while self.pending and self.is_open():
            out = self.pending[0]
            if out.qos > 0 and self.exchange != IDLE:
                break
            found = self.prepare(out)
            if found == NEEDS_ID:
                if self.exchange == IDLE:
                    self.register(out)
                    if self.exchange == IDLE:
                        continue
                break
            self.pending.pop(0)
            if found == READY:
                self.send(out)
            else:
                self.abandon(out)
        self.driving = False
        self.settle()

    def register(self, out: Outgoing) -> None:
        session = self.session
        assert session is not None
        packet_id = session.new_packet_id()
        packet = self.register_packet(out.message.topic_field, packet_id)
        if packet:
            self.start(REGISTERING, packet_id, packet)
        else:
            self.pending.pop(0)
            self.abandon(out)

    def abandon(self, out: Outgoing) -> None:
        """The message cannot be sent to this client after all: that is the end of it."""
        self.broker.counters.dropped_too_large += 1
        session = self.session
        assert session is not None
        if out.qos == 1:
            on_puback(self.broker, session, out.packet_id)
        elif out.qos == 2 and out.packet_id in session.inflight:
            on_pubrec(self.broker, session, self.connection, out.packet_id, UNSPECIFIED_ERROR)

    def settle(self) -> None:
        """Tell session and snapshots whether there is room, and a client that is awake when it may sleep again."""
        session = self.session
        if session is None or self.state == GONE:
            return
        connection = self.connection
        broker = self.broker
        is_open = self.is_open()
        was_busy = connection.busy
        connection.busy = not is_open or len(self.pending) > 0
        session.window = 1 if is_open else 0
        full = len(self.pending) >= self.gateway.settings.max_buffered
        connection.outbox.limit = 0 if full else broker.settings.max_outbox_bytes
        if is_open and self.exchange == IDLE and not self.pending:
            if session.resending:
                resend_more(broker, session)
            elif session.queue:
                pump(broker, session)
        if was_busy and not connection.busy:
            for snapshot in session.snapshots:
                broker.wake(snapshot)
        if self.state == AWAKE and self.exchange == IDLE:
            if not self.is_open() or self.nothing_waits(session):
                self.back_to_sleep(session)

    def nothing_waits(self, session: Session) -> bool:
        return not self.pending and not session.queue and not session.snapshots and not session.resending

    # Acknowledgements.

    def on_puback(self, packet_id: int) -> None:
        session = self.session
        assert session is not None
        if self.exchange != PUBLISHING or self.exchange_id != packet_id:
            return  # a second copy of an answer that has been taken
        current = self.current
        assert current is not None
        if current.qos == 2:  # refused: an answer that both versions have for every QoS, or nearly
            self.finish()
            on_pubrec(self.broker, session, self.connection, packet_id, UNSPECIFIED_ERROR)
        else:
            self.finish()
            on_puback(self.broker, session, packet_id)
        self.drive()

    def on_unknown_id(self, topic_id: int, packet_id: int) -> None:
        """The client does not know the id: give it the topic again, then the message, but only once."""
        session = self.session
        assert session is not None
        self.forget_id(topic_id)
        if self.exchange != PUBLISHING or self.exchange_id != packet_id:
            return
        current = self.current
        assert current is not None
        if current.registered_again:
            self.on_puback(packet_id)
            return
        current.registered_again = True
        self.finish()
        self.pending.insert(0, current)
        self.drive()

    def forget_id(self, topic_id: int) -> None:
        self.sensor_state().forget(topic_id)

    def on_pubrec(self, packet_id: int, reason: int) -> None:
        session = self.session
        assert session is not None
        if self.exchange == RELEASING and self.exchange_id == packet_id:
            self.write(self.exchange_packet)  # PUBREL was lost
            return
        delivery = session.inflight.get(packet_id)
        if delivery is None or delivery.qos != 2:
            self.write(self.unknown_release(packet_id))
            return
        if delivery.stage == AWAITING_COMPLETE:
            return
        if self.exchange == PUBLISHING and self.exchange_id == packet_id:
            self.finish()
            on_pubrec(self.broker, session, self.connection, packet_id, reason)
            self.drive()

    def unknown_release(self, packet_id: int) -> bytes:
        """PUBREL for a PUBREC that nothing is known of."""
        return self.release_packet(packet_id)

    def on_pubcomp(self, packet_id: int) -> None:
        session = self.session
        assert session is not None
        if self.exchange == RELEASING and self.exchange_id == packet_id:
            self.finish()
            on_pubcomp(self.broker, session, packet_id)
            self.drive()

    def on_regack(self, packet_id: int, accepted: bool) -> None:
        if self.exchange != REGISTERING or self.exchange_id != packet_id:
            return
        self.finish()
        if self.pending:
            out = self.pending[0]
            if accepted:
                self.on_registered(out.message.topic_field)
            else:
                self.pending.pop(0)
                self.abandon(out)
        self.drive()

    def on_registered(self, field: bytes) -> None:
        raise NotImplementedError

    # Requests that come twice.

    def repeat_answer(self, request: bytes) -> bool:
        """Answer a request again that has been carried out; False when it is new."""
        answer = self.repeats.find(request, self.broker.now_ms)
        if answer:
            self.write(answer)
        return len(answer) > 0

    def answer(self, kind: int, request: bytes, packet: bytes) -> None:
        """Answer a request that has just been carried out."""
        self.write(packet)
        self.repeats.add(kind, request, packet, self.broker.now_ms)

    def is_repeated_connect(self, data: bytes) -> bool:
        if data != self.connect_packet or self.state != ACTIVE:
            return False
        return not self.heard or self.broker.now_ms - self.connection.connected_at_ms <= REPEATED_CONNECT_MS

    # Sleep and timers.

    def fall_asleep(self, sleep_ms: int) -> None:
        self.state = ASLEEP
        self.sleep_ms = sleep_ms
        self.asleep_since_ms = self.broker.now_ms
        self.retry_at_ms = 0  # an exchange under way goes on when the client wakes
        self.schedule(self.asleep_since_ms + self.sleep_ms)
        self.settle()

    def wake_up(self, most: int) -> None:
        """The client asks for what waits: `most` messages of it, or all."""
        if self.state == AWAKE:
            return  # the same request again
        self.state = AWAKE
        self.awake_left = most if most > 0 else UNLIMITED
        self.resume_exchange()
        self.drive()

    def become_active(self) -> None:
        self.state = ACTIVE
        self.watch()
        self.resume_exchange()
        self.drive()

    def resume_exchange(self) -> None:
        if self.exchange != IDLE and self.retry_at_ms == 0:
            self.tries = 0
            self.send_again()

    def back_to_sleep(self, session: Session) -> None:
        remaining = len(session.queue) + len(self.pending) + len(session.resending)
        if session.snapshots:
            remaining = 255
        self.write(self.ping_response(min(remaining, 255)))
        self.fall_asleep(self.sleep_ms)

    def watch(self) -> None:
        if self.keep_alive_ms > 0:
            self.schedule(self.broker.now_ms + self.keep_alive_ms)

    def schedule(self, due_ms: int) -> None:
        if self.scheduled_ms == 0 or due_ms < self.scheduled_ms:
            self.scheduled_ms = due_ms
            self.broker.timers.add(due_ms, Timer(ADAPTER, self.connection, None))

    def on_due(self) -> None:
        now_ms = self.broker.now_ms
        if self.scheduled_ms <= now_ms:
            self.scheduled_ms = 0
        if self.state == GONE or self.state == CONNECTING:
            return
        if self.state == ASLEEP:
            due_ms = self.asleep_since_ms + self.sleep_ms
            if due_ms <= now_ms:
                self.lose(KEEP_ALIVE_TIMEOUT, "the client has not woken up in time")
            else:
                self.schedule(due_ms)
            return
        if self.keep_alive_ms > 0:
            due_ms = self.connection.last_seen_ms + self.keep_alive_ms
            if due_ms <= now_ms:
                self.lose(KEEP_ALIVE_TIMEOUT, "keep alive timeout")
                return
            self.schedule(due_ms)
        if self.retry_at_ms > 0:
            if self.retry_at_ms <= now_ms:
                self.retry()
            else:
                self.schedule(self.retry_at_ms)

    def retry(self) -> None:
        if self.tries >= self.gateway.settings.retries:
            self.lose(UNSPECIFIED_ERROR, f"no answer after {self.tries} resends")
            return
        self.tries += 1
        self.send_again()

    def send_again(self) -> None:
        self.retry_at_ms = self.broker.now_ms + self.retry_delay_ms(self.tries)
        self.schedule(self.retry_at_ms)
        current = self.current
        if self.exchange == PUBLISHING and current is not None and self.sets_dup(current.qos):
            self.exchange_packet = self.publish_packet(current, True)
        self.write(self.exchange_packet)

    def lose(self, reason: int, text: str) -> None:
        """The client is gone without a word; its will is due."""
        disconnect(self.broker, self.connection, reason, text)

    # Odds and ends.

    def sensor_state(self) -> SensorState:
        session = self.session
        assert session is not None
        state = session.sensor
        if state is None:
            state = SensorState(self.first_id)
            session.sensor = state
        return state

    def in_rate(self) -> bool:
        """Whether one more packet fits into the client's rate, with a second's worth of burst."""
        rate = self.gateway.settings.message_rate
        if rate <= 0:
            return True
        elapsed_s = (self.broker.now_ms - self.packets_since_ms) / 1000
        self.packets_since_ms = self.broker.now_ms
        self.packets_owed = max(0.0, self.packets_owed - elapsed_s * rate)
        if self.packets_owed + 1 > max(rate, 1.0):
            return False
        self.packets_owed += 1
        return True
