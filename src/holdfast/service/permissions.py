"""What the access rules say: all of them as they are asked, and which of them decides."""

from holdfast.broker.access import ALL, ANY_QOS, PUBLISH, RECEIVE, RETAIN, SUBSCRIBE, Access, Rule
from holdfast.broker.session import is_reserved

ACTIONS = {"publish": PUBLISH, "subscribe": SUBSCRIBE, "retain": RETAIN, "receive": RECEIVE}


def decide(
    access: Access | None, action: int, username: str, client_id: str, topic: bytes, qos: int, certified: bool
) -> tuple[bool, str]:
    if action & (PUBLISH | RETAIN) and is_reserved(topic):
        return False, "$SYS and $holdfast, which only the broker writes to"
    if access is None:
        return True, "no rule at all: there is neither [[access]] nor auth.access_file"
    levels = topic.split(b"/")
    # What each action asks for besides itself, in the order in which the broker does.
    asked = {RETAIN: [PUBLISH, RETAIN], RECEIVE: [RECEIVE, SUBSCRIBE]}.get(action, [action])
    why = ""
    for part in asked:
        rule = access.decide(part, username, client_id, levels, qos if part & ALL else ANY_QOS, certified)
        if rule is not None:
            why = rule.origin
        elif part == SUBSCRIBE and access.subscribes_freely and not access.allow_unmatched:
            why = why or "auth.access_file, which leaves subscribing free and checks each delivery"
        else:
            why = f"auth.no_match = {'allow' if access.allow_unmatched else 'deny'}: no rule matches"
        if not access.may(part, username, client_id, levels, qos, certified):
            return False, why
    return True, why


def described(rule: Rule) -> dict[str, object]:
    return {
        "permission": "allow" if rule.allow else "deny",
        "actions": [name for name, action in ACTIONS.items() if rule.actions & action],
        "filter": rule.topic_filter.decode(),
        "user": rule.user,
        "users": None if rule.users is None else sorted(rule.users),
        "client_id": rule.client_id,
        "qos": [qos for qos in range(3) if rule.qos >> qos & 1],
        "certificate": rule.certified,
        "origin": rule.origin,
    }
