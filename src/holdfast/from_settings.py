"""From the configuration to what the parts are made from: the broker's settings, logins, access rules, bans.

Only this module, the server and the commands read `Settings`; the rooms below get plain values in their own words.
Which settings a running broker can take over stands here too.
"""

import os
import socket
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from holdfast.access.mosquitto_file import read_access_file
from holdfast.bridge.options import BridgeOptions
from holdfast.broker.access import ALL, PUBLISH, RECEIVE, RETAIN, SUBSCRIBE, Access, Rule
from holdfast.broker.settings import DROP_FLAG, REFUSE, STORE, Policy, preset
from holdfast.broker.settings import Settings as BrokerSettings
from holdfast.broker.sn.ports import SnSettings
from holdfast.cluster.options import ConnectionOptions, StreamOptions
from holdfast.config import ConfigError, Listener, Settings, milliseconds
from holdfast.config.checks import bridge_problems
from holdfast.config.load import describe
from holdfast.config.settings import Bridge
from holdfast.history.storage_options import VARIABLE as STORAGE_FILE
from holdfast.history.storage_options import is_remote
from holdfast.identity.passwords import PasswordFile
from holdfast.net.admission import Bans
from holdfast.net.authentication import Methods
from holdfast.node.options import NodeOptions
from holdfast.quantity import format_duration, format_size, parse_percentage, parse_size
from holdfast.rules.bridge_topic import parse_bridge_topic
from holdfast.storage.folder import DataFolder
from holdfast.storage.history_options import HistoryOptions, number_of
from holdfast.storage.reserve import Reserve

POLICY_ACTIONS = {"store": STORE, "drop-flag": DROP_FLAG, "refuse": REFUSE}

# What SIGHUP puts in force; all else needs a restart.
RELOADED = {"access", "api", "auth", "bans", "bridge", "callback", "jwt", "log", "pipeline", "retainer", "tls"}
FIXED = {"api.cors", "callback.at_once", "retainer.enable", "retainer.storage_type"}
ACTIONS = {"publish": PUBLISH, "subscribe": SUBSCRIBE, "retain": RETAIN, "receive": RECEIVE, "all": ALL}


def broker_settings(settings: Settings) -> BrokerSettings:
    limits = settings.limits
    to = BrokerSettings()
    to.max_packet_size = limits.max_packet_size
    to.max_connections = limits.max_connections
    to.connect_timeout_ms = milliseconds(limits.connect_timeout)
    to.connect_rate = limits.connect_rate
    to.user_message_rate = limits.message_rate_per_user
    to.user_byte_rate = limits.byte_rate_per_user
    to.max_inflight = min(limits.max_inflight, 65534)
    to.receive_maximum = limits.receive_maximum
    to.topic_alias_maximum = limits.topic_alias_maximum
    to.max_queued_messages = limits.max_queued_messages or 1 << 60
    to.max_queued_bytes = limits.max_queued_bytes or 1 << 60
    to.max_outbox_bytes = limits.max_outbox_bytes or 1 << 60
    to.max_topic_levels = limits.max_topic_levels
    to.max_subscriptions = limits.max_subscriptions
    to.max_filters_per_packet = limits.max_filters_per_packet or 1 << 30
    to.max_qos = limits.max_qos
    to.keep_alive_max = int(limits.keep_alive_max)
    to.session_expiry_max = int(limits.session_expiry_max)
    to.max_sessions_per_user = limits.max_sessions_per_user
    to.max_client_id_length = limits.max_client_id_length
    to.max_bytes_before_login = limits.max_bytes_before_login
    to.max_user_properties = limits.max_user_properties
    fill_clients(to, settings)
    to.max_tombstones = limits.delta_tombstones
    to.response_information = settings.response_information
    to.retain_available = settings.retainer.enable
    fill_retainer(to, settings)
    to.policies = retainer_policies(settings)
    return to


def node_options(settings: Settings) -> NodeOptions:
    cluster = settings.cluster
    stream = StreamOptions(name=cluster.name, replicas=cluster.replicas, monitors=tuple(cluster.monitor))
    return NodeOptions(
        node=cluster.node,
        stream=stream,
        batch=cluster.batch,
        node_timeout_s=float(cluster.node_timeout),
        advertise=cluster.advertise,
        log_bytes=cluster.log_size,
    )


def log_servers(settings: Settings) -> ConnectionOptions:
    cluster = settings.cluster
    urls = [url.strip() for given in cluster.url for url in given.split(",") if url.strip()]
    return ConnectionOptions(
        urls=tuple(urls),
        user=cluster.user,
        password=read_secret(cluster.password_file),
        token=read_secret(cluster.token_file),
        credentials_file=cluster.credentials_file,
        nkey_seed_file=cluster.nkey_file,
        tls_ca=cluster.ca,
        tls_cert=cluster.cert,
        tls_key=cluster.key,
        max_message=cluster.batch,
        name=f"holdfast {cluster.node}",
    )


def bridges(settings: Settings) -> list[BridgeOptions]:
    return [bridge_options(bridge) for bridge in settings.bridge]


def parse_bridge(told: dict[str, Any]) -> BridgeOptions:
    """Returns a bridge that was written as in the configuration; raises ConfigError with everything wrong with it."""
    try:
        bridge = Bridge.model_validate(told)
    except ValidationError as error:
        # As the first of a list, which is where the configuration has them.
        found = [describe({**detail, "loc": ("bridge", 0, *detail["loc"])}, {}) for detail in error.errors()]
        raise ConfigError("; ".join(str(problem).removeprefix("bridge[0].") for problem in found)) from None
    problems = list(bridge_problems(bridge))
    if problems:
        raise ConfigError("; ".join(problems))
    return bridge_options(bridge)


def bridge_options(bridge: Bridge) -> BridgeOptions:
    client_id = bridge.client_id or f"{socket.gethostname()}.{bridge.name}"
    return BridgeOptions(
        name=bridge.name,
        addresses=tuple(bridge.address),
        topics=tuple(parse_bridge_topic(line) for line in bridge.topic),
        client_id=client_id,
        local_client_id=bridge.local_client_id or f"local.{client_id}",
        version=5 if bridge.protocol == "5" else 4,
        username=bridge.username,
        password_file=bridge.password_file,
        local_username=bridge.local_username,
        ca=bridge.ca,
        cert=bridge.cert,
        key=bridge.key,
        insecure=bridge.insecure,
        clean_session=bridge.clean_session,
        session_expiry_s=int(bridge.session_expiry),
        keep_alive_s=int(bridge.keep_alive),
        notifications=bridge.notifications,
        notification_topic=bridge.notification_topic,
        notifications_local_only=bridge.notifications_local_only,
        round_robin=bridge.round_robin,
        start=bridge.start,
        threshold=bridge.threshold,
        idle_timeout_s=float(bridge.idle_timeout),
        retry_s=float(bridge.retry),
        retry_max_s=float(bridge.retry_max),
        quiet_s=float(bridge.quiet),
        private=bridge.private,
        outgoing_retain=bridge.outgoing_retain,
        conflict=bridge.conflict,
        max_inflight=bridge.max_inflight,
        remember=bridge.remember,
        told=bridge.model_dump(mode="json", exclude_unset=True),
    )


def read_secret(path: Path | None) -> str:
    """Returns the first line of a file; raises ConfigError when it cannot be read."""
    if path is None:
        return ""
    try:
        return path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None


def sensor_settings(settings: Settings, listener: Listener) -> SnSettings:
    sn = settings.sn
    to = SnSettings()
    to.gateway_id = sn.gateway_id
    to.predefined = {entry.id: entry.topic.encode() for entry in sn.predefined}
    to.open_filters = [topic_filter.encode() for topic_filter in sn.open_topics]
    to.open_retain = sn.open_retain
    to.open_rate = sn.open_rate
    to.retry_ms = milliseconds(sn.retry_interval)
    to.response_ms = milliseconds(sn.response_timeout)
    to.backoff_ms = milliseconds(sn.backoff)
    to.retries = sn.retries
    to.session_expiry_max = int(sn.session_expiry_max)
    to.max_clients = listener.max_connections or sn.max_clients
    to.max_clients_per_host = sn.max_clients_per_address
    to.max_topics = sn.max_topics
    to.max_buffered = sn.max_buffered
    to.awake_messages = sn.awake_messages
    to.message_rate = settings.limits.message_rate
    to.answer_rate = sn.answer_rate
    to.answer_rate_per_host = sn.answer_rate_per_address
    return to


def history_options(settings: Settings, next_offset: int) -> HistoryOptions:
    """Returns what the history's process is told, given the first offset that this run of the broker gives out."""
    table = settings.history
    return HistoryOptions(
        flush_interval_s=float(table.flush_interval),
        retention_s=int(table.retention),
        retention_bytes=table.retention_bytes,
        file_bytes=table.file_size,
        compact_budget=table.compact_budget / 100,
        keep_replaced_s=int(table.keep_replaced),
        iceberg=table.iceberg,
        shared_by=settings.cluster.node if settings.cluster.url and table.path else "",
        reserve=reserve_of(table.reserve),
        live_from=next_offset if table.record == "all" else 0,
    )


def place_history(settings: Settings) -> None:
    """Notes in the data folder where the history is, and tells the processes that are started from here on what its
    store is to be told. To the nodes of a cluster one place is one table, which one of them writes at a time.
    """
    table = settings.history
    uri = table.path
    if uri and not is_remote(uri):
        uri = str(Path(uri).absolute())
    owner = number_of(f"cluster {settings.cluster.name}") if settings.cluster.url else 0
    file = str(table.storage_file.absolute()) if table.storage_file is not None else ""
    DataFolder(settings.data).put_history(uri, file, owner)
    if file:
        os.environ[STORAGE_FILE] = file


def reserve_of(bounds: list[str]) -> Reserve:
    sizes = [parse_size(bound) for bound in bounds if parse_percentage(bound) is None]
    percentages = [part for part in map(parse_percentage, bounds) if part is not None]
    return Reserve(min(sizes, default=None), min(percentages, default=None))


def what_is_recorded(settings: Settings) -> str:
    """What becomes a row of the history, how long it stays, and how to change both, in a line of the log."""
    table = settings.history
    what = "every publish" if table.record == "all" else "every publish with RETAIN"
    where = "" if table.filter == ["#"] else f" to {', '.join(table.filter)}"
    bounds = [f"for {format_duration(table.retention)}"] if table.retention else []
    bounds += [f"until the table has {format_size(table.retention_bytes)}"] if table.retention_bytes else []
    kept = " or ".join(bounds) or "forever"
    first = ", whichever comes first" if len(bounds) > 1 else ""
    return (
        f"history: {what}{where} is recorded and kept {kept}{first}; rows of currently retained messages are always "
        "kept. To change this, set history.record (retained, all), history.retention and history.retention_bytes "
        "(0 means no limit)"
    )


def fill_clients(to: BrokerSettings, settings: Settings) -> None:
    """Sets who may come in under which name, which may change while the broker runs."""
    to.client_id_pattern = settings.auth.client_id
    to.banned_users = frozenset(settings.bans.users)
    to.banned_client_ids = frozenset(settings.bans.client_ids)


def fill_retainer(to: BrokerSettings, settings: Settings) -> None:
    """Sets the limits that may change while the broker runs."""
    retainer = settings.retainer
    to.max_retained_messages = retainer.max_retained_messages
    to.max_retained_bytes = retainer.max_bytes
    to.max_retained_payload = retainer.max_payload_size
    to.retained_expiry_ms = milliseconds(retainer.expiry_interval)
    to.max_retained_per_user = retainer.max_messages_per_user
    to.max_retained_bytes_per_user = retainer.max_bytes_per_user
    to.strict_limits = retainer.strict


def retainer_policies(settings: Settings) -> list[Policy]:
    policies: list[Policy] = []
    for policy in settings.retainer.policy:
        policies.append(
            Policy(
                policy.filter.encode(),
                POLICY_ACTIONS[policy.action],
                milliseconds(policy.ttl),
                policy.max_messages,
                policy.max_bytes,
                policy.users or None,
            )
        )
    for name in settings.retainer.presets:
        policies += preset(name)
    return policies


def needs_restart(old: Settings, new: Settings) -> list[str]:
    """Returns the keys of settings that differ but are read only at start."""
    before = by_key(old)
    after = by_key(new)
    changed = [key for key in before if before[key] != after[key]]
    return [key for key in changed if key in FIXED or key.partition(".")[0] not in RELOADED]


def keep_fixed(old: Settings, new: Settings) -> Settings:
    """Returns the new settings, with those of the old ones that a running broker cannot change."""
    sections: dict[str, dict[str, object]] = {}
    update: dict[str, object] = {}
    for key in needs_restart(old, new):
        section, dot, name = key.partition(".")
        if dot:
            sections.setdefault(section, {})[name] = getattr(getattr(old, section), name)
        else:
            update[key] = getattr(old, key)
    for section, values in sections.items():
        update[section] = getattr(new, section).model_copy(update=values)
    return new.model_copy(update=update)


def by_key(settings: Settings) -> dict[str, object]:
    """Returns each setting by its name in the configuration: `section.key`, or `key` where there is no section."""
    found: dict[str, object] = {}
    for name, value in settings.model_dump().items():
        if isinstance(value, dict):
            found.update({f"{name}.{key}": one for key, one in value.items()})
        else:
            found[name] = value
    return found


def access_rules(settings: Settings) -> Access | None:
    """Returns None when no rule is given: everything is allowed then. An empty file is a rule."""
    rules = toml_rules(settings)
    auth = settings.auth
    if auth.access_file is not None:
        rules += read_access_file(auth.access_file)
    elif not rules:
        return None
    return Access(rules, auth.no_match == "allow", auth.access_file is not None, auth.check_retain_source)


def knows_users(settings: Settings, access: Access | None) -> bool:
    """Returns whether anybody is known by name, so that a name has to be proven: by a way to log in, a certificate, or
    what a rule says about one user and not about others.
    """
    return (
        settings.has_logins
        or settings.asks_certificates
        or any(policy.users for policy in settings.retainer.policy)
        or settings.auth.client_id != ""
        or (access is not None and any(rule.user or rule.users or b"%u" in rule.topic_filter for rule in access.rules))
    )


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
    """Returns how clients may log in.

    Raises ConfigError when a file cannot be used: a broker never starts with less than it was told to ask for.
    """
    jwt = settings.jwt
    tokens = None
    if jwt.key_file is not None or jwt.jwks_file is not None:
        from holdfast.identity.tokens import Tokens  # and PyJWT with it: 8 MB that few brokers need

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
        from holdfast.identity.callback import Callback  # and an HTTP client with it, for a broker that asks one

        callback = Callback(asked.url, float(asked.timeout), float(asked.cache), asked.secret_file)
    return Methods(password_file(settings), tokens, callback, asked.at_once)


def fill_bans(to: Bans, settings: Settings) -> None:
    bans = settings.bans
    to.configure(bans.addresses, bans.failures, float(bans.window), float(bans.duration), bans.exempt)
