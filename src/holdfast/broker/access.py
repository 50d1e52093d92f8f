"""Who may do what to which topics: rules in order, the first that matches decides."""

from typing import Final, final

from holdfast.broker.topics import covers, matches

PUBLISH: Final = 1
SUBSCRIBE: Final = 2
RETAIN: Final = 4
RECEIVE: Final = 8
ALL: Final = PUBLISH | SUBSCRIBE | RETAIN | RECEIVE

# No particular QoS is asked for: a rule that allows some does, a rule that denies some does not.
ANY_QOS: Final = -1


@final
class Rule:
    """`%c` and `%u` in the filter stand for the client id and the user name, and never for more than one level. With a
    name that is none, a rule that allows does not exist, and one that denies covers more (`levels_denied`).

    Each condition is None, or empty, where the rule does not ask: `users` (any of these names), `qos` (a bit for each
    QoS it is about), `certified` (only clients that showed a certificate). `origin` says where the rule is written.
    """

    def __init__(
        self,
        allow: bool,
        actions: int,
        topic_filter: bytes,
        user: str | None,
        client_id: str | None,
        users: frozenset[str] | None = None,
        qos: int = 0,
        certified: bool = False,
        origin: str = "",
    ) -> None:
        self.allow: Final = allow
        self.actions: Final = actions
        self.topic_filter: Final = topic_filter
        self.levels: Final = topic_filter.split(b"/")
        self.user: Final = user
        self.client_id: Final = client_id
        self.users: Final = users
        self.qos: Final = qos
        self.certified: Final = certified
        self.origin: Final = origin
        self.is_pattern: Final = b"%c" in topic_filter or b"%u" in topic_filter

    def levels_for(self, username: str, client_id: str) -> list[bytes] | None:
        """Return the filter for this client, or None when its name would change the shape of the pattern."""
        if not self.is_pattern:
            return self.levels
        user = username.encode()
        client = client_id.encode()
        filled: list[bytes] = []
        for level in self.levels:
            if (b"%u" in level and not self.takes(user)) or (b"%c" in level and not self.takes(client)):
                return None
            # One pass per placeholder, client id last: a user name of "%c" stays what it is.
            parts = level.split(b"%u")
            for i in range(len(parts)):
                parts[i] = parts[i].replace(b"%c", client)
            filled.append(user.join(parts))
        return filled

    def takes(self, name: bytes) -> bool:
        """Return whether a name can stand in the filter. No name at all is no reason to allow, and none to deny."""
        return is_plain(name) or (len(name) == 0 and not self.allow)

    def levels_denied(self) -> list[bytes]:
        """Return what a rule that denies covers for a client whose name would change the shape of the pattern: all that
        might be meant, from the level on where the name should stand.
        """
        before: list[bytes] = []
        for level in self.levels:
            if b"%u" in level or b"%c" in level:
                break
            before.append(level)
        before.append(b"#")
        return before

    def is_about(self, action: int, username: str, client_id: str, qos: int, certified: bool) -> bool:
        if self.actions & action == 0 or (self.certified and not certified):
            return False
        if self.user is not None and self.user != username:
            return False
        if self.client_id is not None and self.client_id != client_id:
            return False
        if self.users is not None and username not in self.users:
            return False
        if self.qos == 0:
            return True
        return self.allow if qos == ANY_QOS else self.qos >> qos & 1 != 0


def is_plain(name: bytes) -> bool:
    """Return whether a name can stand in a filter without widening it (CVE-2017-7650)."""
    return len(name) > 0 and b"+" not in name and b"#" not in name and b"/" not in name


@final
class Access:
    """`subscribes_freely`: what no rule says about a subscription is allowed, because its deliveries are checked."""

    def __init__(
        self,
        rules: list[Rule],
        allow_unmatched: bool,
        subscribes_freely: bool = False,
        check_source: bool = True,
    ) -> None:
        self.rules: Final = rules
        self.allow_unmatched: Final = allow_unmatched
        self.subscribes_freely: Final = subscribes_freely
        self.check_source: Final = check_source
        self.asks_qos: Final = any_qos(rules)
        self.asks_certificate: Final = any_certified(rules)

    def may(
        self,
        action: int,
        username: str,
        client_id: str,
        levels: list[bytes],
        qos: int = ANY_QOS,
        certified: bool = False,
    ) -> bool:
        """Return whether the rules allow it; `levels` are those of the topic, or of the filter for SUBSCRIBE."""
        rule = self.decide(action, username, client_id, levels, qos, certified)
        if rule is not None:
            return rule.allow
        return self.allow_unmatched or (action == SUBSCRIBE and self.subscribes_freely)

    def decide(
        self, action: int, username: str, client_id: str, levels: list[bytes], qos: int, certified: bool
    ) -> Rule | None:
        """Return the rule that answers, or None when there is none."""
        for rule in self.rules:
            if not rule.is_about(action, username, client_id, qos, certified):
                continue
            filled = rule.levels_for(username, client_id)
            if filled is None:
                if rule.allow:
                    continue
                filled = rule.levels_denied()
                if len(filled) == 1:
                    return rule
            if covers(filled, levels) if action == SUBSCRIBE else matches(filled, levels):
                return rule
        return None

    def may_receive(self, username: str, client_id: str, levels: list[bytes], certified: bool) -> bool:
        """Return whether a message on this topic may be handed to this client, whatever filter it came by.

        The right to subscribe is asked again, now for the topic itself: a subscription to `#` must not bring what
        another rule denies, and one that was made under older rules must not bring what these do not give.
        """
        return self.may(RECEIVE, username, client_id, levels, ANY_QOS, certified) and self.may(
            SUBSCRIBE, username, client_id, levels, ANY_QOS, certified
        )

    def may_keep(self, username: str, client_id: str, levels: list[bytes]) -> bool:
        """Return whether the client that once retained a message here might do so today (CVE-2018-12546).

        How it had proven who it was is not known any more, so conditions on that count as met.
        """
        return self.may(PUBLISH, username, client_id, levels, ANY_QOS, True) and self.may(
            RETAIN, username, client_id, levels, ANY_QOS, True
        )


def any_qos(rules: list[Rule]) -> bool:
    return any(rule.qos != 0 for rule in rules)


def any_certified(rules: list[Rule]) -> bool:
    return any(rule.certified for rule in rules)
