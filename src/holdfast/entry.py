"""Who may come in and what they may do there, from the configuration: the composition root's part about security."""

from holdfast.access.mosquitto_file import read_access_file
from holdfast.broker.access import ALL, PUBLISH, RECEIVE, RETAIN, SUBSCRIBE, Access, Rule
from holdfast.config import Settings
from holdfast.identity.callback import Callback
from holdfast.identity.passwords import PasswordFile
from holdfast.identity.tokens import Tokens
from holdfast.net.admission import Bans
from holdfast.net.authentication import Methods

ACTIONS = {"publish": PUBLISH, "subscribe": SUBSCRIBE, "retain": RETAIN, "receive": RECEIVE, "all": ALL}


def access_rules(settings: Settings) -> Access | None:
    """None when no rule is given: then everything is allowed and nothing is asked. A file that is empty is a rule."""
    rules = toml_rules(settings)
    auth = settings.auth
    if auth.access_file is not None:
        rules += read_access_file(auth.access_file)
    elif not rules:
        return None
    return Access(rules, auth.no_match == "allow", auth.access_file is not None, auth.check_retain_source)


def toml_rules(settings: Settings) -> list[Rule]:
    groups = {group.name: frozenset(group.users) for group in settings.auth.group}
    rules: list[Rule] = []
    for number, rule in enumerate(settings.access, 1):
        actions = 0
        for action in rule.action:
            actions |= ACTIONS[action]
        for topic_filter in rule.filter:
            rules.append(
                Rule(
                    rule.permission == "allow",
                    actions,
                    topic_filter.encode(),
                    rule.user,
                    rule.client_id,
                    users=groups[rule.group] if rule.group is not None else None,
                    qos=sum(1 << qos for qos in set(rule.qos)),
                    certified=rule.certificate,
                    origin=f"[[access]] {number}: {rule.permission} {' '.join(rule.action)} {topic_filter}",
                )
            )
    return rules


def password_file(settings: Settings) -> PasswordFile | None:
    path = settings.auth.password_file
    return PasswordFile(path) if path is not None else None


def login_methods(settings: Settings) -> Methods:
    """Raises ConfigError when a file cannot be used: a broker never starts with less than it was told to ask for."""
    jwt = settings.jwt
    tokens = None
    if jwt.key_file is not None or jwt.jwks_file is not None:
        tokens = Tokens(
            jwt.key_file,
            jwt.jwks_file,
            list(jwt.algorithms),
            jwt.username_claim,
            jwt.issuer,
            jwt.audience,
            float(jwt.leeway),
        )
    asked = settings.callback
    callback = None
    if asked.url:
        callback = Callback(asked.url, float(asked.timeout), float(asked.cache), asked.secret_file)
    return Methods(password_file(settings), tokens, callback, asked.at_once)


def fill_bans(to: Bans, settings: Settings) -> None:
    bans = settings.bans
    to.configure(bans.addresses, bans.failures, float(bans.window), float(bans.duration), bans.exempt)
