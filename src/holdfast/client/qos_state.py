"""The two-way bookkeeping of QoS 1 and 2, without I/O: what is unacknowledged, what was already handed over.

Outgoing, a packet id is taken from PUBLISH until PUBACK or PUBCOMP. Incoming, a QoS 2 id is remembered from PUBREC
until PUBREL, so that a repeat is not handed over twice. All of it outlives a connection for as long as the server keeps
the session.
"""

from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, Ack, Packet, Publish


class Outgoing:
    """A message on its way; `released` once PUBREL was sent."""

    def __init__(self, publish: Publish) -> None:
        self.publish = publish
        self.released = False


class QosState:
    def __init__(self, version: int, window: int) -> None:
        self.version = version
        self.window = window
        self._outgoing: dict[int, Outgoing] = {}  # in the order of sending
        self._requests: set[int] = set()  # ids of SUBSCRIBE and UNSUBSCRIBE without an answer yet
        self._received: set[int] = set()  # QoS 2 ids answered with PUBREC
        self._last_id = 0

    @property
    def unacknowledged(self) -> int:
        return len(self._outgoing)

    @property
    def has_room(self) -> bool:
        """Whether another QoS 1 or 2 message may be sent now. [5: MQTT-3.3.4-7, 4.9.0-2]"""
        return len(self._outgoing) < self.window

    def request_id(self) -> int:
        """Returns an id for SUBSCRIBE or UNSUBSCRIBE; give it back with `request_done`."""
        packet_id = self._free_id()
        self._requests.add(packet_id)
        return packet_id

    def request_done(self, packet_id: int) -> None:
        self._requests.discard(packet_id)

    def _free_id(self) -> int:
        while True:
            self._last_id = self._last_id % 0xFFFF + 1
            if self._last_id not in self._outgoing and self._last_id not in self._requests:
                return self._last_id

    def start(self, publish: Publish) -> None:
        """Counts a QoS 1 or 2 message that is about to be sent as unacknowledged, and sets its packet id."""
        publish.packet_id = self._free_id()
        self._outgoing[publish.packet_id] = Outgoing(publish)

    def is_outgoing(self, packet_id: int) -> bool:
        return packet_id in self._outgoing

    def on_ack(self, ack: Ack) -> tuple[Ack | None, bool]:
        """Returns what to answer, and whether the message of that id is done. Raises ProtocolError for a wrong kind."""
        if ack.kind == PUBREL:
            self._received.discard(ack.packet_id)
            return Ack(PUBCOMP, ack.packet_id), False
        outgoing = self._outgoing.get(ack.packet_id)
        if outgoing is None:
            # Late answers to what an older connection sent are harmless; PUBREC still wants its PUBREL.
            if ack.kind == PUBREC and ack.reason < 0x80:
                return Ack(PUBREL, ack.packet_id, 0x92 if self.version == V5 else 0), False
            return None, False
        if (ack.kind == PUBACK) != (outgoing.publish.qos == 1):
            raise ProtocolError(f"packet type {ack.kind} answers a QoS {outgoing.publish.qos} message")
        if ack.kind == PUBREC and ack.reason < 0x80:
            outgoing.released = True
            return Ack(PUBREL, ack.packet_id), False
        del self._outgoing[ack.packet_id]  # [5: MQTT-4.4.0-2]
        return None, True

    def on_publish(self, publish: Publish) -> tuple[bool, Ack | None]:
        """Returns whether to hand an incoming message over, and what to answer at once when it is a repeat."""
        if publish.qos == 2 and publish.packet_id in self._received:
            return False, Ack(PUBREC, publish.packet_id)
        return True, None

    def accept(self, publish: Publish) -> Ack | None:
        """Returns the acknowledgement to send, if any, for a message that the application has now."""
        if publish.qos == 0:
            return None
        if publish.qos == 1:
            return Ack(PUBACK, publish.packet_id)
        self._received.add(publish.packet_id)
        return Ack(PUBREC, publish.packet_id)

    def resume(self, session_present: bool) -> list[Packet]:
        """Returns what to send again on a new connection, in the original order. [5: MQTT-4.4.0-1] [3.1.1:
        MQTT-4.4.0-1]

        A server without the session knows nothing of ours: messages it may not have start again, those already
        released are as done as they will ever be: see `forget_released`.
        """
        self._requests.clear()
        if not session_present:
            self._received.clear()
        packets: list[Packet] = []
        for packet_id, outgoing in self._outgoing.items():
            if outgoing.released:
                if session_present:
                    packets.append(Ack(PUBREL, packet_id))
            else:
                outgoing.publish.dup = session_present
                packets.append(outgoing.publish)
        return packets

    def forget_released(self) -> list[int]:
        """Returns the ids of messages whose last step got lost with the server's session; they count as done."""
        released = [packet_id for packet_id, outgoing in self._outgoing.items() if outgoing.released]
        for packet_id in released:
            del self._outgoing[packet_id]
        return released

    def first_waiting(self) -> Publish | None:
        """Returns the message that has waited longest for a first answer."""
        return next((outgoing.publish for outgoing in self._outgoing.values() if not outgoing.released), None)

    def unanswered(self) -> list[int]:
        """Returns the ids of QoS 2 messages that no PUBREC has come for, in the order of sending."""
        return [one for one, outgoing in self._outgoing.items() if outgoing.publish.qos == 2 and not outgoing.released]

    def release(self, packet_id: int) -> None:
        """The server has the message, though its PUBREC has not come: the next step is PUBREL."""
        outgoing = self._outgoing.get(packet_id)
        if outgoing is not None and outgoing.publish.qos == 2:
            outgoing.released = True

    def withdraw(self, packet_id: int) -> None:
        """The message of `start` was not sent after all, or is not to be sent again."""
        self._outgoing.pop(packet_id, None)
