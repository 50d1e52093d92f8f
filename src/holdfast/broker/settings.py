"""What the core must be told: plain values, filled in by the composition root from the configuration."""

from typing import final

from holdfast.broker.policy import Policy


@final
class Settings:
    def __init__(self) -> None:
        self.max_packet_size = 10 * 1024 * 1024
        self.max_connections = 0
        self.connect_timeout_ms = 10_000
        self.connect_rate = 0.0  # a second; 0: any
        self.max_inflight = 1000
        self.receive_maximum = 1024
        self.topic_alias_maximum = 64
        self.max_queued_messages = 100_000
        self.max_queued_bytes = 64 * 1024 * 1024
        self.max_outbox_bytes = 16 * 1024 * 1024
        self.max_topic_levels = 128
        self.max_subscriptions = 0
        self.max_bytes_before_login = 256 * 1024
        self.banned_users: frozenset[str] = frozenset()
        self.banned_client_ids: frozenset[str] = frozenset()
        self.max_user_properties = 0
        self.max_qos = 2
        self.keep_alive_max = 0
        self.session_expiry_max = 0
        self.max_client_id_length = 65535
        self.response_information = ""

        self.retain_available = True
        self.max_retained_messages = 0
        self.max_retained_bytes = 0
        self.max_retained_payload = 1024 * 1024
        self.retained_expiry_ms = 0
        self.max_retained_per_user = 0
        self.max_retained_bytes_per_user = 0
        self.strict_limits = False
        self.policies: list[Policy] = []
        self.max_tombstones = 100_000
