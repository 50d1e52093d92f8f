"""Rules about which topics may be retained, by whom, for how long and how much of it."""

from typing import Final, final

from holdfast.broker.topics import matches

STORE: Final = 0
DROP_FLAG: Final = 1
REFUSE: Final = 2

# Topics on which a message is an order, not a state: kept, it would be carried out again at every reconnect.
COMMAND_FILTERS: Final = [
    b"cmnd/#",
    b"+/cmnd/#",
    *[b"+/" * depth + b"set" for depth in range(1, 8)],
    b"spBv1.0/+/NCMD/+",
    b"spBv1.0/+/DCMD/+/+",
]


@final
class Policy:
    """`usage_messages` and `usage_bytes` count what is stored under the filter now."""

    def __init__(
        self,
        topic_filter: bytes,
        action: int = STORE,
        ttl_ms: int = 0,
        max_messages: int = 0,
        max_bytes: int = 0,
        users: list[str] | None = None,
    ) -> None:
        self.topic_filter = topic_filter
        self.levels = topic_filter.split(b"/")
        self.action = action
        self.ttl_ms = ttl_ms
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.users = users
        self.usage_messages = 0
        self.usage_bytes = 0

    @property
    def has_budget(self) -> bool:
        return self.max_messages > 0 or self.max_bytes > 0

    def covers(self, topic_levels: list[bytes]) -> bool:
        return matches(self.levels, topic_levels)

    def applies_to(self, username: str) -> bool:
        users = self.users
        return users is None or username in users


def preset(name: str) -> list[Policy]:
    """Return the ready-made policies of that name, of which an unknown name has none."""
    if name == "commands":
        return [Policy(topic_filter, DROP_FLAG) for topic_filter in COMMAND_FILTERS]
    return []
