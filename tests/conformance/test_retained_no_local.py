"""Matrix section O: No Local and a client's own retained messages."""

import pytest

from stage import BOTH, ONLY_5, OURS, Copy, Stage, Will

pytestmark = pytest.mark.told_clock

ONE = Copy("a", "1", retain=True)


@ONLY_5
@pytest.mark.matrix("O1")
@pytest.mark.clause("5.0", "MQTT-3.8.3-3")
def test_no_local_sends_no_live_copy_back_but_keeps_the_message(stage: Stage, version: int) -> None:
    client = stage.client(version)
    client.subscribe("a", nl=True)
    client.publish("a", "1", retain=True)
    client.receives()
    assert stage.stored(version) == {"a": b"1"}


@ONLY_5
@OURS
@pytest.mark.matrix("O2")
@pytest.mark.clause("5.0", "MQTT-3.8.3-3")
def test_no_local_leaves_the_clients_own_messages_out_of_its_snapshot(stage: Stage, version: int) -> None:
    client, other = stage.client(version), stage.client(version)
    client.publish("a", "1", retain=True)
    other.publish("b", "2", retain=True)
    client.subscribe("#", nl=True)
    client.receives(Copy("b", "2", retain=True))
    other.subscribe("a", nl=True)
    other.receives(ONE)


@BOTH
@pytest.mark.matrix("O3")
@pytest.mark.clause("5.0", "MQTT-3.3.1-9")
def test_without_no_local_the_publisher_gets_its_own_message(stage: Stage, version: int) -> None:
    client = stage.client(version)
    client.publish("a", "1", retain=True)
    client.subscribe("a")
    client.receives(ONE)
    client.publish("a", "2", retain=True)
    client.receives(Copy("a", "2", retain=False))


@ONLY_5
@OURS
@pytest.mark.matrix("O4")
@pytest.mark.clause("5.0", "MQTT-3.8.3-3")
def test_no_local_goes_by_client_id_also_after_a_reconnect(stage: Stage, version: int) -> None:
    client = stage.client(version, "p")
    client.publish("a", "1", retain=True)
    client.disconnect()
    client = stage.client(version, "p", clean=True)
    client.subscribe("a", nl=True)
    client.receives()


@ONLY_5
@OURS
@pytest.mark.matrix("O2", "O4")
def test_no_local_sends_the_topic_again_once_someone_else_has_written_it(stage: Stage, version: int) -> None:
    client, other = stage.client(version), stage.client(version)
    client.publish("a", "mine", retain=True)
    other.publish("a", "1", retain=True)
    client.subscribe("a", nl=True)
    client.receives(ONE)


@ONLY_5
@OURS
@pytest.mark.matrix("O5")
def test_will_counts_as_published_by_its_client(stage: Stage, version: int) -> None:
    watcher = stage.client(version)
    watcher.subscribe("w", nl=True)
    stage.client(version, "p", will=Will("w", b"dead", retain=True)).cut()
    watcher.receives(Copy("w", "dead"))
    client = stage.client(version, "p")
    client.subscribe("w", nl=True)
    client.receives()
    watcher.subscribe("w", nl=True)
    watcher.receives(Copy("w", "dead", retain=True))
