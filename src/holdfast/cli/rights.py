"""`holdfast check-config --who USER --can ACTION TOPIC`: what the rules answer, and which of them does."""

import json

import typer

from holdfast.broker.access import ALL, ANY_QOS, PUBLISH, RECEIVE, RETAIN, SUBSCRIBE, Access
from holdfast.broker.route import is_reserved
from holdfast.broker.topics import is_valid_filter
from holdfast.config import Settings
from holdfast.errors import UsageError

ACTIONS = {"publish": PUBLISH, "subscribe": SUBSCRIBE, "retain": RETAIN, "receive": RECEIVE}


def explain(
    settings: Settings,
    username: str,
    can: tuple[str, str],
    client_id: str,
    qos: int | None,
    certificate: bool,
    as_json: bool,
) -> None:
    """Print the decision and the rule that made it; the exit code is 0 for allowed and 1 for denied."""
    from holdfast.from_settings import access_rules

    action, topic = can
    if action not in ACTIONS:
        raise UsageError(f"--can: expected one of {', '.join(ACTIONS)}, got {action!r}")
    encoded = topic.encode()
    wildcard = any(c in topic for c in "+#")
    if not is_valid_filter(encoded, settings.limits.max_topic_levels) or (wildcard and action != "subscribe"):
        kind = "topic filter" if action == "subscribe" else "topic without wildcards"
        raise UsageError(f"--can {action}: expected a {kind}, got {topic!r}")
    allowed, why = decide(
        access_rules(settings),
        ACTIONS[action],
        username,
        client_id,
        encoded,
        ANY_QOS if qos is None else qos,
        certificate,
    )
    if as_json:
        answer = {"user": username, "client_id": client_id, "action": action, "topic": topic}
        print(json.dumps({**answer, "allowed": allowed, "because": why}, indent=2, ensure_ascii=False))
    else:
        who = repr(username) if username else "a client without a user name"
        print(f"{'allowed' if allowed else 'denied'}: {who} may {'' if allowed else 'not '}{action} {topic!r}")
        print(f"because of {why}")
    raise typer.Exit(0 if allowed else 1)


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
