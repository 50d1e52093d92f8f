"""Whether a client is where it says it is.

A source address is a claim, not a proof. Until what was sent to it has come back, it is sent at most three times the
bytes that came from it, as QUIC does [RFC 9000: 8.1]: whoever writes a false address on his datagrams gains nothing.
What has to come back is the packet id of a REGISTER, which nobody can know who does not receive it.
"""

from typing import Final, final

from holdfast.protocol.sn.frame import Envelope

AMPLIFICATION: Final = 3
# An id has 16 bits, which can be guessed in time; two of them in a row cannot, with so few tries.
ECHOES: Final = 2
WRONG_MOST: Final = 8
# Nothing is published there: it is only a topic to be told a number for, as short as one can be.
CHALLENGE_TOPIC: Final = b"$"
CHALLENGE_SIZE: Final = 8  # with that topic, in either version at most


@final
class AddressProof:
    """Invariant: `sent` is at most AMPLIFICATION times `received` while the address is not `proven`."""

    def __init__(self, envelope: Envelope | None) -> None:
        self.overhead: Final = len(envelope.wrap(b"")) if envelope is not None else 0
        self.proven = False
        self.received = 0
        self.sent = 0
        self.echoes = 0
        self.wrong = 0
        self.last_id = 0

    def on_received(self, size: int) -> None:
        if not self.proven:
            self.received += size + self.overhead

    def has_room(self, size: int) -> bool:
        """Return whether a message of this size may be sent, so that a challenge can still follow."""
        if self.proven:
            return True
        return self.sent + size + CHALLENGE_SIZE + 2 * self.overhead <= self.received * AMPLIFICATION

    def take_room(self, size: int) -> bool:
        """Count a packet that is about to be sent; returns False when it may not be."""
        if self.proven:
            return True
        sent = self.sent + size + self.overhead
        if sent > self.received * AMPLIFICATION:
            return False
        self.sent = sent
        return True

    def on_echo(self, packet_id: int) -> None:
        self.last_id = packet_id
        self.echoes += 1
        self.proven = self.proven or self.echoes >= ECHOES

    def on_wrong_echo(self, packet_id: int) -> bool:
        """Count an answer to what was not asked; returns whether there have been too many. A late copy is none."""
        if packet_id != self.last_id:
            self.wrong += 1
        return self.wrong >= WRONG_MOST
