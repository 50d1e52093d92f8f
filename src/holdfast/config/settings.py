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

    filter: TopicFilter = Field(description="Topics this entry is about.")
    action: Literal["store", "drop-flag", "refuse"] = Field(
        default="store",
        description="`store` keeps the message; `drop-flag` delivers it live and keeps nothing; `refuse` turns the "
        "publish down.",
    )
    ttl: Duration = Field(
        default=0, description="Messages under the filter expire after this long at the latest; 0 is never."
    )
    max_messages: Count = Field(default=0, description="Messages kept under the filter; 0 is no limit.")
    max_bytes: Size = Field(default=0, description="Topic and payload bytes kept under the filter; 0 is no limit.")
    users: Annotated[list[str] | None, BeforeValidator(one_or_many)] = Field(
        default=None, description="Users the entry applies to; absent, it applies to everyone."
    )


class AccessRule(Section):
    """One `[[access]]` rule. The first rule that matches decides; without any rule everything is allowed."""

    permission: Literal["allow", "deny"] = Field(description="What the rule answers.")
    action: Annotated[list[Action], BeforeValidator(one_or_many), Field(min_length=1)] = Field(
        description="What it is about, one or several: `publish`, `subscribe`, `retain` (asked in addition to "
        "`publish` when a message is to be kept), `receive`, `all`."
    )
    filter: TopicFilters = Field(
        description="Topics it is about, one filter or several. `%c` stands for the client id and `%u` for the user "
        "name."
    )
    user: str | None = Field(default=None, description="Only for this user; absent, for everyone.")
    client_id: str | None = Field(default=None, description="Only for this client id; absent, for every one.")
    group: str | None = Field(default=None, description="Only for the users of this `[[auth.group]]`.")
    qos: Annotated[list[Qos], BeforeValidator(one_or_many_numbers)] = Field(
        default=[],
        description="Only for publishes and subscriptions of this QoS, one or several; absent, for every one.",
    )
    certificate: bool = Field(default=False, description="Only for clients that have shown a certificate.")


class Group(Section):
    """One `[[auth.group]]`: users that rules speak of together."""

    name: str = Field(description="What rules call it.")
    users: Annotated[list[str], BeforeValidator(one_or_many)] = Field(description="Who is in it.")


class Retainer(Section):
    """Retained messages: whether, where, how many and for how long."""

    enable: bool = Field(default=True, description="Whether messages can be retained. If not, RETAIN is refused.")
    storage_type: Literal["ram", "disc", "disc_only"] = Field(
        default="disc",
        description="`ram` keeps retained messages and sessions in memory only; `disc` in memory and on disk; "
        "`disc_only` on disk, with no payloads in memory.",
    )
    max_retained_messages: Count = Field(
        default=0,
        description="Messages kept at most; 0 is no limit. At the limit a topic that has a message can still replace "
        "it, a new topic is delivered live and not kept.",
    )
    max_payload_size: Size = Field(
        default=1024 * 1024,
        description="A retained publish with a larger payload is delivered as a normal message and not kept; 0 is no "
        "limit.",
    )
    expiry_interval: Duration = Field(
        default=0,
        description="Retained messages expire after this long; 0 is never. A publisher's own expiry interval wins.",
    )
    max_bytes: Size = Field(
        default=0, description="Topic and payload bytes kept at most, all topics together; 0 is no limit."
    )
    max_messages_per_user: Count = Field(default=0, description="Messages kept at most for one user; 0 is no limit.")
    max_bytes_per_user: Size = Field(
        default=0, description="Topic and payload bytes kept at most for one user; 0 is no limit."
    )
    strict: bool = Field(
        default=False,
        description="What a publish over a limit gets. Off: it is delivered live, acknowledged, and what was kept "
        "before stays. On: MQTT 5 publishers are answered with quota exceeded, and an oversized message "
        "removes what was kept.",
    )
    presets: Annotated[list[Literal["commands"]], BeforeValidator(one_or_many)] = Field(
        default=[], description="Ready-made policies. `commands`: messages on the usual command topics are never kept."
    )
    policy: list[Policy] = Field(
        default=[], description="Rules by topic, as `[[retainer.policy]]` tables; first match wins."
    )


class History(Section):
    """The table of what was published."""

    enable: bool = Field(default=True, description="Whether publishes are written to the history table.")
    record: Literal["retained", "all"] = Field(
        default="retained",
        description="What becomes a row: `retained`, every publish with RETAIN, whether it set, cleared or was "
        "refused; `all`, publishes without RETAIN too. A configuration that gives `history.filter` and not this one "
        "means `all`.",
    )
    filter: TopicFilters = Field(
        default=["#"], description="Topics whose publishes go to the history, one filter or several."
    )
    retention: Duration = Field(
        default=30 * 86400,
        description="How long rows are kept; 0 is for ever. What is retained now keeps its row whatever its age.",
    )
    retention_bytes: Size = Field(
        default=10 * 1024**3,
        description="Size of the table on disk above which its oldest rows go; 0 is no limit. What is retained now "
        "keeps its row here too.",
    )
    reserve: Reserve = Field(
        default=["5%", "1GiB"],
        description="Free space below which no more is written to the history, so that the journal has room: a size, "
        "or a part of the file system such as `5%`. Of several the smallest counts; 0 is none.",
    )
    flush_interval: Duration = Field(
        default=1, description="Rows are committed at least this often when there are any."
    )


class Pipeline(Section):
    """What `holdfast pipeline` makes of the history."""

    devices: Annotated[str, AfterValidator(check_topic_template)] = Field(
        default="site/{site}/line/{line}/{device}/#",
        description="Which part of a topic names a device, for the table `device_stats` and the report: a topic filter "
        "with names in braces instead of `+`.",
    )


class Limits(Section):
    """What one client, or all of them, may use."""

    max_packet_size: Annotated[Size, Field(ge=16, le=268_435_460)] = Field(
        default=10 * 1024 * 1024, description="Largest packet accepted from a client, header included."
    )
    max_connections: Count = Field(default=0, description="Connections at once, all listeners together; 0 is no limit.")
    connect_timeout: Duration = Field(
        default=10,
        description="A connection that has sent no CONNECT by then is closed; over HTTP, one that has sent no whole "
        "head of a request, or no body.",
    )
    connect_rate: Count = Field(default=0, description="New connections a second; 0 is no limit.")
    message_rate: Count = Field(default=0, description="Publishes a second from one client; 0 is no limit.")
    message_rate_per_user: Count = Field(
        default=0,
        description="Publishes a second from one user, all connections and the API together; 0 is no limit. All "
        "clients without a name are one user. Who is over it is read from more slowly; MQTT-SN is answered with "
        "congestion, the API with 429.",
    )
    byte_rate_per_user: Size = Field(
        default=0, description="Bytes a second from one user, in the same way; 0 is no limit."
    )
    max_inflight: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1, le=65535)] = Field(
        default=1000,
        description="Unacknowledged QoS 1 and 2 messages to one client; its own Receive Maximum may be lower.",
    )
    receive_maximum: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1, le=65535)] = Field(
        default=1024, description="Unacknowledged QoS 1 and 2 messages from one client, announced to MQTT 5 clients."
    )
    topic_alias_maximum: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=0, le=65535)] = Field(
        default=64, description="Topic aliases a client may use, announced to MQTT 5 clients; 0 is none."
    )
    max_queued_messages: Count = Field(
        default=100_000, description="QoS 1 and 2 messages waiting for one session; 0 is no limit."
    )
    max_queued_bytes: Size = Field(default=64 * 1024 * 1024, description="Their bytes, for one session; 0 is no limit.")
    max_outbox_bytes: Annotated[Size, Field(ge=4096)] = Field(
        default=16 * 1024 * 1024,
        description="Bytes waiting for a connection that reads slowly; beyond it QoS 0 messages are dropped and "
        "counted.",
    )
    max_topic_levels: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1, le=65535)] = Field(
        default=128, description="Levels in a topic name or topic filter."
    )
    max_bytes_before_login: Annotated[Size, Field(ge=1024)] = Field(
        default=256 * 1024, description="Bytes kept for a connection that has not logged in yet."
    )
    max_connections_per_address: Count = Field(
        default=0, description="Connections at once from one address, or one IPv6 network (/64); 0 is no limit."
    )
    connect_rate_per_address: Count = Field(
        default=0, description="New connections a second from one address, or one IPv6 network (/64); 0 is no limit."
    )
    max_user_properties: Count = Field(
        default=1000, description="User properties in one packet of MQTT 5; 0 is no limit."
    )
    max_subscriptions: Count = Field(
        default=10_000, description="Subscriptions of one session; 0 is no limit. More are refused with 0x97."
    )
    max_filters_per_packet: Count = Field(
        default=1000,
        description="Topic filters in one SUBSCRIBE or UNSUBSCRIBE; 0 is no limit. With more the connection ends, in "
        "MQTT 5 with 0x97.",
    )
    max_qos: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=0, le=2)] = Field(
        default=2, description="Highest QoS the broker takes and grants: 0, 1 or 2."
    )
    keep_alive_max: Annotated[WholeSeconds, Field(le=65535)] = Field(
        default=0,
        description="Longest keep alive; MQTT 5 clients that ask for more, or for none, are told this; 0 is no limit.",
    )
    session_expiry_max: Annotated[WholeSeconds, Field(le=4_294_967_295)] = Field(
        default=30 * 86400,
        description="Longest time a session outlives its connection; MQTT 5 clients that ask for more are told this; "
        "0 is no limit.",
    )
    max_sessions_per_user: Count = Field(
        default=100_000,
        description="Sessions of one user that outlive their connections; a client that asks for one more is refused. "
        "All clients without a name are one user; 0 is no limit.",
    )
    max_client_id_length: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=23, le=65535)] = Field(
        default=65535, description="Bytes in a client id. MQTT requires at least 23."
    )
    delta_tombstones: Count = Field(
        default=100_000,
        description="Deleted retained topics remembered for subscribers that ask only for changes; older ones get the"
        " full set.",
    )


class Tls(Section):
    """Certificates of the `tls://`, `wss://` and `https://` listeners. A listener's URL can name its own."""

    cert: Path | None = Field(default=None, description="Certificate chain (PEM).")
    key: Path | None = Field(default=None, description="Private key (PEM, without a passphrase).")
    ca: Path | None = Field(default=None, description="Authorities that client certificates must come from (PEM).")
    require_client_certificate: bool = Field(default=False, description="Whether clients must show a certificate.")
    crl: Path | None = Field(default=None, description="Certificates that are revoked (PEM, one list per authority).")
    identity: Literal["cn", "san"] = Field(
        default="cn",
        description="What of a client's certificate is its user name: the common name of the subject (`cn`), or the "
        "first DNS name, e-mail address or URI of the alternative names (`san`).",
    )
    min_version: Literal["1.2", "1.3"] = Field(default="1.2", description="Oldest TLS version accepted.")
    ciphers: str = Field(default="", description="OpenSSL cipher list for TLS 1.2; empty is Python's default.")


class Websocket(Section):
    """MQTT over WebSocket."""

    path: Annotated[str, AfterValidator(check_websocket_path)] = Field(
        default="/mqtt",
        description="Path that `ws://` and `wss://` listeners answer; a listener's URL can name its own.",
    )
    origins: Annotated[list[Origin], BeforeValidator(one_or_many)] = Field(
        default=[],
        description="Web sites whose pages may connect, such as `https://ops.example`; `*` is every one. Pages that "
        "come from the listener's own host and port may always connect, and so may clients that are not browsers.",
    )


class Auth(Section):
    """Who may connect."""

    allow_anonymous: bool | None = Field(
        default=None,
        description="Whether clients may connect without logging in. Absent: on loopback listeners only, and only "
        "while there is no way to log in. A name is never taken without proof where any user is known, be it by "
        "password, token, service or certificate, or in a rule.",
    )
    client_id: Annotated[str, AfterValidator(check_client_id_pattern)] = Field(
        default="",
        description="Client ids that a user's clients may have, such as `%u-*`: `%u` stands for the user name, `*` for "
        "any text; ids that the broker itself gives always fit. Empty: any id, first come, first served.",
    )
    password_file: Path | None = Field(
        default=None, description="User names and password hashes, in mosquitto's format."
    )
    access_file: Path | None = Field(
        default=None,
        description="What clients may do, in the format of mosquitto's acl_file; asked after the `[[access]]` rules.",
    )
    check_retain_source: bool = Field(
        default=True,
        description="Whether a retained message is sent only while its publisher might still put it there.",
    )
    no_match: Literal["allow", "deny"] = Field(
        default="deny", description="What a request gets that none of the `[[access]]` rules matches."
    )
    group: list[Group] = Field(
        default=[], description="Users that rules speak of together, as `[[auth.group]]` tables."
    )


class Jwt(Section):
    """JSON Web Tokens as passwords. A token that expires ends the connection."""

    key_file: Path | None = Field(
        default=None,
        description="What tokens are signed with: a public key (PEM) for RS256 and ES256, or the secret for HS256.",
    )
    jwks_file: Path | None = Field(default=None, description="Several keys, as a JSON Web Key Set.")
    algorithms: Annotated[list[Literal["HS256", "RS256", "ES256"]], BeforeValidator(one_or_many)] = Field(
        default=["RS256", "ES256"], description="Signatures that are accepted. A secret needs `HS256` alone."
    )
    username_claim: str = Field(default="sub", description="Claim that holds the user name.")
    issuer: str = Field(default="", description="`iss` that a token must have; empty is any.")
    audience: str = Field(default="", description="`aud` that a token must have; empty is any token without one.")
    leeway: Duration = Field(default=0, description="By how much the clocks may differ.")


class Callback(Section):
    """An HTTP service that is asked about a login. No answer, or one that makes no sense, is a refusal."""

    url: Annotated[str, AfterValidator(check_http_url)] = Field(
        default="", description="Where a login is sent, as a JSON document in a POST; empty asks nobody."
    )
    timeout: Duration = Field(default=3, description="How long to wait for the answer.")
    cache: Duration = Field(default=30, description="How long an answer is remembered; 0 is not at all.")
    secret_file: Path | None = Field(
        default=None, description="Sent as `Authorization: Bearer ...`, so that the service knows who asks."
    )
    at_once: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1, le=256)] = Field(
        default=8, description="Requests in progress at the same time."
    )


class Bans(Section):
    """Who is turned away before anything else, and who is banned for failing to log in again and again."""

    addresses: Networks = Field(default=[], description="Addresses and networks that may not connect.")
    users: Names = Field(default=[], description="User names that may not connect.")
    client_ids: Names = Field(default=[], description="Client ids that may not connect.")
    failures: Count = Field(
        default=10,
        description="Failed logins from one address, or one IPv6 network (/64), after which it is banned for a while; "
        "0 is never.",
    )
    window: Duration = Field(default=60, description="Time in which so many failures count.")
    duration: Duration = Field(default=300, description="How long such a ban lasts.")
    exempt: Networks = Field(
        default=["127.0.0.0/8", "::1"],
        description="Addresses that are never banned for failures, such as a proxy that many clients come through.",
    )


class PredefinedTopic(Section):
    """One `[[sn.predefined]]` topic: what clients of MQTT-SN may call by a number without registering it."""

    id: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1, le=65534)] = Field(description="The number.")
    topic: Annotated[str, AfterValidator(check_topic_name)] = Field(description="The topic it stands for.")


class Sn(Section):
    """MQTT-SN 1.2 and 2.0, on the `udp://` listeners."""

    gateway_id: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=0, le=255)] = Field(
        default=1, description="What this gateway calls itself in GWINFO and ADVERTISE."
    )
    advertise: Annotated[str, AfterValidator(check_host_and_port)] = Field(
        default="",
        description="Where ADVERTISE is sent, as host:port, such as the network's broadcast address; empty sends none.",
    )
    advertise_interval: Annotated[Duration, Field(le=65535)] = Field(
        default=900, description="How often ADVERTISE is sent."
    )
    open_topics: Annotated[list[TopicFilter], BeforeValidator(one_or_many)] = Field(
        default=[],
        description="Topics that anyone may publish to without a connection (PUBWOS, QoS -1), one filter or several;"
        " empty is none.",
    )
    open_retain: bool = Field(
        default=False, description="Whether such publishes may be retained, and so replace or delete what is."
    )
    open_rate: Count = Field(default=1000, description="Such publishes a second, all together; 0 is no limit.")
    retry_interval: Duration = Field(default=10, description="1.2: how long to wait for an answer before each resend.")
    response_timeout: Duration = Field(
        default=5, description="2.0: how long to wait for an answer before resends begin."
    )
    backoff: Duration = Field(default=1, description="2.0: wait before the first resend; doubles with each.")
    retries: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=0, le=100)] = Field(
        default=4, description="Resends before a client that does not answer is taken to be lost."
    )
    session_expiry_max: Annotated[WholeSeconds, Field(le=4_294_967_295)] = Field(
        default=86400,
        description="Longest time that the session of a client without a name outlives its connection, and that such a "
        "client is silent if its CONNECT names no keep alive; 0 is as long as `limits.session_expiry_max` says, and "
        "for ever.",
    )
    max_clients: Count = Field(default=100_000, description="Clients at once on one listener; 0 is no limit.")
    max_clients_per_address: Count = Field(
        default=0, description="Clients at once from one address, whatever their port; 0 is no limit."
    )
    max_topics: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1, le=65534)] = Field(
        default=1024, description="Topic ids of one client."
    )
    max_buffered: Annotated[int, BeforeValidator(check_no_boolean), Field(ge=1, le=1_000_000)] = Field(
        default=100,
        description="QoS 0 messages that wait for a client that sleeps, or that has to be told a topic id first.",
    )
    awake_messages: Count = Field(
        default=0, description="Messages sent to a sleeping client each time it wakes, if it names no number; 0 is all."
    )
    answer_rate: Count = Field(
        default=2000, description="Answers a second to addresses without a connection, all together; 0 is no limit."
    )
    answer_rate_per_address: Count = Field(
        default=20, description="Answers a second to one address without a connection; 0 is no limit."
    )
    predefined: list[PredefinedTopic] = Field(
        default=[], description="Topics with a number of their own, as `[[sn.predefined]]` tables."
    )


class Api(Section):
    """Who may use the HTTP API and the dashboard. Without keys and users: this machine, or nobody if clients log in."""

    key_file: Path | None = Field(
        default=None,
        description="API keys and hashes of their secrets, in the format of the password file. A key may do "
        "everything.",
    )
    admins: Annotated[list[str], BeforeValidator(one_or_many)] = Field(
        default=[],
        description="Users of the password file who may do everything. Others see and change the topics that the "
        "`[[access]]` rules give them.",
    )
    cors: Annotated[list[str], BeforeValidator(one_or_many)] = Field(
        default=[], description="Origins whose pages may call the API, such as `https://ops.example`; none by default."
    )
    max_connections: Count = Field(
        default=1000,
        description="HTTP connections at once, all `http://` and `https://` listeners together; 0 is no limit.",
    )


class Sys(Section):
    """The `$SYS` topics."""

    interval: Duration = Field(default=10, description="How often `$SYS/broker/...` is published; 0 is never.")


class Log(Section):
    """Diagnostics, one line per event on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe event written."
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
    """Many nodes on one log, which NATS JetStream keeps. Without `url` the broker stands alone.

    Limits and policies of `[retainer]`, `limits.max_queued_messages` and `limits.max_queued_bytes` are then the same on
    all nodes: the first node's until one is told others by a reload or through the API. Everything else is each node's
    own, but `name` and `url` have to lead all of them to the same log. `holdfast check-config` says which is which.
    """

    url: Annotated[list[str], BeforeValidator(one_or_many)] = Field(
        default=[], description="The NATS servers that keep the log, as `nats://host:port` or `tls://host:port`."
    )
    node: str = Field(default="", description="The name of this node, which no other may have.")
    name: str = Field(default="holdfast", description="The name of the cluster; several can share the same servers.")
    reads: Literal["fresh", "local"] = Field(
        default="fresh",
        description="`fresh`: whoever subscribes finds everything that anybody was told is stored, on any node; "
        "`local`: what this node has read so far.",
    )
    node_timeout: Duration = Field(
        default=10,
        description="A node that is silent for so long is declared down; one that has no quorum for so long sends its "
        "clients away.",
    )
    batch: Size = Field(default=128 << 10, description="Bytes of entries that one message of the log holds.")
    replicas: Annotated[int, Field(ge=1, le=5)] = Field(
        default=3, description="Servers that keep a copy of the log; more than half of them must have a message."
    )
    monitor: Annotated[list[str], BeforeValidator(one_or_many)] = Field(
        default=[],
        description="Monitoring addresses of the NATS servers, as `http://host:8222`: it is checked there that they "
        "sync before they answer.",
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
        description="Where clients reach this node, as `host:port`: told to those who have to leave another.",
    )
    log_size: Size = Field(
        default=1 << 30,
        description="Bytes of the log before it is cut below what all nodes have; a node that was away for longer "
        "takes its state from another.",
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
    data: Path = Field(default=Path("data"), description="Folder for everything that must survive a restart.")
    durability: Literal["none", "ack", "deliver"] = Field(
        default="ack",
        description="When a publish is on disk: `none` some time after it is acknowledged, `ack` before, `deliver` "
        "also before any subscriber sees it.",
    )
    response_information: str = Field(
        default="",
        description="Topic prefix handed to MQTT 5 clients that request response information; empty is none.",
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
        default=[], description="What clients may do, as `[[access]]` tables; first match wins."
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
