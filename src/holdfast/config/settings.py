"""Every setting: its key, type, default and help text. The reference page is generated from this file.

Sections are frozen and refuse unknown keys. Sizes are bytes and durations seconds once read; 0 means no limit, or off,
wherever the help says so. `server` turns these into the plain values that the rooms below receive.
"""

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from holdfast.config.listener import Listener, ListenerUrl, parse_listener
from holdfast.config.values import (
    Action,
    BridgeLine,
    BridgeName,
    BrokerUrl,
    Count,
    Names,
    Networks,
    Origin,
    Qos,
    Reserve,
    TopicFilter,
    TopicFilters,
    WholeSeconds,
    check_client_id_pattern,
    check_host_and_port,
    check_http_url,
    check_listener_url,
    check_no_boolean,
    check_topic_name,
    check_topic_template,
    check_websocket_path,
    one_or_many,
    one_or_many_numbers,
)
from holdfast.quantity import Duration, Size

DEFAULT_LISTEN: Final = (
    "tcp://127.0.0.1:1883",
    "ws://127.0.0.1:8083",
    "udp://127.0.0.1:1884",
    "http://127.0.0.1:18083",
)


class Section(BaseModel):
    """A table of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Policy(Section):
    """One `[[retainer.policy]]`. The first entry whose filter covers the topic decides."""

    filter: TopicFilter = Field(description="Topics this entry applies to.")
    action: Literal["store", "drop-flag", "refuse"] = Field(
        default="store",
        description="`store` retains the message; `drop-flag` delivers it live without retaining it; `refuse` "
        "rejects the publish.",
    )
    ttl: Duration = Field(
        default=0, description="Messages under the filter expire after this long at the latest; 0 means never."
    )
    max_messages: Count = Field(default=0, description="Messages kept under the filter; 0 means no limit.")
    max_bytes: Size = Field(default=0, description="Topic and payload bytes kept under the filter; 0 means no limit.")
    users: Annotated[list[str] | None, BeforeValidator(one_or_many)] = Field(
        default=None, description="Users the entry applies to; if absent, everyone."
    )


class AccessRule(Section):
    """One `[[access]]` rule. The first rule that matches decides; without any rule everything is allowed."""

    permission: Literal["allow", "deny"] = Field(description="Whether the rule allows or denies.")
    action: Annotated[list[Action], BeforeValidator(one_or_many), Field(min_length=1)] = Field(
        description="One or more actions: `publish`, `subscribe`, `retain` (needed in addition to `publish` for a "
        "retained message), `receive`, `all`."
    )
    filter: TopicFilters = Field(
        description="One or more topic filters the rule applies to. `%c` stands for the client id and `%u` for the "
        "user name."
    )
    user: str | None = Field(default=None, description="Only for this user; if absent, for everyone.")
    client_id: str | None = Field(default=None, description="Only for this client id; if absent, for all of them.")
    group: str | None = Field(default=None, description="Only for the users of this `[[auth.group]]`.")
    qos: Annotated[list[Qos], BeforeValidator(one_or_many_numbers)] = Field(
        default=[],
        description="Only for publishes and subscriptions with these QoS values; if absent, for all of them.",
    )
    certificate: bool = Field(default=False, description="Only for clients that presented a certificate.")


class Group(Section):
    """One `[[auth.group]]`: users that rules can refer to by one name."""

    name: str = Field(description="Name used in rules.")
    users: Annotated[list[str], BeforeValidator(one_or_many)] = Field(description="Members of the group.")


class Retainer(Section):
    """Retained messages: where they are stored, how many and for how long."""

    enable: bool = Field(
        default=True, description="Whether messages can be retained. If not, publishes with RETAIN are refused."
    )
    storage_type: Literal["ram", "disc", "disc_only"] = Field(
        default="disc",
        description="`ram` keeps retained messages and sessions in memory only; `disc` in memory and on disk; "
        "`disc_only` on disk, with no payloads in memory.",
    )
    max_retained_messages: Count = Field(
        default=0,
        description="Maximum number of retained messages; 0 means no limit. At the limit, a topic that already has a "
        "retained message can still be updated; messages on new topics are delivered live and not retained.",
    )
    max_payload_size: Size = Field(
        default=1024 * 1024,
        description="A larger message is delivered as a normal message and not retained; 0 means no limit.",
    )
    expiry_interval: Duration = Field(
        default=0,
        description="Retained messages expire after this long; 0 means never. An expiry interval set by the "
        "publisher takes precedence.",
    )
    max_bytes: Size = Field(
        default=0, description="Maximum topic and payload bytes retained over all topics; 0 means no limit."
    )
    max_messages_per_user: Count = Field(default=0, description="Maximum retained messages per user; 0 means no limit.")
    max_bytes_per_user: Size = Field(
        default=0, description="Maximum topic and payload bytes retained per user; 0 means no limit."
    )
    strict: bool = Field(
        default=False,
        description="How a publish over a limit is handled. Off: it is acknowledged and delivered live, and the "
        "previous retained message stays. On: MQTT 5 publishers get Quota exceeded, and an oversized message "
        "removes the previous one.",
    )
    presets: Annotated[list[Literal["commands"]], BeforeValidator(one_or_many)] = Field(
        default=[],
        description="Built-in policies. `commands`: messages on the usual command topics are never retained.",
    )
    policy: list[Policy] = Field(
        default=[], description="Per-topic policies, as `[[retainer.policy]]` tables; the first match wins."
    )


class History(Section):
    """The table of published messages."""

    enable: bool = Field(default=True, description="Whether publishes are written to the history table.")
    path: str = Field(
        default="",
        description="Where the table is: a folder, or an object store (`s3://bucket/folder`, `abfss://`, `gs://`). "
        "Empty is `history` in the data folder. Nodes of a cluster that are told the same place write one table, one "
        "of them at a time.",
    )
    storage_file: Path | None = Field(
        default=None,
        description='What the object store is told besides, in lines of the form `name = "value"` (TOML): credentials, '
        "region, endpoint. Without it they come from the environment, such as `AWS_ACCESS_KEY_ID`.",
    )
    record: Literal["retained", "all"] = Field(
        default="retained",
        description="What is recorded: `retained` for every publish with RETAIN, whether it set or cleared a message "
        "or was refused; `all` for publishes without RETAIN as well. If `history.filter` is set and this key is "
        "not, the default is `all`.",
    )
    filter: TopicFilters = Field(
        default=["#"], description="One or more topic filters; only matching publishes are recorded."
    )
    retention: Duration = Field(
        default=30 * 86400,
        description="How long rows are kept; 0 means forever. The rows of currently retained messages are always kept.",
    )
    retention_bytes: Size = Field(
        default=10 * 1024**3,
        description="Size of the table on disk above which the oldest rows are deleted; 0 means no limit. The rows "
        "of currently retained messages are always kept.",
    )
    reserve: Reserve = Field(
        default=["5%", "1GiB"],
        description="Free disk space below which the history is paused, to leave room for the journal: a size, or a "
        "share of the file system such as `5%`. If several are given, the smallest applies; 0 means none.",
    )
    flush_interval: Duration = Field(default=1, description="Pending rows are committed at least this often.")
    file_size: Size = Field(
        default=64 * 1024**2, description="Size of the files that commits are joined to, at least 1MiB."
    )
    compact_budget: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=0, le=100)] = Field(
        default=25,
        description="Percent of the time that the history's process may spend on joining files while rows come; 0 "
        "leaves every commit a file of its own.",
    )
    keep_replaced: Duration = Field(
        default=300,
        description="How long files that were joined or emptied stay for those who are reading them. A query of "
        "another engine that runs for longer than this may find one gone, and has to be asked again.",
    )
    iceberg: bool = Field(
        default=False,
        description="Whether the files of the table are also an Iceberg table, for readers who know only that. Needs "
        "`holdfast-mqtt[iceberg]`.",
    )


class Pipeline(Section):
    """Settings of `holdfast pipeline`."""

    devices: Annotated[str, AfterValidator(check_topic_template)] = Field(
        default="site/{site}/line/{line}/{device}/#",
        description="Which part of a topic names a device, for the table `device_stats` and the report: a topic filter "
        "with names in braces instead of `+`.",
    )
    declared: Path | None = Field(
        default=None,
        description="A file that declares tables of one's own, such as `pipeline.toml`, for `holdfast pipeline run`.",
    )
    iceberg: Names = Field(
        default=[],
        description="Tables whose files `holdfast pipeline run` also keeps as an Iceberg table, for readers who know "
        "only that: names such as `retained`, and of declared tables. Needs `holdfast-mqtt[iceberg]`.",
    )


class Limits(Section):
    """Limits for one client, and for all of them together."""

    max_packet_size: Annotated[Size, Field(ge=16, le=268_435_460)] = Field(
        default=10 * 1024 * 1024, description="Largest packet accepted from a client, header included."
    )
    max_connections: Count = Field(
        default=0, description="Maximum simultaneous connections over all listeners; 0 means no limit."
    )
    connect_timeout: Duration = Field(
        default=10,
        description="A connection that has not sent CONNECT within this time is closed; over HTTP, one that has not "
        "sent a complete request.",
    )
    connect_rate: Count = Field(default=0, description="New connections per second; 0 means no limit.")
    message_rate: Count = Field(default=0, description="Publishes per second from one client; 0 means no limit.")
    message_rate_per_user: Count = Field(
        default=0,
        description="Publishes per second from one user, over all connections and the API; 0 means no limit. All "
        "anonymous clients count as one user. Above the limit, the broker reads from the user's connections more "
        "slowly; MQTT-SN clients get a congestion code, API calls get 429.",
    )
    byte_rate_per_user: Size = Field(
        default=0, description="Bytes per second from one user, applied in the same way; 0 means no limit."
    )
    max_inflight: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1, le=65535)] = Field(
        default=1000,
        description="Unacknowledged QoS 1 and 2 messages to one client; its own Receive Maximum may be lower.",
    )
    receive_maximum: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1, le=65535)] = Field(
        default=1024, description="Unacknowledged QoS 1 and 2 messages from one client, announced to MQTT 5 clients."
    )
    topic_alias_maximum: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=0, le=65535)] = Field(
        default=64, description="Topic aliases a client may use, announced to MQTT 5 clients; 0 means none."
    )
    max_queued_messages: Count = Field(
        default=100_000, description="QoS 1 and 2 messages waiting for one session; 0 means no limit."
    )
    max_queued_bytes: Size = Field(
        default=64 * 1024 * 1024, description="Bytes of such messages waiting for one session; 0 means no limit."
    )
    max_outbox_bytes: Annotated[Size, Field(ge=4096)] = Field(
        default=16 * 1024 * 1024,
        description="Bytes waiting for a connection that reads slowly; above it, QoS 0 messages are dropped and "
        "counted.",
    )
    max_topic_levels: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1, le=65535)] = Field(
        default=128, description="Maximum levels in a topic name or topic filter."
    )
    max_bytes_before_login: Annotated[Size, Field(ge=1024)] = Field(
        default=256 * 1024, description="Bytes buffered for a connection that has not logged in yet."
    )
    max_connections_per_address: Count = Field(
        default=0, description="Simultaneous connections from one address, or one IPv6 network (/64); 0 means no limit."
    )
    connect_rate_per_address: Count = Field(
        default=0,
        description="New connections per second from one address, or one IPv6 network (/64); 0 means no limit.",
    )
    max_user_properties: Count = Field(
        default=1000, description="User Properties in one MQTT 5 packet; 0 means no limit."
    )
    max_subscriptions: Count = Field(
        default=10_000, description="Subscriptions per session; 0 means no limit. Further ones are refused with 0x97."
    )
    max_filters_per_packet: Count = Field(
        default=1000,
        description="Topic filters in one SUBSCRIBE or UNSUBSCRIBE; 0 means no limit. A packet with more closes the "
        "connection (MQTT 5: with 0x97).",
    )
    max_qos: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=0, le=2)] = Field(
        default=2, description="Highest QoS the broker accepts and grants: 0, 1 or 2."
    )
    keep_alive_max: Annotated[WholeSeconds, Field(le=65535)] = Field(
        default=0,
        description="Maximum Keep Alive; MQTT 5 clients that ask for more, or for none, are given this one; 0 means "
        "no limit.",
    )
    session_expiry_max: Annotated[WholeSeconds, Field(le=4_294_967_295)] = Field(
        default=30 * 86400,
        description="Maximum Session Expiry Interval; MQTT 5 clients that ask for more are given this one; 0 means "
        "no limit.",
    )
    max_sessions_per_user: Count = Field(
        default=100_000,
        description="Sessions per user that outlive their connections; a client that asks for another is refused. "
        "All anonymous clients count as one user; 0 means no limit.",
    )
    max_client_id_length: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=23, le=65535)] = Field(
        default=65535, description="Maximum length of a client id in bytes. MQTT requires at least 23."
    )
    delta_tombstones: Count = Field(
        default=100_000,
        description="Number of deleted retained topics remembered for subscribers that ask only for changes; "
        "subscribers that are further behind get the full set.",
    )


class Tls(Section):
    """Certificates of the `tls://`, `wss://` and `https://` listeners. A listener's URL can name its own."""

    cert: Path | None = Field(default=None, description="Certificate chain (PEM).")
    key: Path | None = Field(default=None, description="Private key (PEM, without a passphrase).")
    ca: Path | None = Field(
        default=None, description="Certificate authorities that client certificates must be issued by (PEM)."
    )
    require_client_certificate: bool = Field(default=False, description="Whether clients must present a certificate.")
    crl: Path | None = Field(default=None, description="Certificate revocation lists (PEM, one list per authority).")
    identity: Literal["cn", "san"] = Field(
        default="cn",
        description="Which part of a client certificate is the user name: the common name of the subject (`cn`), or "
        "the first DNS name, e-mail address or URI among the subject alternative names (`san`).",
    )
    min_version: Literal["1.2", "1.3"] = Field(default="1.2", description="Oldest TLS version accepted.")
    ciphers: str = Field(default="", description="OpenSSL cipher list for TLS 1.2; empty means Python's default.")


class Websocket(Section):
    """MQTT over WebSocket."""

    path: Annotated[str, AfterValidator(check_websocket_path)] = Field(
        default="/mqtt",
        description="Path served by `ws://` and `wss://` listeners; a listener's URL can override it.",
    )
    origins: Annotated[list[Origin], BeforeValidator(one_or_many)] = Field(
        default=[],
        description="Web origins allowed to connect, such as `https://ops.example`; `*` allows all. Pages served "
        "from the listener's own host and port, and non-browser clients, can always connect.",
    )


class Auth(Section):
    """Who may connect."""

    allow_anonymous: bool | None = Field(
        default=None,
        description="Whether clients may connect without logging in. If absent: only on loopback listeners, and only "
        "while no login method is configured. Once users are defined anywhere (password, token, service, "
        "certificate, or a rule), a user name is never accepted without proof.",
    )
    client_id: Annotated[str, AfterValidator(check_client_id_pattern)] = Field(
        default="",
        description="Client ids that a user's clients may use, such as `%u-*`: `%u` stands for the user name, `*` "
        "for any text. Ids assigned by the broker are always accepted. If empty, any id, first come, first served.",
    )
    password_file: Path | None = Field(
        default=None, description="User names and password hashes, in mosquitto's format."
    )
    access_file: Path | None = Field(
        default=None,
        description="Access rules in the format of mosquitto's acl_file; consulted after the `[[access]]` rules.",
    )
    check_retain_source: bool = Field(
        default=True,
        description="Whether a retained message is sent only while its publisher still has permission to retain it.",
    )
    no_match: Literal["allow", "deny"] = Field(
        default="deny", description="The answer to a request that matches none of the `[[access]]` rules."
    )
    group: list[Group] = Field(default=[], description="Groups of users for the rules, as `[[auth.group]]` tables.")


class Jwt(Section):
    """JSON Web Tokens as passwords. A token that expires ends the connection."""

    key_file: Path | None = Field(
        default=None,
        description="The key that verifies tokens: a public key (PEM) for RS256 and ES256, or the secret for HS256.",
    )
    jwks_file: Path | None = Field(default=None, description="Several keys, as a JSON Web Key Set.")
    algorithms: Annotated[list[Literal["HS256", "RS256", "ES256"]], BeforeValidator(one_or_many)] = Field(
        default=["RS256", "ES256"], description="Accepted signature algorithms. A secret requires `HS256` alone."
    )
    username_claim: str = Field(default="sub", description="Claim that holds the user name.")
    issuer: str = Field(default="", description="Required `iss` of a token; if empty, any is accepted.")
    audience: str = Field(default="", description="Required `aud` of a token; if empty, the token must not have one.")
    leeway: Duration = Field(default=0, description="Tolerated clock difference.")


class Callback(Section):
    """An HTTP service that checks logins. No answer, or one that cannot be understood, refuses the login."""

    url: Annotated[str, AfterValidator(check_http_url)] = Field(
        default="",
        description="URL that logins are sent to, as a JSON document in a POST; if empty, no service is used.",
    )
    timeout: Duration = Field(default=3, description="How long to wait for the answer.")
    cache: Duration = Field(default=30, description="How long an answer is cached; 0 means not at all.")
    secret_file: Path | None = Field(
        default=None,
        description="Secret sent as `Authorization: Bearer ...`, so that the service can authenticate the broker.",
    )
    at_once: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1, le=256)] = Field(
        default=8, description="Maximum concurrent requests."
    )


class Bans(Section):
    """Clients that are turned away, and automatic bans after repeated failed logins."""

    addresses: Networks = Field(default=[], description="Addresses and networks that may not connect.")
    users: Names = Field(default=[], description="User names that may not connect.")
    client_ids: Names = Field(default=[], description="Client ids that may not connect.")
    failures: Count = Field(
        default=10,
        description="Failed logins from one address, or one IPv6 network (/64), that lead to a temporary ban; 0 "
        "means never.",
    )
    window: Duration = Field(default=60, description="Period in which failed logins are counted.")
    duration: Duration = Field(default=300, description="How long such a ban lasts.")
    exempt: Networks = Field(
        default=["127.0.0.0/8", "::1"],
        description="Addresses that are never banned for failures, such as a proxy that many clients come through.",
    )


class PredefinedTopic(Section):
    """One `[[sn.predefined]]` topic: a topic that MQTT-SN clients can use by its id without registering it."""

    id: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1, le=65534)] = Field(description="The topic id.")
    topic: Annotated[str, AfterValidator(check_topic_name)] = Field(description="The topic it stands for.")


class Sn(Section):
    """MQTT-SN 1.2 and 2.0, on the `udp://` listeners."""

    gateway_id: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=0, le=255)] = Field(
        default=1, description="Gateway id in GWINFO and ADVERTISE."
    )
    advertise: Annotated[str, AfterValidator(check_host_and_port)] = Field(
        default="",
        description="Where ADVERTISE is sent, as host:port, for example the broadcast address of the network; if "
        "empty, it is not sent.",
    )
    advertise_interval: Annotated[Duration, Field(le=65535)] = Field(
        default=900, description="How often ADVERTISE is sent."
    )
    open_topics: Annotated[list[TopicFilter], BeforeValidator(one_or_many)] = Field(
        default=[],
        description="One or more topic filters that anyone may publish to without a connection (PUBWOS, QoS -1); if "
        "empty, none.",
    )
    open_retain: bool = Field(
        default=False, description="Whether such publishes can be retained, and so replace or delete retained messages."
    )
    open_rate: Count = Field(default=1000, description="Total rate of such publishes per second; 0 means no limit.")
    retry_interval: Duration = Field(default=10, description="1.2: how long to wait for an answer before each resend.")
    response_timeout: Duration = Field(
        default=5, description="2.0: how long to wait for an answer before resends begin."
    )
    backoff: Duration = Field(default=1, description="2.0: wait before the first resend; doubles with each.")
    retries: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=0, le=100)] = Field(
        default=4, description="Resends before an unresponsive client is considered lost."
    )
    session_expiry_max: Annotated[WholeSeconds, Field(le=4_294_967_295)] = Field(
        default=86400,
        description="For anonymous clients: how long a session outlives its connection at most, and how long a "
        "client without a keep alive may be silent. 0 means that `limits.session_expiry_max` applies to the "
        "former and nothing to the latter.",
    )
    max_clients: Count = Field(
        default=100_000, description="Maximum simultaneous clients on one listener; 0 means no limit."
    )
    max_clients_per_address: Count = Field(
        default=0, description="Maximum simultaneous clients from one address, on any port; 0 means no limit."
    )
    max_topics: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1, le=65534)] = Field(
        default=1024, description="Maximum topic ids per client."
    )
    max_buffered: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1, le=1_000_000)] = Field(
        default=100,
        description="QoS 0 messages buffered for a client that is asleep or must first be sent a topic id.",
    )
    awake_messages: Count = Field(
        default=0,
        description="Messages sent to a sleeping client each time it wakes, unless it asks for a number "
        "of its own; 0 means all.",
    )
    answer_rate: Count = Field(
        default=2000, description="Answers per second to all addresses without a connection; 0 means no limit."
    )
    answer_rate_per_address: Count = Field(
        default=20, description="Answers per second to one address without a connection; 0 means no limit."
    )
    predefined: list[PredefinedTopic] = Field(
        default=[], description="Topics with a predefined id, as `[[sn.predefined]]` tables."
    )


class Api(Section):
    """Access to the HTTP API and dashboard. Without keys and users: this machine only, or nobody if clients log in."""

    key_file: Path | None = Field(
        default=None,
        description="API keys and hashes of their secrets, in the format of the password file. A key has full access.",
    )
    admins: Annotated[list[str], BeforeValidator(one_or_many)] = Field(
        default=[],
        description="Users of the password file with full access. Other users see and change the topics that the "
        "`[[access]]` rules grant them.",
    )
    cors: Annotated[list[str], BeforeValidator(one_or_many)] = Field(
        default=[], description="Origins whose pages may call the API, such as `https://ops.example`; none by default."
    )
    max_connections: Count = Field(
        default=1000,
        description="Maximum simultaneous connections over all `http://` and `https://` listeners; 0 means no limit.",
    )


class Sys(Section):
    """The `$SYS` topics."""

    interval: Duration = Field(default=10, description="How often `$SYS/broker/...` is published; 0 means never.")


class Log(Section):
    """Diagnostics, one line per event on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest severity that is logged."
    )
    format: Literal["text", "json"] = Field(default="text", description="`text` for people, `json` for machines.")


# What nodes of a cluster must agree on; everything else is each node's own.
SHARED_KEYS: Final = (
    "retainer.enable",
    "retainer.max_retained_messages",
    "retainer.max_bytes",
    "retainer.max_payload_size",
    "retainer.expiry_interval",
    "retainer.max_messages_per_user",
    "retainer.max_bytes_per_user",
    "retainer.strict",
    "retainer.policy",
    "limits.max_queued_messages",
    "limits.max_queued_bytes",
)


class Cluster(Section):
    """Several nodes on one log, kept by NATS JetStream. Without `url` the broker runs on its own.

    Limits and policies of `[retainer]`, `limits.max_queued_messages` and `limits.max_queued_bytes` are then shared by
    all nodes: those of the first node apply until a reload or an API call on any node changes them. Everything else is
    set per node, but `name` and `url` must lead all of them to the same log. `holdfast check-config` says which is
    which.
    """

    url: Annotated[list[str], BeforeValidator(one_or_many)] = Field(
        default=[], description="The NATS servers that keep the log, as `nats://host:port` or `tls://host:port`."
    )
    node: str = Field(default="", description="The name of this node; it must be unique.")
    name: str = Field(default="holdfast", description="The name of the cluster; several can share the same servers.")
    reads: Literal["fresh", "local"] = Field(
        default="fresh",
        description="`fresh`: a new subscriber sees everything that has been acknowledged on any node; `local`: what "
        "this node has read so far.",
    )
    node_timeout: Duration = Field(
        default=10,
        description="A node that has been silent for this long is declared down; one that has had no quorum for this "
        "long disconnects its clients.",
    )
    batch: Size = Field(default=128 << 10, description="Maximum bytes of entries in one message of the log.")
    replicas: Annotated[int, Field(ge=1, le=5)] = Field(
        default=3, description="Servers that keep a copy of the log; more than half of them must have a message."
    )
    monitor: Annotated[list[str], BeforeValidator(one_or_many)] = Field(
        default=[],
        description="Monitoring URLs of the NATS servers, as `http://host:8222`; used to check that they sync before "
        "they acknowledge.",
    )
    user: str = Field(default="", description="User name for NATS.")
    password_file: Path | None = Field(default=None, description="File with the password for NATS.")
    token_file: Path | None = Field(default=None, description="File with a token for NATS.")
    credentials_file: Path | None = Field(default=None, description="Credentials file (`.creds`) for NATS.")
    nkey_file: Path | None = Field(default=None, description="File with an NKEY seed for NATS.")
    ca: Path | None = Field(default=None, description="Certificate authority of the NATS servers.")
    cert: Path | None = Field(default=None, description="Client certificate for NATS.")
    key: Path | None = Field(default=None, description="Key of the client certificate.")
    advertise: str = Field(
        default="",
        description="Address at which clients reach this node, as `host:port`; sent as Server Reference to clients "
        "that have to leave another node.",
    )
    log_size: Size = Field(
        default=1 << 30,
        description="Size at which the log is trimmed up to what all nodes have applied; a node that was away for "
        "longer takes its state from another one.",
    )


class Bridge(Section):
    """One `[[bridge]]`: a link to another broker, over which topics go out, come in, or both."""

    name: BridgeName = Field(description="What it is called; no other bridge may have the name.")
    address: Annotated[list[BrokerUrl], BeforeValidator(one_or_many), Field(min_length=1)] = Field(
        description="The other broker, as `mqtt://host:1883`, `mqtts://`, `ws://` or `wss://`; of several the next is "
        "tried when one does not answer."
    )
    topic: Annotated[list[BridgeLine], BeforeValidator(one_or_many), Field(min_length=1)] = Field(
        description="What goes over it, one line or several, as in mosquitto: `PATTERN [out, in or both] [QOS "
        '[LOCAL-PREFIX [REMOTE-PREFIX]]]`, with `""` for an empty prefix. A line may end with `retain=strip` (nothing '
        "is kept on the other side), `retain=set` (everything is) and `expiry=SECONDS`."
    )
    protocol: Literal["5", "3.1.1"] = Field(default="5", description="The version of MQTT that is spoken to it.")
    client_id: str = Field(default="", description="Client id there; empty is the host's name and the bridge's.")
    local_client_id: str = Field(default="", description="Client id here; empty is `local.` and the one there.")
    username: str = Field(default="", description="User name there; empty is none.")
    password_file: Path | None = Field(
        default=None, description="File with the password or token, read anew at each connect."
    )
    local_username: str = Field(
        default="", description="The user whose rights it has here; empty is that of a client without a name."
    )
    ca: Path | None = Field(default=None, description="Authorities that its certificate may come from (PEM).")
    cert: Path | None = Field(default=None, description="Certificate to show (PEM).")
    key: Path | None = Field(default=None, description="Its private key (PEM).")
    insecure: bool = Field(default=False, description="Whether any name on its certificate will do.")
    clean_session: bool = Field(
        default=False, description="Whether the other broker forgets the session with each connection."
    )
    session_expiry: Annotated[WholeSeconds, Field(le=4_294_967_295)] = Field(
        default=7 * 86400, description="How long it keeps the session otherwise (MQTT 5)."
    )
    keep_alive: Annotated[WholeSeconds, Field(ge=5, le=65535)] = Field(
        default=60, description="A link that is silent for so long is asked whether it is there."
    )
    notifications: bool = Field(
        default=True,
        description="Whether `1` and `0`, retained, say on both sides whether the link is there, by a will on the "
        "other one.",
    )
    notification_topic: str = Field(
        default="", description="Where; empty is `$SYS/broker/connection/CLIENT-ID/state`, as in mosquitto."
    )
    notifications_local_only: bool = Field(default=False, description="Whether that is said here only.")
    round_robin: bool = Field(
        default=False,
        description="Whether all addresses are alike. If not, the first is gone back to as soon as it answers again.",
    )
    start: Literal["automatic", "lazy", "once"] = Field(
        default="automatic",
        description="`automatic`: always connected; `lazy`: while there is something to send; `once`: until the link "
        "is lost.",
    )
    threshold: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1)] = Field(
        default=10, description="Messages that have to wait before a lazy bridge connects."
    )
    idle_timeout: Duration = Field(default=60, description="A lazy bridge disconnects after so long without a message.")
    retry: Duration = Field(default=1, description="Wait before the first attempt to connect again; doubles with each.")
    retry_max: Duration = Field(default=30, description="Longest wait between two attempts.")
    quiet: Duration = Field(
        default=2,
        description="A broker that does not mark the end of its retained messages has sent them all when no more come "
        "for so long.",
    )
    private: bool = Field(
        default=True,
        description="Whether MQTT 3.1.1 tells the other broker that this is a bridge, as mosquitto does (protocol "
        "level 0x84). One that does not know it is spoken to without.",
    )
    outgoing_retain: bool = Field(
        default=True, description="Whether RETAIN goes out at all; off is for brokers that refuse it."
    )
    conflict: Literal["newest", "local", "remote"] = Field(
        default="newest",
        description="Which value stays of a topic that goes both ways and was changed on both sides while the link was "
        "down. Brokers other than Holdfast do not say when: `newest` means `local` with them.",
    )
    max_inflight: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1, le=65535)] = Field(
        default=200, description="Unacknowledged QoS 1 and 2 messages in each direction."
    )
    remember: Count = Field(
        default=1_000_000,
        description="Topics of which it is remembered on disk what the other side was sent, so that what is deleted "
        "here is deleted there too; 0 is no limit.",
    )


class Settings(Section):
    """The whole configuration."""

    listen: Annotated[
        list[Annotated[str, AfterValidator(check_listener_url)]], BeforeValidator(one_or_many), Field(min_length=1)
    ] = Field(
        default=list(DEFAULT_LISTEN),
        description="Where to listen, as URLs: `tcp://`, `tls://`, `ws://`, `wss://`, `udp://` (MQTT-SN), `http://`, "
        "`https://`, each with host and port. Port 0 lets the system pick one.",
    )
    data: Path = Field(default=Path("data"), description="Folder for everything that has to survive a restart.")
    durability: Literal["none", "ack", "deliver"] = Field(
        default="ack",
        description="When a publish is on disk: `none` some time after it is acknowledged, `ack` before, `deliver` "
        "also before any subscriber sees it.",
    )
    response_information: str = Field(
        default="",
        description="Topic prefix sent to MQTT 5 clients that request Response Information; if empty, none is sent.",
    )
    retainer: Retainer = Retainer()
    history: History = History()
    pipeline: Pipeline = Pipeline()
    limits: Limits = Limits()
    tls: Tls = Tls()
    websocket: Websocket = Websocket()
    auth: Auth = Auth()
    jwt: Jwt = Jwt()
    callback: Callback = Callback()
    bans: Bans = Bans()
    api: Api = Api()
    sn: Sn = Sn()
    cluster: Cluster = Cluster()
    sys: Sys = Sys()
    log: Log = Log()
    access: list[AccessRule] = Field(
        default=[], description="Access rules, as `[[access]]` tables; the first match wins."
    )
    bridge: list[Bridge] = Field(default=[], description="Links to other brokers, as `[[bridge]]` tables.")

    def listeners(self) -> list[Listener]:
        """Each listener with everything its URL left out filled in."""
        return [self._complete(parse_listener(url)) for url in self.listen]

    @property
    def has_logins(self) -> bool:
        """Whether there is any way to log in."""
        return (
            self.auth.password_file is not None
            or self.jwt.key_file is not None
            or self.jwt.jwks_file is not None
            or self.callback.url != ""
        )

    @property
    def asks_certificates(self) -> bool:
        """Whether a client certificate says who somebody is, on any listener."""
        return any(listener.ca is not None for listener in self.listeners())

    def _complete(self, url: ListenerUrl) -> Listener:
        anonymous = self.auth.allow_anonymous if url.allow_anonymous is None else url.allow_anonymous
        if anonymous is None:
            anonymous = url.is_loopback and not self.has_logins
        required = url.require_client_certificate
        if required is None:
            required = self.tls.require_client_certificate
        return Listener(
            scheme=url.scheme,
            host=url.host,
            port=url.port,
            path=(url.path or self.websocket.path) if url.is_websocket else "",
            allow_anonymous=anonymous,
            max_connections=url.max_connections,
            # a certificate and its key go together: both from the URL, or both from the section
            cert=(url.cert or self.tls.cert) if url.is_tls else None,
            key=(url.key or self.tls.key) if url.is_tls else None,
            ca=(url.ca or self.tls.ca) if url.is_tls else None,
            require_client_certificate=url.is_tls and required,
            crl=(url.crl or self.tls.crl) if url.is_tls else None,
            proxy=url.proxy,
        )
