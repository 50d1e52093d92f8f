"""`$SYS`: what the broker says about itself, under mosquitto's names, retained and only when it changed."""

from typing import TYPE_CHECKING, Final, final

from holdfast.broker.effects import Effects
from holdfast.broker.message import OUTCOMES, REFUSED_SIZE, Publisher
from holdfast.broker.publishing import publish_as

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

SYSTEM: Final = Publisher("", "", "system")
MINUTES: Final = [1, 5, 15]


@final
class SystemTopics:
    def __init__(self, version: str, started_at_ms: int) -> None:
        self.version: Final = version
        self.started_at_ms: Final = started_at_ms
        self.last: dict[str, str] = {}
        self.previous: dict[str, int] = {}
        self.rates: dict[str, float] = {}
        self.published_at_ms = started_at_ms

    def publish(self, broker: "Broker", now_ms: int, more: dict[str, str]) -> Effects:
        """Publish what has changed since the last time; `more` is what others have to say, by topic."""
        broker.begin(now_ms)
        values = self.values(broker)
        values.update(self.loads(broker))
        values.update(more)
        for topic, value in values.items():
            if self.last.get(topic) != value:
                self.last[topic] = value
                publish_as(broker, SYSTEM, f"$SYS/broker/{topic}".encode(), value.encode(), 0, True)
        self.published_at_ms = broker.now_ms
        return broker.finish()

    def values(self, broker: "Broker") -> dict[str, str]:
        counters = broker.counters
        retained = broker.retained
        sessions = len(broker.sessions)
        queued = 0
        absent = 0
        for session in broker.sessions.values():
            queued += len(session.queue)
            if not session.attached:
                absent += 1
        refused = 0
        values: dict[str, str] = {}
        for outcome in range(REFUSED_SIZE, len(OUTCOMES)):
            refused += retained.refused[outcome]
            values[f"retained messages/{OUTCOMES[outcome].replace('_', ' ')}"] = str(retained.refused[outcome])
        dropped = counters.dropped()
        values.update(
            {
                "version": f"holdfast version {self.version}",
                "uptime": f"{(broker.now_ms - self.started_at_ms) // 1000} seconds",
                "clients/total": str(sessions),
                "clients/connected": str(counters.connected_now),
                "clients/active": str(counters.connected_now),
                "clients/disconnected": str(absent),
                "clients/inactive": str(absent),
                "clients/maximum": str(counters.connected_most),
                "clients/expired": str(counters.sessions_expired),
                "messages/received": str(counters.packets_received),
                "messages/sent": str(sum(counters.messages_sent)),
                "messages/stored": str(queued + retained.count),
                "store/messages/count": str(queued + retained.count),
                "store/messages/bytes": str(retained.size),
                "publish/messages/received": str(sum(counters.messages_received)),
                "publish/messages/sent": str(sum(counters.messages_sent)),
                "publish/messages/dropped": str(dropped),
                "publish/messages/dropped/slow": str(counters.dropped_slow),
                "publish/messages/dropped/queue full": str(counters.dropped_queue_full),
                "publish/messages/dropped/expired": str(counters.dropped_expired),
                "publish/messages/dropped/too large": str(counters.dropped_too_large),
                "publish/messages/dropped/no member": str(counters.dropped_no_member),
                "publish/messages/dropped/not allowed": str(counters.dropped_not_allowed),
                "bytes/received": str(counters.bytes_received),
                "bytes/sent": str(counters.bytes_sent),
                "publish/bytes/received": str(counters.payload_received),
                "publish/bytes/sent": str(counters.payload_sent),
                "subscriptions/count": str(broker.subscriptions.count),
                "shared_subscriptions/count": str(broker.subscriptions.shared),
                "retained messages/count": str(retained.live_count(broker.now_ms)),
                "retained messages/bytes": str(retained.size),
                "retained messages/sets": str(retained.sets),
                "retained messages/deletes": str(retained.deletes),
                "retained messages/expired": str(retained.expired),
                "retained messages/refused": str(refused),
                "retained messages/version": str(retained.version),
            }
        )
        return values

    def loads(self, broker: "Broker") -> dict[str, str]:
        """Return rates a minute, averaged over 1, 5 and 15 minutes, by topic."""
        elapsed_s = (broker.now_ms - self.published_at_ms) / 1000
        if elapsed_s <= 0:
            return {}
        counters = broker.counters
        totals = {
            "messages/received": counters.packets_received,
            "messages/sent": sum(counters.messages_sent),
            "publish/received": sum(counters.messages_received),
            "publish/sent": sum(counters.messages_sent),
            "publish/dropped": counters.dropped(),
            "sockets": counters.connections_opened,
            "bytes/received": counters.bytes_received,
            "bytes/sent": counters.bytes_sent,
            "connections": counters.connections_opened,
        }
        loads: dict[str, str] = {}
        for name, total in totals.items():
            rate = (total - self.previous.get(name, 0)) * 60 / elapsed_s
            self.previous[name] = total
            for minutes in MINUTES:
                key = f"load/{name}/{minutes}min"
                weight = 0.5 ** (elapsed_s / (minutes * 30.0))
                self.rates[key] = rate + weight * (self.rates.get(key, 0.0) - rate)
                loads[key] = f"{self.rates[key]:.2f}"
        return loads
