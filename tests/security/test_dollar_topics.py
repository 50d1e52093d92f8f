"""`$SYS` and `$holdfast` belong to the broker; wildcards and shared subscriptions are no way in or around."""

from collections.abc import Callable

import pytest

import wire
from broker_process import BrokerProcess, Unique
from guarded import Guarded
from wire import PubAck, Publish, WireClient

RESERVED = ["$SYS", "$SYS/broker/version", "$SYS/x", "$holdfast", "$holdfast/snapshot/end", "$holdfast/x/y"]

pytestmark = pytest.mark.usefixtures("holdfast_only")


@pytest.mark.parametrize("topic", RESERVED)
@pytest.mark.parametrize("retain", [False, True])
def test_nobody_publishes_to_the_topics_of_the_broker(broker: BrokerProcess, topic: str, retain: bool) -> None:
    with WireClient(broker.port, 5) as client, WireClient(broker.port, 5) as watcher:
        watcher.connect("w")
        before = retained_on(watcher, topic)
        # What the comparison below is worth: where the broker keeps something, it is seen.
        assert len(before) == (topic == "$SYS/broker/version")
        client.connect("c")
        for qos in (1, 2):
            client.send(wire.publish(topic, b"forged", qos=qos, packet_id=5, retain=retain, version=5))
            assert client.expect(PubAck if qos == 1 else wire.PubRec, packet_id=5).reason == 0x87
        client.send(wire.publish(topic, b"forged", retain=retain, version=5))
        client.send(wire.publish(topic, b"", retain=True, version=5))
        client.ping()
        assert not any(b"forged" in packet.raw for packet in watcher.barrier())
        assert retained_on(watcher, topic) == before


def retained_on(client: WireClient, topic: str) -> set[tuple[str, bytes]]:
    """What a new subscription is sent."""
    client.subscribe(topic)
    return {(p.topic, p.payload) for p in client.barrier() if isinstance(p, Publish) and p.retain}


@pytest.mark.parametrize("topic_filter", ["#", "+/#", "+/broker/#", "$share/g/#", "$share/g/+/broker/#"])
def test_a_wildcard_does_not_reach_the_topics_of_the_broker(
    start_broker: Callable[..., BrokerProcess], topic_filter: str
) -> None:
    broker = start_broker(sys__interval="100ms", history__enable=False)
    client = broker.client(5)
    client.connect("c")
    client.subscribe("$SYS/broker/uptime")
    client.expect(Publish, topic="$SYS/broker/uptime")
    other = broker.client(5)
    other.connect("d")
    other.subscribe(topic_filter)
    client.expect(Publish, topic="$SYS/broker/uptime")
    other.expect_no_message()


def test_rights_to_everything_are_no_rights_to_the_broker(guarded: Callable[..., Guarded]) -> None:
    site = guarded(
        "user owner\ntopic readwrite #\nuser guest\ntopic read $SYS/broker/version\n", "[sys]\ninterval = 1\n"
    )
    everything, named = site.enter("owner"), site.enter("guest")
    everything.subscribe("$SYS/#", "$share/g/$SYS/#")
    everything.expect_no_message()
    named.subscribe("$SYS/#")
    named.expect(Publish, topic="$SYS/broker/version")
    named.expect_no_message()


@pytest.mark.parametrize("topic", ["$other/x", "$", "$share/g/x", "$queue/x"])
def test_other_topics_with_a_dollar_reach_no_wildcard(broker: BrokerProcess, unique: Unique, topic: str) -> None:
    with WireClient(broker.port, 5) as spy, WireClient(broker.port, 5) as writer:
        spy.connect(unique.client("s"))
        spy.subscribe("#", "+/x", "+", "$share/g/#", "$share/g/+/x")
        spy.barrier()
        writer.connect(unique.client("w"))
        writer.publish(topic, b"hidden", qos=1, check=False)
        assert not any(isinstance(p, Publish) and p.payload == b"hidden" for p in spy.barrier())
