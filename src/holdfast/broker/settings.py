"""What the core must be told: plain values, filled in by the composition root from the configuration, and the rules
about which topics may be retained, by whom, for how long and how much of it.
"""

import json
from typing import Any, Final, final

from holdfast.broker.topics import matches
from holdfast.rules.hygiene import is_command

STORE: Final = 0
DROP_FLAG: Final = 1
REFUSE: Final = 2


@final
class Policy:
    """`commands_only` leaves out all but the command topics under the filter. `usage_messages` and `usage_bytes` count
    what is stored under it now.
    """

    def __init__(
        self,
        topic_filter: bytes,
        action: int = STORE,
        ttl_ms: int = 0,
        max_messages: int = 0,
        max_bytes: int = 0,
        users: list[str] | None = None,
        commands_only: bool = False,
    ) -> None:
        self.topic_filter = topic_filter
        self.levels = topic_filter.split(b"/")
        self.action = action
        self.ttl_ms = ttl_ms
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.users = users
        self.commands_only = commands_only
        self.usage_messages = 0
        self.usage_bytes = 0

    @property
    def has_budget(self) -> bool:
        return self.max_messages > 0 or self.max_bytes > 0

    def covers(self, topic_levels: list[bytes]) -> bool:
        return matches(self.levels, topic_levels) and (not self.commands_only or is_command(b"/".join(topic_levels)))

    def applies_to(self, username: str) -> bool:
        users = self.users
        return users is None or username in users


def preset(name: str) -> list[Policy]:
    """The ready-made policies of that name; an unknown name gives none."""
    if name == "commands":
        return [Policy(b"#", DROP_FLAG, commands_only=True)]
    return []


@final
class Settings:
    def __init__(self) -> None:
        self.max_packet_size = 10 * 1024 * 1024
        self.max_connections = 0
        self.connect_timeout_ms = 10_000
        self.connect_rate = 0.0  # a second; 0: any
        self.user_message_rate = 0.0  # publishes a second from all connections of one user; 0: any
        self.user_byte_rate = 0.0  # their bytes
        self.max_inflight = 1000
        self.receive_maximum = 1024
        self.topic_alias_maximum = 64
        self.max_queued_messages = 100_000
        self.max_queued_bytes = 64 * 1024 * 1024
        self.max_outbox_bytes = 16 * 1024 * 1024
        self.max_topic_levels = 128
        self.max_subscriptions = 0
        self.max_filters_per_packet = 1 << 30
        self.max_bytes_before_login = 256 * 1024
        self.banned_users: frozenset[str] = frozenset()
        self.banned_client_ids: frozenset[str] = frozenset()
        self.max_user_properties = 0
        self.max_qos = 2
        self.keep_alive_max = 0
        self.session_expiry_max = 0
        self.max_sessions_per_user = 0
        self.client_id_pattern = ""  # what ids a user's clients may have; empty: any
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
        self.max_entry_size = 0  # what the servers of a shared log accept; 0: there is none


# What nodes that share a log must agree on, since the fold depends on it. All else is each node's own.
SHARED_SETTINGS: Final = [
    "retain_available",
    "max_retained_messages",
    "max_retained_bytes",
    "max_retained_payload",
    "retained_expiry_ms",
    "max_retained_per_user",
    "max_retained_bytes_per_user",
    "strict_limits",
    "max_queued_messages",
    "max_queued_bytes",
]


def shared_settings(settings: Settings) -> bytes:
    """Return what nodes must agree on, as it stands in the log."""
    values: dict[str, Any] = {name: getattr(settings, name) for name in SHARED_SETTINGS}
    values["policies"] = [
        {
            "filter": policy.topic_filter.decode(),
            "action": policy.action,
            "ttl_ms": policy.ttl_ms,
            "max_messages": policy.max_messages,
            "max_bytes": policy.max_bytes,
            "users": policy.users,
            "commands_only": policy.commands_only,
        }
        for policy in settings.policies
    ]
    return json.dumps(values, sort_keys=True).encode()


def changed_settings(shared: bytes, changes: dict[str, Any]) -> bytes:
    """Return what nodes agree on, with some values changed."""
    values: dict[str, Any] = json.loads(shared)
    values.update(changes)
    return json.dumps(values, sort_keys=True).encode()


def use_shared(settings: Settings, shared: bytes) -> None:
    """Use what the log says; names that this version does not know are left alone."""
    values: dict[str, Any] = json.loads(shared)
    for name in SHARED_SETTINGS:
        if name in values:
            setattr(settings, name, values[name])
    policies: list[Policy] = []
    for one in values.get("policies", []):
        policies.append(
            Policy(
                str(one["filter"]).encode(),
                int(one["action"]),
                int(one["ttl_ms"]),
                int(one["max_messages"]),
                int(one["max_bytes"]),
                one["users"],
                bool(one["commands_only"]),
            )
        )
    settings.policies = policies
