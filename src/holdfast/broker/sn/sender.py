"""The messages on their way to one client of MQTT-SN, while it is awake and while it sleeps.

Only one exchange may be under way to a client at a time (REGISTER, a PUBLISH at QoS 1 or 2, PUBREL), and only while the
client is awake. The session sees that as a window of one or none, the snapshots as `busy`. What cannot leave at once
waits in `pending`, in order: at most one message above QoS 0, and a bounded number at QoS 0. An address that has not
been proven is challenged before it is sent more than a little (see proof.py).
"""

from typing import TYPE_CHECKING, Final, final

from holdfast.broker.delivery import on_puback, on_pubcomp, on_pubrec, pump, resend_more, write
from holdfast.broker.lifecycle import disconnect
from holdfast.broker.message import Message
from holdfast.broker.ports import OutboundAdapter
from holdfast.broker.session import AWAITING_COMPLETE, Connection, Session
from holdfast.broker.sn.ids import FIRST_ID, NO_ID, SensorState
from holdfast.broker.sn.ports import SnSettings
from holdfast.broker.sn.proof import AddressProof
from holdfast.broker.timers import ADAPTER, Timer
from holdfast.protocol.mqtt.reasons import KEEP_ALIVE_TIMEOUT, UNSPECIFIED_ERROR

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

# The state of the client.
CONNECTING: Final = 0
ACTIVE: Final = 1
ASLEEP: Final = 2
AWAKE: Final = 3  # for a moment, to fetch its messages
GONE: Final = 4

# Whether a message can be sent as it is.
READY: Final = 0
NEEDS_ID: Final = 1  # the client has to be told a number for the topic first
TOO_LARGE: Final = 2

# The exchange under way.
IDLE: Final = 0
REGISTERING: Final = 1
PUBLISHING: Final = 2
RELEASING: Final = 3
CHALLENGING: Final = 4  # a REGISTER whose answer proves that the client is where it says

UNLIMITED: Final = -1


@final
class Outgoing:
    """A message that waits to be sent; `topic_type` and `topic_id` are chosen when it leaves."""

    def __init__(self, message: Message, qos: int, retain: bool, dup: bool, packet_id: int) -> None:
        self.message: Final = message
        self.qos: Final = qos
        self.retain: Final = retain
        self.dup = dup
        self.packet_id: Final = packet_id
        self.topic_type = 0
        self.topic_id = 0
        self.registered_again = False


@final
class Exchange:
    """A packet that waits for the client's answer and is resent until it comes, or none while `kind` is IDLE.

    Invariants: `out` is the message of a PUBLISHING exchange, and None in all others; `retry_at_ms` is 0 while the
    exchange rests because the client sleeps.
    """

    def __init__(self) -> None:
        self.kind: int = IDLE
        self.packet_id = 0
        self.packet = b""
        self.out: Outgoing | None = None
        self.tries = 0
        self.retry_at_ms = 0

    def begin(self, kind: int, packet_id: int, packet: bytes, out: Outgoing | None) -> None:
        self.kind = kind
        self.packet_id = packet_id
        self.packet = packet
        self.out = out
        self.tries = 0

    def end(self) -> None:
        self.kind = IDLE
        self.packet_id = 0
        self.packet = b""
        self.out = None
        self.retry_at_ms = 0

    def waits_for(self, kind: int, packet_id: int) -> bool:
        """Return whether an answer to a packet of this kind and id is what the exchange waits for."""
        return self.kind == kind and self.packet_id == packet_id


class SnSender(OutboundAdapter):
    """Invariant: `pending` is empty, or its head waits for a topic id, for the exchange to end, or for the client to
    wake.
    """

    def __init__(self, broker: "Broker", settings: SnSettings, connection: Connection, proof: AddressProof) -> None:
        self.broker: Final = broker
        self.settings: Final = settings
        self.connection = connection
        self.proof = proof
        self.session: Session | None = None
        self.state = CONNECTING
        self.first_id: int = FIRST_ID  # of a table of topic ids, should there be none yet

        self.pending: list[Outgoing] = []
        self.flushing = False
        self.exchange: Final = Exchange()

        self.keep_alive_ms = 0  # with the tolerance; 0: not watched
        self.sleep_ms = 0
        self.asleep_since_ms = 0
        self.awake_left: int = UNLIMITED
        self.scheduled_ms = 0

    # What the versions fill in.

    def prepare(self, out: Outgoing) -> int:
        """Choose how the topic is named on the wire; returns READY, NEEDS_ID or TOO_LARGE."""
        raise NotImplementedError

    def publish_packet(self, out: Outgoing, dup: bool) -> bytes:
        raise NotImplementedError

    def register_packet(self, field: bytes, packet_id: int) -> bytes:
        """Return REGISTER with an id that is assigned to the topic, or nothing when no id is free."""
        raise NotImplementedError

    def challenge_packet(self, packet_id: int) -> bytes:
        """Return REGISTER of a topic that nothing is published to, with an id that is in no table."""
        raise NotImplementedError

    def on_registered(self, field: bytes) -> None:
        """The client has accepted the id of this topic."""
        raise NotImplementedError

    def release_packet(self, packet_id: int) -> bytes:
        raise NotImplementedError

    def unknown_release_packet(self, packet_id: int) -> bytes:
        """Return PUBREL in answer to a PUBREC that nothing is known of."""
        return self.release_packet(packet_id)

    def ping_response(self, remaining: int) -> bytes:
        raise NotImplementedError

    def retry_delay_ms(self, tries: int) -> int:
        raise NotImplementedError

    def unguessable_id(self, session: Session) -> int:
        """Return a packet id that is free, and that nobody can know who is not told."""
        raise NotImplementedError

    def give_up_silently(self, text: str) -> None:
        raise NotImplementedError

    def sets_dup(self, qos: int) -> bool:
        """Return whether a resent PUBLISH is marked as such."""
        raise NotImplementedError

    # What the core asks.

    def publish(self, message: Message, qos: int, retain: bool, dup: bool, packet_id: int) -> bool:
        out = Outgoing(message, qos, retain, dup and self.sets_dup(qos), packet_id)
        found = self.prepare(out)
        if found == TOO_LARGE:
            return False
        is_next = not self.pending and self.is_open() and (qos == 0 or self.exchange.kind == IDLE)
        if found == READY and is_next and self.send(out):
            return True
        if qos == 0 and len(self.pending) >= self.settings.max_buffered:
            self.broker.counters.dropped_slow += 1
            return True
        self.pending.append(out)
        if len(self.pending) >= self.settings.max_buffered:
            self.connection.outbox.limit = 0  # no more until some of these have left
        self.flush()
        return True

    def release(self, packet_id: int) -> None:
        self.begin_exchange(RELEASING, packet_id, self.release_packet(packet_id), None)

    def on_room(self) -> None:
        if self.state != CONNECTING and self.state != GONE:
            self.flush()

    # Sending.

    def write(self, packet: bytes) -> None:
        if self.proof.take_room(len(packet)):
            write(self.connection, packet)
            self.broker.effects.write_to(self.connection)
        else:
            self.broker.counters.datagrams_dropped += 1

    def is_open(self) -> bool:
        """Return whether the client may be sent messages now."""
        return self.state == ACTIVE or (self.state == AWAKE and self.awake_left != 0)

    def send(self, out: Outgoing) -> bool:
        """Send a message; returns False when it is too much for an address that has not been proven."""
        packet = self.publish_packet(out, out.dup)
        if not self.proof.has_room(len(packet)):
            return False
        if self.state == AWAKE and self.awake_left > 0:
            self.awake_left -= 1
            if self.awake_left == 0 and self.session is not None:
                self.set_window(self.session, 0)
        if out.qos == 0:
            self.write(packet)
        else:
            self.begin_exchange(PUBLISHING, out.packet_id, packet, out)
        return True

    def begin_exchange(self, kind: int, packet_id: int, packet: bytes, out: Outgoing | None) -> None:
        self.exchange.begin(kind, packet_id, packet, out)
        self.schedule_retry()
        self.write(packet)

    def flush(self) -> None:
        """Send what is pending, as far as the client can be sent anything."""
        if self.flushing:
            return  # an acknowledgement inside the loop below led here; the loop goes on by itself
        self.flushing = True
        while self.pending and self.is_open():
            out = self.pending[0]
            if out.qos > 0 and self.exchange.kind != IDLE:
                break
            found = self.prepare(out)
            if found == NEEDS_ID:
                if self.exchange.kind == IDLE:
                    self.register(out)
                    if self.exchange.kind == IDLE:
                        continue
                break
            if found == READY and not self.send(out):
                self.challenge()
                break
            self.pending.pop(0)
            if found == TOO_LARGE:
                self.abandon(out)
        self.flushing = False
        self.update_window()

    def register(self, out: Outgoing) -> None:
        session = self.session
        assert session is not None
        packet_id = session.new_packet_id()
        packet = self.register_packet(out.message.topic_field, packet_id)
        if not packet:
            self.pending.pop(0)
            self.abandon(out)
        elif self.proof.has_room(len(packet)):
            self.begin_exchange(REGISTERING, packet_id, packet, None)
        else:
            self.challenge()

    def challenge(self) -> None:
        """Ask the client for what only it can answer, unless it has been asked for something already."""
        session = self.session
        assert session is not None
        if self.exchange.kind == IDLE:
            packet_id = self.unguessable_id(session)
            self.begin_exchange(CHALLENGING, packet_id, self.challenge_packet(packet_id), None)

    def abandon(self, out: Outgoing) -> None:
        """Give up a message that cannot be sent to this client after all."""
        self.broker.counters.dropped_too_large += 1
        session = self.session
        assert session is not None
        if out.qos == 1:
            on_puback(self.broker, session, out.packet_id)
        elif out.qos == 2 and out.packet_id in session.inflight:
            on_pubrec(self.broker, session, self.connection, out.packet_id, UNSPECIFIED_ERROR)

    def update_window(self) -> None:
        """Tell session and snapshots whether there is room, and a client that is awake when it may sleep again."""
        session = self.session
        if session is None or self.state == GONE:
            return
        connection = self.connection
        broker = self.broker
        is_open = self.is_open()
        was_busy = connection.busy
        connection.busy = not is_open or len(self.pending) > 0
        self.set_window(session, 1 if is_open else 0)
        full = len(self.pending) >= self.settings.max_buffered
        connection.outbox.limit = 0 if full else broker.settings.max_outbox_bytes
        if is_open and self.exchange.kind == IDLE and not self.pending:
            if session.resending:
                resend_more(broker, session)
            elif session.queue or (session.spread is not None and session.spread.outgoing):
                pump(broker, session)
        if was_busy and not connection.busy:
            for snapshot in session.snapshots:
                broker.wake(snapshot)
        if self.state == AWAKE and self.exchange.kind == IDLE:
            if not self.is_open() or self.has_nothing_to_send(session):
                self.back_to_sleep(session)

    def set_window(self, session: Session, window: int) -> None:
        """Say whether the session may send something. Where nodes share a log they all believe that a session which is
        kept may, and what it is sent waits here (`busy`).
        """
        if self.broker.shared is None or not session.kept:
            session.window = window

    def has_nothing_to_send(self, session: Session) -> bool:
        if session.spread is not None and session.kept and session.inflight:
            return False
        return not self.pending and not session.queue and not session.snapshots and not session.resending

    # Acknowledgements.

    def on_puback(self, packet_id: int) -> None:
        session = self.session
        assert session is not None
        if not self.exchange.waits_for(PUBLISHING, packet_id):
            return  # a second copy of an answer that has been handled
        out = self.exchange.out
        assert out is not None
        self.exchange.end()
        if out.qos == 2:  # refused: an answer that both versions have for every QoS, or nearly
            on_pubrec(self.broker, session, self.connection, packet_id, UNSPECIFIED_ERROR)
        else:
            on_puback(self.broker, session, packet_id)
        self.flush()

    def on_unknown_id(self, topic_id: int, packet_id: int) -> None:
        """The client does not know the id: give it the topic again, then the message, but only once."""
        self.forget_id(topic_id)
        if not self.exchange.waits_for(PUBLISHING, packet_id):
            return
        out = self.exchange.out
        assert out is not None
        if out.registered_again:
            self.on_puback(packet_id)
            return
        out.registered_again = True
        self.exchange.end()
        self.pending.insert(0, out)
        self.flush()

    def on_pubrec(self, packet_id: int, reason: int) -> None:
        session = self.session
        assert session is not None
        if self.exchange.waits_for(RELEASING, packet_id):
            self.write(self.exchange.packet)  # PUBREL was lost
            return
        delivery = session.inflight.get(packet_id)
        if delivery is None or delivery.qos != 2:
            if reason < 0x80:
                self.write(self.unknown_release_packet(packet_id))
            return
        if delivery.stage == AWAITING_COMPLETE:
            return
        if self.exchange.waits_for(PUBLISHING, packet_id):
            self.exchange.end()
            on_pubrec(self.broker, session, self.connection, packet_id, reason)
            self.flush()

    def on_pubcomp(self, packet_id: int) -> None:
        session = self.session
        assert session is not None
        if self.exchange.waits_for(RELEASING, packet_id):
            self.exchange.end()
            on_pubcomp(self.broker, session, packet_id)
            self.flush()

    def on_regack(self, packet_id: int, accepted: bool) -> None:
        exchange = self.exchange
        if exchange.kind == CHALLENGING:
            if exchange.packet_id == packet_id:
                exchange.end()
                self.proof.on_echo(packet_id)
                self.flush()
            elif self.proof.on_wrong_echo(packet_id):
                self.give_up_silently("REGACK came with wrong packet ids")
            return
        if not exchange.waits_for(REGISTERING, packet_id):
            return
        exchange.end()
        if self.pending:
            out = self.pending[0]
            if accepted:
                self.on_registered(out.message.topic_field)
            else:
                self.pending.pop(0)
                self.abandon(out)
        self.flush()

    # Topic ids.

    def sensor_state(self) -> SensorState:
        session = self.session
        assert session is not None
        state = session.sensor
        if state is None:
            state = SensorState(self.first_id)
            session.sensor = state
        return state

    def topic_id_for(self, field: bytes) -> int:
        """Return the client's own id of a topic, assigned if need be, or NO_ID when its table is full."""
        state = self.sensor_state()
        topic_id = state.by_field.get(field, NO_ID)
        if topic_id == NO_ID:
            settings = self.settings
            topic_id = state.assign(field, settings.max_topics, settings.max_topic_bytes)
        return topic_id

    def forget_id(self, topic_id: int) -> None:
        self.sensor_state().forget(topic_id)

    # Sleep and timers.

    def is_sleeping(self) -> bool:
        """Return whether the client has gone to sleep, even if it is awake for a moment to fetch its messages."""
        return self.state == ASLEEP or self.state == AWAKE

    def fall_asleep(self, sleep_ms: int) -> None:
        self.state = ASLEEP
        self.sleep_ms = sleep_ms
        self.asleep_since_ms = self.broker.now_ms
        self.exchange.retry_at_ms = 0  # an exchange under way goes on when the client wakes
        self.schedule(self.asleep_since_ms + self.sleep_ms)
        self.update_window()

    def wake_up(self, max_messages: int) -> None:
        """Send the client what waits, as it has asked: up to `max_messages`, or everything if that is 0."""
        if self.state == AWAKE:
            return  # the same request again
        self.state = AWAKE
        self.awake_left = max_messages if max_messages > 0 else UNLIMITED
        self.resume_exchange()
        self.flush()

    def become_active(self) -> None:
        self.state = ACTIVE
        if self.keep_alive_ms > 0:
            self.schedule(self.broker.now_ms + self.keep_alive_ms)
        self.resume_exchange()
        self.flush()

    def resume_exchange(self) -> None:
        if self.exchange.kind != IDLE and self.exchange.retry_at_ms == 0:
            self.exchange.tries = 0
            self.resend()

    def back_to_sleep(self, session: Session) -> None:
        remaining = len(session.queue) + len(self.pending) + len(session.resending)
        if session.snapshots:
            remaining = 255
        self.write(self.ping_response(min(remaining, 255)))
        self.fall_asleep(self.sleep_ms)

    def schedule(self, due_ms: int) -> None:
        if self.scheduled_ms == 0 or due_ms < self.scheduled_ms:
            self.scheduled_ms = due_ms
            self.broker.timers.add(due_ms, Timer(ADAPTER, self.connection, None))

    def schedule_retry(self) -> None:
        self.exchange.retry_at_ms = self.broker.now_ms + self.retry_delay_ms(self.exchange.tries)
        self.schedule(self.exchange.retry_at_ms)

    def on_due(self) -> None:
        now_ms = self.broker.now_ms
        if self.scheduled_ms <= now_ms:
            self.scheduled_ms = 0
        if self.state == GONE or self.state == CONNECTING:
            return
        if self.state == ASLEEP:
            due_ms = self.asleep_since_ms + self.sleep_ms
            if due_ms <= now_ms:
                disconnect(self.broker, self.connection, KEEP_ALIVE_TIMEOUT, "the client has not woken up in time")
            else:
                self.schedule(due_ms)
            return
        if self.keep_alive_ms > 0:
            due_ms = self.connection.last_seen_ms + self.keep_alive_ms
            if due_ms <= now_ms:
                disconnect(self.broker, self.connection, KEEP_ALIVE_TIMEOUT, "keep alive timeout")
                return
            self.schedule(due_ms)
        retry_at_ms = self.exchange.retry_at_ms
        if retry_at_ms > now_ms:
            self.schedule(retry_at_ms)
        elif retry_at_ms > 0:
            self.retry()

    def retry(self) -> None:
        exchange = self.exchange
        if exchange.tries >= self.settings.retries:
            text = f"no answer after {exchange.tries} resends"
            disconnect(self.broker, self.connection, UNSPECIFIED_ERROR, text)
            return
        exchange.tries += 1
        self.resend()

    def resend(self) -> None:
        exchange = self.exchange
        out = exchange.out
        if out is not None and not self.proof.has_room(len(exchange.packet)):
            exchange.end()
            self.pending.insert(0, out)
            self.flush()  # which challenges the address first
            return
        self.schedule_retry()
        if out is not None and self.sets_dup(out.qos):
            exchange.packet = self.publish_packet(out, True)
        self.write(exchange.packet)
