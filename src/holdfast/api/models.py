"""The shapes of answers, for the OpenAPI document. What is sent is held against them by the tests."""

from typing import Any

from pydantic import BaseModel, Field, RootModel

LIVE_FROM = "The offset from which on publishes without RETAIN are rows too; 0 while they are not recorded."


class Publisher(BaseModel):
    client_id: str
    username: str
    protocol: str


class Summary(BaseModel):
    """A retained message without its payload. `version` is the offset of the publish that set it."""

    topic: str
    version: int
    size: int = Field(description="Bytes of the payload.")
    qos: int
    stored_at: str
    stored_at_ms: int
    expires_at: str | None
    expires_at_ms: int | None
    publisher: Publisher
    preview: str | None = Field(description="The beginning of the payload, where it is text.")


class Whole(Summary):
    """A retained message with everything it carries. `payload` is base64, `text` is there when it is UTF-8."""

    payload: str
    text: str | None
    content_type: str | None
    response_topic: str | None
    correlation_data: str | None
    payload_format: int | None
    user_properties: list[list[str]]


class MessagePage(BaseModel):
    messages: list[Whole | Summary]
    next: str | None
    version: int


class DryRun(BaseModel):
    dry_run: bool
    count: int
    bytes: int
    sample: list[str]
    token: str


class Cleared(BaseModel):
    dry_run: bool
    count: int
    operation: str


class Restored(BaseModel):
    operation: str
    dry_run: bool
    restored: int
    present: int
    expired: int
    refused: int
    removed: int
    changes: list["Change"] = Field(description="The first few topics that are different afterwards.")


class Change(BaseModel):
    topic: str
    what: str = Field(description="`restored` where nothing is now, `replaced`, or `removed`.")


class Operation(BaseModel):
    """One call that changed retained messages: a delete, a publish, a restore, an undo."""

    operation: str = Field(description="Its name, under which it can be undone.")
    username: str
    at_ms: int
    set: int = Field(description="Messages that it set.")
    cleared: int = Field(description="Messages that it deleted.")
    topic: str = Field(description="The first of its topics.")
    first: int
    last: int


class Operations(BaseModel):
    operations: list[Operation]
    next: int | None = Field(description="`before` of the next page.")


class ChangeCounts(BaseModel):
    from_ms: int
    to_ms: int
    counts: list[int] = Field(description="Messages set or deleted in each of the equal parts of that time.")


class ChangesBeside(BaseModel):
    before_ms: int | None
    after_ms: int | None


class Count(BaseModel):
    count: int
    bytes: int


class Usage(BaseModel):
    prefix: str | None
    count: int
    bytes: int | None = Field(description="Null for a moment of the past that is large.")


class Leaf(BaseModel):
    version: int
    size: int
    qos: int
    stored_at_ms: int
    expires_at_ms: int | None
    preview: str | None


class Child(BaseModel):
    name: str
    path: str
    leaf: bool
    count: int | None
    bytes: int | None
    message: Leaf | None


class TreeLevel(BaseModel):
    prefix: str | None
    total: int
    sorted: bool
    children: list[Child]
    next: str | None
    version: int


class HistoryRow(Whole):
    outcome: str
    retain: bool


class HistoryOf(BaseModel):
    topic: str
    complete_from: int
    live_from: int = Field(description=LIVE_FROM)
    upto: int
    rows: list[HistoryRow]
    next: int | None


class Span(BaseModel):
    uri: str = Field(description="Where the Delta table is, for readers on machines that see the same files.")
    from_ms: int | None
    upto_ms: int | None
    rows: int
    bytes: int
    complete_from: int
    live_from: int = Field(description=LIVE_FROM)
    upto: int


class RetainedAtPage(BaseModel):
    total: int | None
    messages: list[HistoryRow]
    next: str | None


class Published(BaseModel):
    version: int
    reason: int
    reason_name: str


class PublishedAll(BaseModel):
    operation: str
    count: int
    refused: int
    version: int


class Group(BaseModel):
    count: int
    bytes: int
    messages: list[Summary]


class Absent(BaseModel):
    client_id: str
    last_write: str
    last_write_ms: int
    count: int
    bytes: int
    sample: str


class Discovery(Summary):
    state_topic: str
    heard_at_ms: int | None = Field(description="When the state topic was last published to, where that is known.")


class Subtree(BaseModel):
    prefix: str
    count: int
    bytes: int


class HygieneReport(BaseModel):
    """Lists are cut at `limit`, counts are of all there are."""

    version: int
    days: float
    count: int
    bytes: int
    stale: Group
    publishers: list[Absent]
    publishers_count: int
    discovery: list[Discovery]
    discovery_count: int
    listening_since_ms: int | None = Field(
        description="Since when the broker notes that state topics are published to."
    )
    subtrees: list[Subtree]
    subtrees_count: int
    commands: Group
    expiring: Group


class RetainedTotals(BaseModel):
    count: int
    bytes: int
    version: int
    sets: int
    deletes: int
    expired: int


class Overview(BaseModel):
    version: str
    now_ms: int
    started_at_ms: int
    storage_type: str
    has_history: bool
    offset: int
    connections: int
    sessions: int
    subscriptions: int
    messages_in: list[int]
    messages_out: list[int]
    bytes_in: int
    bytes_out: int
    retained: RetainedTotals
    refused: dict[str, int]
    dropped: dict[str, int]
    publishes_refused: int
    connects_refused: int
    protocol_errors: int
    history_lag: int
    history_lag_s: float
    loop_delay_s: float
    problems: dict[str, str]
    series: dict[str, list[int]]


class Who(BaseModel):
    """`sees_all`: no access rule hides a topic, so reports about all of them are answered."""

    known: bool
    name: str | None
    admin: bool
    sees_all: bool
    login: bool


class Memory(BaseModel):
    """Bytes in memory: of the broker's own process, and of those that it has started."""

    broker: int
    helpers: int


class DiskSpace(BaseModel):
    folder: str
    total: int
    free: int
    parts: dict[str, int] = Field(description="Bytes on disk by folder, a minute old at most.")


class DeepQueue(BaseModel):
    client_id: str
    messages: int
    bytes: int


class Queues(BaseModel):
    messages: int
    bytes: int
    inflight: int
    most_messages: int = Field(description="What one client may have waiting; 0 is no limit.")
    deepest: list[DeepQueue]


class JournalReport(BaseModel):
    healthy: bool
    backlog_bytes: int
    sync_s: float = Field(description="What a sync takes, on average since the start.")


class ListenerReport(BaseModel):
    address: str
    scheme: str
    connections: int
    max_connections: int
    anonymous: bool
    tls: bool


class ResourceReport(BaseModel):
    memory: Memory
    disk: DiskSpace | None
    queues: Queues
    journal: JournalReport | None
    listeners: list[ListenerReport]


class Setting(BaseModel):
    key: str
    value: Any
    text: str = Field(description="The value as one would write it.")
    origin: str
    changed: bool = Field(description="Whether it does not come from the default.")
    default: str
    description: str


class SettingList(BaseModel):
    settings: list[Setting]


class User(BaseModel):
    name: str
    kind: str = Field(description="`user` of the password file, `key` of the API, or `connected`, known by that alone.")
    admin: bool
    groups: list[str]
    clients: int
    banned: bool


class AccessRule(BaseModel):
    permission: str
    actions: list[str]
    filter: str
    user: str | None
    users: list[str] | None
    client_id: str | None
    qos: list[int]
    certificate: bool
    origin: str


class Permissions(BaseModel):
    logins: list[str]
    users: list[User]
    rules: list[AccessRule]
    no_match: str = Field(description="What is answered where no rule matches; without any rule all is allowed.")


class PermissionAnswer(BaseModel):
    allowed: bool
    because: str


class DenialEntry(BaseModel):
    event: str
    client_id: str
    username: str
    host: str
    topic: str
    reason: str
    count: int
    first_ms: int
    last_ms: int


class DenialList(BaseModel):
    total: int = Field(description="Denials since the start, repeated ones included.")
    denials: list[DenialEntry]


class ClientWill(BaseModel):
    topic: str
    qos: int
    retain: bool
    size: int
    delay_s: int


class Client(BaseModel):
    client_id: str
    user: str
    connected: bool
    address: str
    node: str
    protocol: str
    connected_at_ms: int | None
    created_at_ms: int
    keep_alive_s: int
    expiry_s: int | None = Field(description="How long the session outlives its connection; null: for ever.")
    expires_at_ms: int | None
    certificate: bool
    subscriptions: int
    inflight: int
    inflight_most: int
    queued: int
    queued_bytes: int
    received: int
    sent: int
    will: ClientWill | None


class ClientPage(BaseModel):
    count: int
    clients: list[Client]


class ClusterLog(BaseModel):
    """The log that the nodes share. `lagging` are its servers that are behind or gone, with the messages they lack."""

    leader: str
    first: int
    last: int
    lagging: dict[str, int]
    unacknowledged: int = Field(description="Messages that this node has sent and that have not come back.")
    waiting_bytes: int
    sent_again: int
    passed_over: int


class ClusterNode(BaseModel):
    """A node. What it says of itself is there while it is heard; `agrees` is null where its hash cannot be compared."""

    name: str
    up: bool
    heard: bool
    epoch: int
    address: str
    version: str
    ready: bool | None = None
    detail: str | None = None
    position: int | None = None
    lag: int | None = None
    hash: str | None = None
    offset: int | None = None
    clients: int | None = None
    agrees: bool | None = None


class ClusterStatus(BaseModel):
    """A broker that stands alone says so by `alone` and has no nodes."""

    alone: bool
    name: str
    node: str
    ready: bool
    state: str
    detail: str
    log: ClusterLog | None
    position: int
    lag: int
    hash: str
    offset: int
    clock_difference_ms: int
    live_lost: int
    nodes: list[ClusterNode]


class NodeDrained(BaseModel):
    node: str
    drained: bool


class NodeRemoved(BaseModel):
    node: str
    removed: bool


class Verified(BaseModel):
    """The hash of the state of each node that is up, at one position of the log; empty where none came in time."""

    equal: bool
    hashes: dict[str, str]
    missing: list[str]


class Meta(BaseModel):
    page: int
    limit: int
    count: int
    hasnext: bool


class EmqxMessage(BaseModel):
    msgid: str
    topic: str
    qos: int
    publish_at: str
    from_clientid: str
    from_username: str


class EmqxWhole(EmqxMessage):
    payload: str


class EmqxMessages(BaseModel):
    data: list[EmqxMessage]
    meta: Meta


class Bridge(BaseModel):
    name: str
    origin: str = Field(description="`configuration`, or `api` for one that was made while the broker ran.")
    state: str = Field(description="`connected`, `connecting`, `resting` (lazy), `ended` (once) or `failed`.")
    since_ms: int
    address: str
    error: str = Field(description="Why it is not connected, or what was refused; empty when all is well.")
    in_sync: bool = Field(description="Whether the retained sets agree, as far as the bridge goes.")
    holdfast: bool = Field(description="Whether the other broker is a Holdfast.")
    waiting: int = Field(description="Messages that wait for the other side.")
    waiting_bytes: int
    connects: int
    sent: int
    received: int
    dropped: int = Field(description="QoS 0 messages that came while the link was down.")
    looped: int = Field(description="Messages that had been here, or there, before.")
    refused: int
    cleared: int = Field(description="Retained messages that were gone on one side and were cleared on the other.")
    conflicts: int = Field(description="Topics that were changed on both sides, where this side's value stayed.")
    remembered: int
    not_remembered: int
    topics: list[str]


class Bridges(BaseModel):
    bridges: list[Bridge]


class BridgeTold(BaseModel):
    bridge: dict[str, object]


class BridgeEnded(BaseModel):
    name: str
    ended: bool


class BridgeAddress(BaseModel):
    address: str
    connected: bool
    error: str
    refused: list[str] = Field(description="Filters that may not be subscribed to there.")


class BridgeTested(BaseModel):
    addresses: list[BridgeAddress]


class EmqxClient(BaseModel):
    clientid: str
    username: str | None
    ip_address: str
    port: int
    connected: bool
    connected_at: str | None
    created_at: str
    proto_name: str
    proto_ver: int
    keepalive: int
    clean_start: bool
    expiry_interval: int
    subscriptions_cnt: int
    inflight_cnt: int
    inflight_max: int
    mqueue_len: int
    awaiting_rel_cnt: int
    node: str


class EmqxClients(BaseModel):
    data: list[EmqxClient]
    meta: Meta


class EmqxSubscription(BaseModel):
    clientid: str
    topic: str
    qos: int
    nl: int
    rap: int
    rh: int
    node: str


class EmqxSubscriptions(BaseModel):
    data: list[EmqxSubscription]
    meta: Meta


class EmqxNode(BaseModel):
    node: str
    node_status: str
    role: str
    edition: str
    version: str
    uptime: int | None = Field(None, description="Milliseconds; not known of other nodes of a cluster.")
    connections: int | None = Field(None, description="Absent clients included; of the node that is asked.")
    live_connections: int
    load1: float | None = None
    load5: float | None = None
    load15: float | None = None


class EmqxStats(RootModel[dict[str, int | str]]):
    """Numbers under EMQX's names, such as `connections.count`, and `node` unless they are aggregated."""


class EmqxMetrics(RootModel[dict[str, int | str]]):
    """Counters under EMQX's names, such as `messages.received`, and `node` unless they are aggregated."""


class EmqxBan(BaseModel):
    kind: str = Field(alias="as")
    who: str
    by: str
    reason: str
    at: str
    until: str = Field(description="`infinity` where there is no end; empty where the broker knows it.")


class EmqxBans(BaseModel):
    data: list[EmqxBan]
    meta: Meta


class EmqxPublished(BaseModel):
    id: str | None = None
    message: str | None = None
    reason_code: int | None = None


class Token(BaseModel):
    token: str
    version: str
