"""A message that waits in a session, as it is stored: where the message is, and how far its delivery has come."""

from dataclasses import dataclass, replace

from holdfast.broker.records import RETAIN
from holdfast.broker.session_records import WAITING
from holdfast.state.formats import QUEUED, SUBSCRIPTION_ID

COPY = 0x08


@dataclass(frozen=True)
class QueuedValue:
    """`copy`: a snapshot's copy of a retained message, which lives no longer than that."""

    seq: int
    message_offset: int
    qos: int
    retain: bool
    subscription_ids: tuple[int, ...] = ()
    packet_id: int = 0  # 0 while it waits to be sent
    stage: int = WAITING
    copy: bool = False

    def at(self, packet_id: int, stage: int) -> "QueuedValue":
        return replace(self, packet_id=packet_id, stage=stage)

    def encode(self) -> bytes:
        flags = self.qos | (RETAIN if self.retain else 0) | (COPY if self.copy else 0)
        fixed = QUEUED.pack(self.message_offset, flags, self.packet_id, self.stage, len(self.subscription_ids))
        return fixed + b"".join(map(SUBSCRIPTION_ID.pack, self.subscription_ids))

    @classmethod
    def decode(cls, seq: int, value: bytes) -> "QueuedValue":
        offset, flags, packet_id, stage, count = QUEUED.unpack_from(value)
        ids = tuple(SUBSCRIPTION_ID.unpack_from(value, QUEUED.size + 4 * i)[0] for i in range(count))
        return cls(seq, offset, flags & 3, flags & RETAIN != 0, ids, packet_id, stage, flags & COPY != 0)


def message_offset_of(value: bytes) -> int:
    """What `QueuedValue.decode` would say, for when only this matters."""
    offset: int = QUEUED.unpack_from(value)[0]
    return offset
