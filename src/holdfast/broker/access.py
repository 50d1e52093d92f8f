"""Who may do what to which topics: rules in order, the first that matches decides."""

from typing import Final, final

from holdfast.broker.topics import covers, matches

PUBLISH: Final = 1
SUBSCRIBE: Final = 2
RETAIN: Final = 4
RECEIVE: Final = 8
ALL: Final = PUBLISH | SUBSCRIBE | RETAIN | RECEIVE


@final
class Rule:
    """`%c` and `%u` in the filter stand for the client id and the user name, as whole levels."""

    def __init__(self, allow: bool, actions: int, topic_filter: bytes, user: str | None, client_id: str | None) -> None:
        self.allow: Final = allow
        self.actions: Final = actions
        self.topic_filter: Final = topic_filter
        self.levels: Final = topic_filter.split(b"/")
        self.user: Final = user
        self.client_id: Final = client_id
        self.is_pattern: Final = b"%c" in topic_filter or b"%u" in topic_filter

    def levels_for(self, username: str, client_id: str) -> list[bytes] | None:
        """The filter for this client; None when its name would change the shape of the pattern."""
        if not self.is_pattern:
            return self.levels
        user = username.encode()
        client = client_id.encode()
        filled: list[bytes] = []
        for level in self.levels:
            if (b"%u" in level and not is_plain(user)) or (b"%c" in level and not is_plain(client)):
                return None
            # One pass per placeholder, client id last: a user name of "%c" stays what it is.
            parts = level.split(b"%u")
            for i in range(len(parts)):
                parts[i] = parts[i].replace(b"%c", client)
            filled.append(user.join(parts))
        return filled


def is_plain(name: bytes) -> bool:
    """Whether a name can stand in a filter without widening it (CVE-2017-7650)."""
    return len(name) > 0 and b"+" not in name and b"#" not in name and b"/" not in name


@final
class Access:
    def __init__(self, rules: list[Rule], allow_unmatched: bool) -> None:
        self.rules: Final = rules
        self.allow_unmatched: Final = allow_unmatched

    def may(self, action: int, username: str, client_id: str, levels: list[bytes]) -> bool:
        """`levels` are of the topic, or of the topic filter when the action is SUBSCRIBE."""
        for rule in self.rules:
            if rule.actions & action == 0:
                continue
            if rule.user is not None and rule.user != username:
                continue
            if rule.client_id is not None and rule.client_id != client_id:
                continue
            filled = rule.levels_for(username, client_id)
            if filled is None:
                continue
            if covers(filled, levels) if action == SUBSCRIBE else matches(filled, levels):
                return rule.allow
        return self.allow_unmatched
