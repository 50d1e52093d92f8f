"""The configuration in the core's own words, and which of it a running broker can take over."""

from holdfast.broker.policy import DROP_FLAG, REFUSE, STORE, Policy, preset
from holdfast.broker.settings import Settings as BrokerSettings
from holdfast.broker.sn.ports import SnSettings
from holdfast.config import Listener, Settings, milliseconds

POLICY_ACTIONS = {"store": STORE, "drop-flag": DROP_FLAG, "refuse": REFUSE}

# What SIGHUP puts in force. The content of certificate files is read again too; other files need a restart.
RELOADED = {"access", "api", "auth", "bans", "callback", "jwt", "log", "pipeline", "retainer"}
FIXED = {"api.cors", "auth.allow_anonymous", "retainer.enable", "retainer.storage_type"}


def broker_settings(settings: Settings) -> BrokerSettings:
    limits = settings.limits
    to = BrokerSettings()
    to.max_packet_size = limits.max_packet_size
    to.max_connections = limits.max_connections
    to.connect_timeout_ms = milliseconds(limits.connect_timeout)
    to.connect_rate = limits.connect_rate
    to.max_inflight = min(limits.max_inflight, 65534)
    to.receive_maximum = limits.receive_maximum
    to.topic_alias_maximum = limits.topic_alias_maximum
    to.max_queued_messages = limits.max_queued_messages or 1 << 60
    to.max_queued_bytes = limits.max_queued_bytes or 1 << 60
    to.max_outbox_bytes = limits.max_outbox_bytes or 1 << 60
    to.max_topic_levels = limits.max_topic_levels
    to.max_subscriptions = limits.max_subscriptions
    to.max_qos = limits.max_qos
    to.keep_alive_max = int(limits.keep_alive_max)
    to.session_expiry_max = int(limits.session_expiry_max)
    to.max_client_id_length = limits.max_client_id_length
    to.max_bytes_before_login = limits.max_bytes_before_login
    to.max_user_properties = limits.max_user_properties
    fill_banned(to, settings)
    to.max_tombstones = limits.delta_tombstones
    to.response_information = settings.response_information
    to.retain_available = settings.retainer.enable
    fill_retainer(to, settings)
    to.policies = retainer_policies(settings)
    return to


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
    to.max_clients = listener.max_connections or sn.max_clients
    to.max_clients_per_host = sn.max_clients_per_address
    to.max_topics = sn.max_topics
    to.max_buffered = sn.max_buffered
    to.awake_messages = sn.awake_messages
    to.message_rate = settings.limits.message_rate
    to.answer_rate = sn.answer_rate
    to.answer_rate_per_host = sn.answer_rate_per_address
    return to


def fill_banned(to: BrokerSettings, settings: Settings) -> None:
    to.banned_users = frozenset(settings.bans.users)
    to.banned_client_ids = frozenset(settings.bans.client_ids)


def fill_retainer(to: BrokerSettings, settings: Settings) -> None:
    """The limits that may change while the broker runs."""
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
    """Settings that differ but are read only at start."""
    before = by_key(old)
    after = by_key(new)
    changed = [key for key in before if before[key] != after[key]]
    return [key for key in changed if key in FIXED or key.partition(".")[0] not in RELOADED]


def by_key(settings: Settings) -> dict[str, object]:
    """Each setting by the name it has in the configuration: `section.key`, or `key` where there is no section."""
    found: dict[str, object] = {}
    for name, value in settings.model_dump().items():
        if isinstance(value, dict):
            found.update({f"{name}.{key}": one for key, one in value.items()})
        else:
            found[name] = value
    return found
