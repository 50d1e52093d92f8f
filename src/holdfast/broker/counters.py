"""What the broker counts. Plain numbers that only grow, read by `$SYS` and metrics."""

from typing import final


@final
class Counters:
    def __init__(self) -> None:
        self.messages_received = [0, 0, 0]  # by QoS
        self.messages_sent = [0, 0, 0]
        self.bytes_received = 0
        self.bytes_sent = 0
        self.payload_received = 0
        self.payload_sent = 0
        self.packets_received = 0
        self.received_by_version = [0] * 8  # publishes, by protocol version (3, 4, 5; 1 and 2 for MQTT-SN)
        self.sent_by_version = [0] * 8
        self.bytes_received_by_version = [0] * 8
        self.bytes_sent_by_version = [0] * 8
        self.datagrams_dropped = 0  # that were no packet, came from strangers too often, or asked for more than allowed
        self.connections_opened = 0
        self.connects_refused = 0
        self.connected_now = 0
        self.connected_most = 0
        self.sessions_taken_over = 0
        self.sessions_expired = 0
        self.protocol_errors = 0
        self.publishes_refused = 0
        self.dropped_slow = 0  # QoS 0 for a reader that does not keep up
        self.dropped_queue_full = 0
        self.dropped_expired = 0
        self.dropped_too_large = 0
        self.dropped_no_member = 0
        self.dropped_not_allowed = 0  # the right to receive was lost while it waited
        self.snapshots_begun = 0
        self.snapshots_ended = 0
        self.snapshot_messages = 0
        self.wills_published = 0

    def dropped(self) -> int:
        return (
            self.dropped_slow
            + self.dropped_queue_full
            + self.dropped_expired
            + self.dropped_too_large
            + self.dropped_no_member
            + self.dropped_not_allowed
        )
