"""What the sensors' side must be told: plain values, filled in by the composition root from the configuration."""

from typing import final


@final
class SnSettings:
    def __init__(self) -> None:
        self.gateway_id = 1
        self.predefined: dict[int, bytes] = {}
        # Topic filters that may be published to without a connection, and whether such messages may be retained.
        self.open_filters: list[bytes] = []
        self.open_retain = False
        self.open_rate = 1000.0  # a second, all addresses together; 0: any

        self.retry_ms = 10_000  # 1.2
        self.response_ms = 5_000  # 2.0: before the first resend, which then backs off from `backoff_ms`
        self.backoff_ms = 1_000
        self.retries = 4

        self.max_clients = 100_000
        self.max_clients_per_host = 0
        self.max_topics = 1024  # topic ids of one client
        self.max_topic_bytes = 256 * 1024
        self.max_buffered = 100  # QoS 0 messages that wait for a sleeping client or for a topic id
        self.awake_messages = 0  # 0: all there are
        self.message_rate = 0.0  # packets a second from one client; 0: any
        # Answers a second to those without a connection: to one address, and to all together.
        self.stranger_rate_per_host = 20
        self.stranger_rate = 2000
