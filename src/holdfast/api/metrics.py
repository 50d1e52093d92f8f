"""`/metrics`: the broker's numbers in Prometheus' words, read when they are asked for and never before."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.api.metrics_history import LAG_BOUNDS, MetricsHistory
from holdfast.api.problem import API_LOGIN_FAILED, API_REQUEST_DENIED
from holdfast.api.status import ServerStatus
from holdfast.broker.message import OUTCOMES, REFUSED_SIZE
from holdfast.protocol.mqtt.packets import PROTOCOL_NAMES

BRIDGE_METRICS: tuple[tuple[str, str, str, type[GaugeMetricFamily] | type[CounterMetricFamily]], ...] = (
    ("holdfast_bridge_up", "Whether a bridge is connected.", "up", GaugeMetricFamily),
    ("holdfast_bridge_in_sync", "Whether the retained sets agree.", "in_sync", GaugeMetricFamily),
    ("holdfast_bridge_waiting_messages", "Messages that wait for the other side.", "waiting", GaugeMetricFamily),
    ("holdfast_bridge_waiting_bytes", "Their bytes.", "waiting_bytes", GaugeMetricFamily),
    ("holdfast_bridge_remembered_topics", "Topics whose last state is remembered.", "remembered", GaugeMetricFamily),
    ("holdfast_bridge_connects", "Connections that were made.", "connects", CounterMetricFamily),
    ("holdfast_bridge_messages_sent", "Messages sent to the other broker.", "sent", CounterMetricFamily),
    ("holdfast_bridge_messages_received", "Messages taken from it.", "received", CounterMetricFamily),
    ("holdfast_bridge_messages_dropped", "QoS 0 messages while the link was down.", "dropped", CounterMetricFamily),
    ("holdfast_bridge_messages_looped", "Messages that had passed before.", "looped", CounterMetricFamily),
    ("holdfast_bridge_messages_refused", "Messages that one side refused.", "refused", CounterMetricFamily),
    ("holdfast_bridge_cleared", "Retained messages that were gone, and were cleared.", "cleared", CounterMetricFamily),
    ("holdfast_bridge_conflicts", "Topics changed on both sides.", "conflicts", CounterMetricFamily),
    ("holdfast_bridge_not_remembered", "Sends beyond the bound of `remember`.", "not_remembered", CounterMetricFamily),
)


class BrokerCollector(Collector):
    def __init__(self, status: ServerStatus, history: MetricsHistory) -> None:
        self.status = status
        self.history = history

    def collect(self) -> Iterator[Metric]:
        yield from self.clients()
        yield from self.traffic()
        yield from self.retained()
        yield from self.disk()
        yield from self.cluster()
        yield from self.bridges()
        yield from self.loop()

    def clients(self) -> Iterator[Metric]:
        broker = self.status.broker
        counters = broker.counters
        by_protocol: Counter[str] = Counter()
        queued = inflight = queued_bytes = 0
        deepest = 0
        for session in broker.sessions.values():
            if session.connection is not None:
                by_protocol[session.protocol] += 1
            queued += len(session.queue)
            deepest = max(deepest, len(session.queue))
            queued_bytes += session.queued_bytes
            inflight += len(session.inflight)
        connections = GaugeMetricFamily("holdfast_connections", "Clients connected now.", labels=["protocol"])
        for protocol in sorted(set(PROTOCOL_NAMES.values()) | set(by_protocol)):
            connections.add_metric([protocol], by_protocol[protocol])
        yield connections
        yield counter("holdfast_connections_opened", "Network connections opened.", counters.connections_opened)
        yield counter("holdfast_connects_accepted", "CONNECT packets accepted.", counters.connects_accepted)
        yield counter("holdfast_connects_refused", "CONNECT packets refused.", counters.connects_refused)
        yield counter("holdfast_logins_failed", "Of these, for want of a login or right.", counters.logins_failed)
        denied = self.status.denials.counted
        yield counter("holdfast_api_logins_failed", "Logins of the API that failed.", denied[API_LOGIN_FAILED])
        yield counter("holdfast_api_requests_denied", "Requests without the right.", denied[API_REQUEST_DENIED])
        yield counter("holdfast_disconnects", "Connections of clients that have ended.", counters.disconnects)
        yield counter("holdfast_sessions_taken_over", "Sessions taken over.", counters.sessions_taken_over)
        yield counter("holdfast_sessions_expired", "Sessions expired.", counters.sessions_expired)
        yield counter("holdfast_protocol_errors", "Clients that broke the protocol.", counters.protocol_errors)
        yield counter(
            "holdfast_clients_sent_away", "Clients that did not read their answers.", counters.clients_sent_away
        )
        yield gauge("holdfast_sessions", "Sessions, of connected and absent clients.", len(broker.sessions))
        yield gauge("holdfast_subscriptions", "Subscriptions.", broker.subscriptions.count)
        yield gauge("holdfast_queued_messages", "Messages waiting in queues of sessions.", queued)
        yield gauge("holdfast_queued_bytes", "Bytes waiting in queues of sessions.", queued_bytes)
        yield gauge("holdfast_queue_deepest", "Messages in the longest queue.", deepest)
        yield gauge("holdfast_inflight_messages", "Messages sent and not acknowledged.", inflight)

    def traffic(self) -> Iterator[Metric]:
        counters = self.status.broker.counters
        received = CounterMetricFamily("holdfast_messages_received", "Publishes received.", labels=["qos"])
        sent = CounterMetricFamily("holdfast_messages_sent", "Publishes sent.", labels=["qos"])
        for qos in range(3):
            received.add_metric([str(qos)], counters.messages_received[qos])
            sent.add_metric([str(qos)], counters.messages_sent[qos])
        yield received
        yield sent
        yield by_protocol("holdfast_protocol_messages_received", "Publishes received.", counters.received_by_version)
        yield by_protocol("holdfast_protocol_messages_sent", "Publishes sent.", counters.sent_by_version)
        yield by_protocol("holdfast_protocol_bytes_received", "Bytes received.", counters.bytes_received_by_version)
        yield by_protocol("holdfast_protocol_bytes_sent", "Bytes sent.", counters.bytes_sent_by_version)
        yield counter("holdfast_packets_received", "Packets received.", counters.packets_received)
        yield counter("holdfast_bytes_received", "Bytes received from clients.", counters.bytes_received)
        yield counter("holdfast_bytes_sent", "Bytes sent to clients.", counters.bytes_sent)
        yield counter("holdfast_payload_bytes_received", "Payload bytes received.", counters.payload_received)
        yield counter("holdfast_payload_bytes_sent", "Payload bytes sent.", counters.payload_sent)
        yield counter("holdfast_datagrams_dropped", "Datagrams of MQTT-SN dropped.", counters.datagrams_dropped)
        yield counter("holdfast_wills_published", "Wills published.", counters.wills_published)
        yield counter("holdfast_publishes_refused", "Publishes refused for rights or disk.", counters.publishes_refused)
        yield counter("holdfast_publishes_denied", "Of these, for want of a right.", counters.publishes_denied)
        yield counter("holdfast_subscribes_denied", "Subscriptions denied.", counters.subscribes_denied)
        dropped = CounterMetricFamily("holdfast_messages_dropped", "Deliveries dropped.", labels=["reason"])
        dropped.add_metric(["slow"], counters.dropped_slow)
        dropped.add_metric(["queue_full"], counters.dropped_queue_full)
        dropped.add_metric(["expired"], counters.dropped_expired)
        dropped.add_metric(["too_large"], counters.dropped_too_large)
        dropped.add_metric(["no_member"], counters.dropped_no_member)
        dropped.add_metric(["not_allowed"], counters.dropped_not_allowed)
        yield dropped

    def retained(self) -> Iterator[Metric]:
        broker = self.status.broker
        retained = broker.retained
        count = retained.live_count(self.status.now_ms())
        yield gauge("holdfast_retained_messages", "Retained messages.", count)
        yield gauge("emqx_retained_count", "The same as holdfast_retained_messages, by EMQX's name.", count)
        yield gauge("holdfast_retained_bytes", "Topic, payload and property bytes retained.", retained.size)
        yield gauge("holdfast_retained_version", "Offset of the last change of the retained set.", retained.version)
        yield counter("holdfast_retained_sets", "Retained messages set.", retained.sets)
        yield counter("holdfast_retained_deletes", "Retained messages deleted.", retained.deletes)
        yield counter("holdfast_retained_expired", "Retained messages expired.", retained.expired)
        refused = CounterMetricFamily("holdfast_retained_refused", "Publishes not retained.", labels=["reason"])
        for outcome in range(REFUSED_SIZE, len(OUTCOMES)):
            refused.add_metric([OUTCOMES[outcome].removeprefix("refused_")], retained.refused[outcome])
        yield refused
        counters = broker.counters
        yield gauge("holdfast_snapshots", "Snapshots in progress.", counters.snapshots_begun - counters.snapshots_ended)
        yield counter("holdfast_snapshots_begun", "Snapshots begun.", counters.snapshots_begun)
        yield counter("holdfast_snapshot_messages", "Messages of snapshots that ended.", counters.snapshot_messages)

    def disk(self) -> Iterator[Metric]:
        status = self.status
        yield gauge(
            "holdfast_offset",
            "Offset of the log's last entry, publishes and changes of sessions.",
            status.broker.log.position,
        )
        yield gauge("holdfast_history_lag_offsets", "Offsets the history is behind.", status.history_lag())
        yield gauge("holdfast_history_lag_seconds", "Time the history is behind.", self.history.lag_s)
        yield gauge(
            "holdfast_history_paused",
            "Whether the history waits for free space (history.reserve).",
            int("history" in status.paused),
        )
        yield gauge(
            "holdfast_history_failing",
            "Whether the history cannot be written: its disk or object store is away or refuses.",
            int("history" in status.problems),
        )
        yield gauge("holdfast_state_lag_offsets", "Offsets the state on disk is behind.", status.state_lag())
        journal = status.journal
        if journal is None:
            return
        yield gauge("holdfast_journal_healthy", "Whether the journal can be written.", int(journal.healthy))
        yield gauge("holdfast_journal_backlog_bytes", "Bytes waiting for the journal.", journal.backlog)
        yield gauge("holdfast_journal_durable_offset", "Offset up to which the journal is durable.", journal.durable)
        times = journal.sync_times
        yield counter("holdfast_journal_commits", "Times the journal was synced.", sum(times.counts))
        yield histogram(
            "holdfast_journal_sync_seconds", "Time of a sync of the journal.", times.bounds, times.counts, times.total_s
        )

    def cluster(self) -> Iterator[Metric]:
        if self.status.cluster is None:
            return
        told = self.status.cluster.status()
        log = told["log"]
        up = sum(node["up"] and node["heard"] for node in told["nodes"])
        yield gauge("holdfast_cluster_ready", "Whether this node serves clients.", int(told["ready"]))
        yield gauge(
            "holdfast_cluster_position", "The last message of the log that this node applied.", told["position"]
        )
        yield gauge("holdfast_cluster_lag", "Messages of the log that this node has yet to apply.", told["lag"])
        yield gauge(
            "holdfast_cluster_unacknowledged",
            "Messages that this node has sent to the log and that have not come back.",
            log["unacknowledged"],
        )
        yield gauge("holdfast_cluster_nodes", "Nodes that the cluster knows.", len(told["nodes"]))
        yield gauge("holdfast_cluster_nodes_up", "Nodes that are members now and are heard.", up)
        yield gauge("holdfast_cluster_waiting_bytes", "Bytes that wait to be in the log.", log["waiting_bytes"])
        yield gauge("holdfast_cluster_log_servers_lagging", "Log servers that are behind or gone.", len(log["lagging"]))
        yield counter(
            "holdfast_cluster_passed_over",
            "Messages of the log that counted for nothing: repeats, and what a node sent that had been declared down.",
            log["passed_over"],
        )
        yield counter("holdfast_cluster_sent_again", "Messages that were sent to the log again.", log["sent_again"])
        yield counter(
            "holdfast_cluster_live_lost", "Messages between nodes at QoS 0 that did not arrive here.", told["live_lost"]
        )

    def bridges(self) -> Iterator[Metric]:
        """Nothing where there are no bridges: a broker without any has no use for their names."""
        told = self.status.bridges.status() if self.status.bridges is not None else []
        for name, text, field, kind in BRIDGE_METRICS if told else ():
            family = kind(name, text, labels=["bridge"])
            for one in told:
                family.add_metric([one["name"]], one["state"] == "connected" if field == "up" else one[field])
            yield family

    def loop(self) -> Iterator[Metric]:
        lag = self.history.loop_lag
        yield histogram(
            "holdfast_event_loop_delay_seconds",
            "How late the event loop runs its timers.",
            LAG_BOUNDS,
            lag.counts,
            lag.total_s,
        )
        yield gauge("holdfast_start_time_seconds", "When the broker started.", self.status.started_at_ms / 1000)
        info = GaugeMetricFamily("holdfast_info", "The version that runs.", labels=["version"])
        info.add_metric([self.status.version], 1)
        yield info


def by_protocol(name: str, text: str, values: list[int]) -> Metric:
    family = CounterMetricFamily(name, f"{text[:-1]}, by protocol version.", labels=["protocol"])
    for version, protocol in PROTOCOL_NAMES.items():
        family.add_metric([protocol], values[version])
    return family


def counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def histogram(name: str, text: str, bounds: tuple[float, ...], counts: list[int], total: float) -> Metric:
    """`counts` are of each bucket alone, one more than there are bounds."""
    buckets: list[tuple[str, float]] = []
    so_far = 0
    for bound, count in zip([*map(str, bounds), "+Inf"], list(counts), strict=True):
        so_far += count
        buckets.append((bound, so_far))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=total)


class Metrics:
    def __init__(self, status: ServerStatus, history: MetricsHistory) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(BrokerCollector(status, history))

    def text(self) -> bytes:
        return generate_latest(self.registry)
