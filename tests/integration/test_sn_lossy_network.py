"""A network that loses, doubles and delays a fifth of everything, both ways: QoS 1 and 2 hold all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from broker_process import BrokerProcess
from lossy_network import LossyNetwork
from sn_client import SnClient

QUICK = {"sn__retry_interval": "150ms", "sn__response_timeout": "100ms", "sn__backoff": "50ms", "sn__retries": 100}
COUNT = 15


@pytest.fixture
def behind(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """The broker at the far end of the network."""
    return start_broker(listen=("tcp://127.0.0.1:0", "udp://127.0.0.1:0"), retainer__storage_type="ram", **QUICK)


@pytest.fixture
def network(behind: BrokerProcess) -> Iterator[LossyNetwork]:
    running = LossyNetwork(behind.ports["udp"], delay_s=0.03)
    yield running
    running.stop()
    assert min(running.lost, running.doubled, running.delayed) > running.count / 10, "the network was not bad enough"


@pytest.mark.parametrize("version", [1, 2], ids=["1.2", "2.0"])
@pytest.mark.parametrize("qos", [1, 2])
def test_every_message_arrives_through_a_bad_network(network: LossyNetwork, version: int, qos: int) -> None:
    """At QoS 1 at least once, at QoS 2 exactly once, and in order of first arrival."""
    reader = SnClient(network.port, version, "reader")
    writer = SnClient(network.port, version, "writer")
    with reader, writer:
        reader.connect()
        writer.connect()
        reader.subscribe("a/b", qos)
        sent = [str(number).encode() for number in range(COUNT)]
        for payload in sent:
            writer.publish("a/b", payload, qos)
            reader.poll(0.01)
        reader.wait_for_payloads(set(sent))
        got = [payload for _, payload, _, _ in reader.messages]
        assert {topic for topic, _, _, _ in reader.messages} == {"a/b"}
        if qos == 2:
            assert got == sent
        else:
            assert list(dict.fromkeys(got)) == sent


@pytest.mark.parametrize("version", [1, 2], ids=["1.2", "2.0"])
def test_a_snapshot_arrives_whole_through_a_bad_network(
    behind: BrokerProcess, network: LossyNetwork, version: int
) -> None:
    """One SUBSCRIBE, however often it is resent, is one snapshot: at QoS 2 each message comes exactly once."""
    with behind.client() as mqtt:
        mqtt.connect("mqtt")
        for number in range(20):
            mqtt.publish(f"set/{number:02}", b"on", qos=2, retain=True)
    with SnClient(network.port, version, "reader") as reader:
        reader.connect()
        reader.subscribe("set/#", 2)
        reader.wait_for(20)
        reader.poll(0.5)
        assert sorted(reader.messages) == [(f"set/{number:02}", b"on", 2, True) for number in range(20)]
