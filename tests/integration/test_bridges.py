"""Bridges to Debian's mosquitto and to another Holdfast, over links that are cut: what crosses, what is right then, and
what has been wrong in other brokers for years. Tests with a number are about the issue of mosquitto with that number.
"""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from broker_process import BrokerProcess, Unique, start_holdfast
from command_line import holdfast_process
from cut_link import CutLink
from holdfast.bridge.remote import LEFT_OUT_AFTER, SUSPECTED_AFTER
from holdfast.protocol.mqtt.packets import CONNECT
from http_api import LISTEN, Api, until
from mosquitto_files import PersistentMosquitto
from wire import P, Publish, WireClient

PATIENCE_S = 120.0

QUICK = {"retry": "100ms", "retry_max": "500ms", "quiet": "700ms"}

Make = Callable[..., "Bridge"]


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PersistentMosquitto]:
    running = PersistentMosquitto(tmp_path_factory.mktemp("mosquitto"), "allow_anonymous true", "max_queued_messages 0")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    running = start_holdfast(tmp_path_factory.mktemp("here"), {"history.enable": False}, listen=LISTEN)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    running = start_holdfast(tmp_path_factory.mktemp("there"), {"history.enable": False}, listen=LISTEN)
    yield running
    running.stop()


GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "metrics.md"


class Bridge:
    """A bridge of `here`, made through the API, over a link that can be cut."""

    def __init__(self, api: Api, link: CutLink, name: str, **told: Any) -> None:
        self.api = api
        self.link = link
        self.name = name
        self.told = {"name": name, "address": link.url, **QUICK, **told}
        api.ok("POST", "/api/v1/bridges", json=self.told)

    def status(self) -> dict[str, Any]:
        found = [one for one in self.api.ok("GET", "/api/v1/bridges")["bridges"] if one["name"] == self.name]
        return dict(found[0])

    def wait(self, enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        return dict(until(self.status, enough, PATIENCE_S))

    def in_sync(self) -> dict[str, Any]:
        return self.wait(lambda one: bool(one["in_sync"]))

    def cut(self) -> None:
        self.link.cut()
        self.wait(lambda one: one["state"] != "connected")

    def mend(self) -> None:
        self.link.mend()
        self.in_sync()

    def change(self, **told: Any) -> None:
        self.told |= told
        self.api.ok("POST", "/api/v1/bridges", params={"replace": True}, json=self.told)


@pytest.fixture
def make(here: BrokerProcess, unique: Unique) -> Iterator[Make]:
    made: list[Bridge] = []
    api = Api(here)

    def start(port: int, topic: list[str] | str, **told: Any) -> Bridge:
        name = f"{unique}-{len(made)}"
        made.append(Bridge(api, CutLink(port), name, topic=topic, **told))
        return made[-1]

    yield start
    for one in made:
        api.request("DELETE", "/api/v1/bridges", params={"name": one.name})
        one.link.stop()
    api.close()


def publish(port: int, topic: str, payload: str, qos: int = 1, retain: bool = True) -> None:
    with WireClient(port, 5) as client:
        client.connect(f"publisher-{time.monotonic_ns()}")
        client.publish(topic, payload.encode(), qos=qos, retain=retain)


def clear(port: int, topic: str) -> None:
    publish(port, topic, "")


def retained(port: int, prefix: str) -> dict[str, str]:
    """What a new subscriber is sent below a prefix."""
    with WireClient(port, 5) as client:
        client.connect(f"looking-{time.monotonic_ns()}")
        client.subscribe((f"{prefix}/#", 0))
        found: dict[str, str] = {}
        client.ping()
        deadline = time.monotonic() + 0.3
        while time.monotonic() < deadline:
            try:
                packet = client.recv(0.3)
            except (TimeoutError, AssertionError):
                break
            if isinstance(packet, Publish):
                found[packet.topic] = packet.payload.decode()
        return found


def becomes(port: int, prefix: str, expected: dict[str, str]) -> None:
    found = until(lambda: retained(port, prefix), lambda one: one == expected, PATIENCE_S)
    assert found == expected


class Listener:
    """A subscriber that keeps all it is sent."""

    opened: ClassVar[list[Listener]] = []

    def __init__(self, port: int, topic_filter: str, qos: int = 2) -> None:
        self.client = WireClient(port, 5)
        self.client.connect(f"listener-{time.monotonic_ns()}")
        self.client.subscribe(topic_filter, qos=qos, retain_as_published=True)
        self.found: list[tuple[str, str, bool]] = []
        self.opened.append(self)

    def all(self, quiet_s: float = 1.0) -> list[tuple[str, str, bool]]:
        """Everything that has come, until nothing does for a while, or there is no end to it."""
        while len(self.found) < 1000:
            try:
                packet = self.client.recv(quiet_s)
            except (TimeoutError, AssertionError):
                return self.found
            if isinstance(packet, Publish):
                self.client.ack(packet)
                self.found.append((packet.topic, packet.payload.decode(), packet.retain))
        return self.found

    def until(self, count: int) -> list[tuple[str, str, bool]]:
        return list(until(lambda: self.all(0.2), lambda found: len(found) >= count, PATIENCE_S))

    def close(self) -> None:
        self.client.cut()


@pytest.fixture(autouse=True)
def no_listener_is_left() -> Iterator[None]:
    yield
    while Listener.opened:
        Listener.opened.pop().close()


# What goes where.


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_topics_go_out_come_in_and_both_with_their_prefixes(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique, protocol: str
) -> None:
    u = str(unique)
    bridge = make(
        mosquitto.port,
        [f"out/# out 1 {u}/ {u}/from/", f"in/# in 1 {u}/ {u}/at/", f"{u}/both/# both 2"],
        protocol=protocol,
    )
    bridge.in_sync()
    publish(here.port, f"{u}/out/a", "1")
    publish(mosquitto.port, f"{u}/at/in/b", "2")
    publish(here.port, f"{u}/both/c", "3")
    publish(mosquitto.port, f"{u}/both/d", "4")
    expected = {f"{u}/both/c": "3", f"{u}/both/d": "4"}
    becomes(mosquitto.port, u, {f"{u}/from/out/a": "1", f"{u}/at/in/b": "2", **expected})
    becomes(here.port, u, {f"{u}/out/a": "1", f"{u}/in/b": "2", **expected})


def test_an_empty_pattern_maps_one_topic_to_another(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    make(mosquitto.port, f'"" out 1 {unique}/door {unique}/other/door').in_sync()
    publish(here.port, f"{unique}/door", "open")
    publish(here.port, f"{unique}/window", "open")
    becomes(mosquitto.port, str(unique), {f"{unique}/other/door": "open"})


def test_properties_and_expiry_cross_with_mqtt_5(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    make(mosquitto.port, [f"{unique}/a out 1", f"{unique}/b out 1 expiry=100"]).in_sync()
    given = [
        (P.PAYLOAD_FORMAT, 1),
        (P.CONTENT_TYPE, "text/plain"),
        (P.RESPONSE_TOPIC, "answers/1"),
        (P.CORRELATION_DATA, b"\x00\xff"),
        (P.USER_PROPERTY, ("unit", "°C")),
    ]
    with WireClient(here.port, 5) as client:
        client.connect("rich")
        client.publish(f"{unique}/a", b"1", qos=1, retain=True, properties=[*given, (P.MESSAGE_EXPIRY, 1000)])
        client.publish(f"{unique}/b", b"2", qos=1, retain=True, properties=[(P.MESSAGE_EXPIRY, 1000)])
    becomes(mosquitto.port, str(unique), {f"{unique}/a": "1", f"{unique}/b": "2"})
    with WireClient(mosquitto.port, 5) as client:
        client.connect("reader")
        client.subscribe((f"{unique}/#", 1))
        found = {message.topic: message.properties or [] for message in client.messages(2)}
    kept = [one for one in found[f"{unique}/a"] if one[0] != P.MESSAGE_EXPIRY and "holdfast-via" not in repr(one)]
    assert sorted(kept, key=repr) == sorted(given, key=repr)
    expiry = {topic: dict(properties)[P.MESSAGE_EXPIRY] for topic, properties in found.items()}
    assert 900 < expiry[f"{unique}/a"] <= 1000
    assert expiry[f"{unique}/b"] <= 100


# The bugs of others.


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_1040_a_clear_made_while_the_link_is_down_crosses_both_ways(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique, protocol: str
) -> None:
    u = str(unique)
    bridge = make(mosquitto.port, f"{u}/# both 1", protocol=protocol)
    bridge.in_sync()
    for topic in "abcd":
        publish(here.port, f"{u}/{topic}", topic)
    becomes(mosquitto.port, u, {f"{u}/{topic}": topic for topic in "abcd"})
    bridge.cut()
    clear(here.port, f"{u}/a")
    clear(mosquitto.port, f"{u}/b")
    publish(here.port, f"{u}/c", "changed here")
    publish(mosquitto.port, f"{u}/d", "changed there")
    bridge.mend()
    expected = {f"{u}/c": "changed here", f"{u}/d": "changed there"}
    becomes(mosquitto.port, u, expected)
    becomes(here.port, u, expected)


def test_1040_a_clear_crosses_that_nobody_had_queued(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    """At QoS 0 nothing waits for an absent bridge: what crosses is what was remembered."""
    u = str(unique)
    bridge = make(mosquitto.port, f"{u}/# out 0")
    bridge.in_sync()
    publish(here.port, f"{u}/a", "1", qos=0)
    publish(here.port, f"{u}/b", "2", qos=0)
    becomes(mosquitto.port, u, {f"{u}/a": "1", f"{u}/b": "2"})
    bridge.cut()
    clear(here.port, f"{u}/a")
    publish(here.port, f"{u}/c", "3", qos=0)
    bridge.mend()
    becomes(mosquitto.port, u, {f"{u}/b": "2", f"{u}/c": "3"})
    assert bridge.status()["cleared"] == 1


def test_1040_a_clear_crosses_though_the_other_broker_can_be_asked_only_later(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    """The link is there, but takes no second connection, over which the other broker is asked what it has."""
    u = str(unique)
    bridge = make(mosquitto.port, f"{u}/# both 0")
    bridge.in_sync()
    for topic in "ab":
        publish(mosquitto.port, f"{u}/{topic}", topic)
    becomes(here.port, u, {f"{u}/{topic}": topic for topic in "ab"})
    bridge.cut()
    clear(mosquitto.port, f"{u}/a")
    bridge.link.most = 1
    bridge.link.mend()
    told = bridge.wait(lambda one: one["state"] == "connected" and one["error"] != "")
    assert not told["in_sync"]
    bridge.link.most = None
    assert bridge.in_sync()["error"] == ""
    assert bridge.status()["connects"] == 2
    becomes(here.port, u, {f"{u}/b": "b"})


def test_1040_a_clear_on_the_other_broker_crosses_that_nobody_had_queued(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    u = str(unique)
    bridge = make(mosquitto.port, f"{u}/# in 0")
    bridge.in_sync()
    for topic in "abc":
        publish(mosquitto.port, f"{u}/{topic}", topic, qos=0)
    becomes(here.port, u, {f"{u}/{topic}": topic for topic in "abc"})
    bridge.cut()
    clear(mosquitto.port, f"{u}/b")
    bridge.mend()
    becomes(here.port, u, {f"{u}/a": "a", f"{u}/c": "c"})


def test_701_what_is_retained_already_is_sent_at_the_first_start(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    u = str(unique)
    publish(here.port, f"{u}/out/a", "1")
    publish(mosquitto.port, f"{u}/in/b", "2")
    make(mosquitto.port, [f"{u}/out/# out 1", f"{u}/in/# in 1"]).in_sync()
    expected = {f"{u}/out/a": "1", f"{u}/in/b": "2"}
    becomes(mosquitto.port, u, expected)
    becomes(here.port, u, expected)


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_2300_live_messages_keep_retain(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique, protocol: str
) -> None:
    """MQTT 3.1.1 takes RETAIN away from live messages, unless the broker knows that it speaks to a bridge."""
    u = str(unique)
    make(mosquitto.port, f"{u}/# both 1", protocol=protocol).in_sync()
    for port, name in ((here.port, "here"), (mosquitto.port, "there")):
        publish(port, f"{u}/{name}/kept", "1", retain=True)
        publish(port, f"{u}/{name}/passing", "1", retain=False)
    expected = {f"{u}/here/kept": "1", f"{u}/there/kept": "1"}
    becomes(mosquitto.port, u, expected)
    becomes(here.port, u, expected)


@pytest.mark.parametrize(("protocol", "private"), [("5", True), ("3.1.1", True), ("3.1.1", False)])
def test_1263_and_3002_nothing_that_goes_both_ways_echoes(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique, protocol: str, private: bool
) -> None:
    u = str(unique)
    make(mosquitto.port, f"{u}/# both 1", protocol=protocol, private=private).in_sync()
    listeners = [Listener(here.port, f"{u}/#"), Listener(mosquitto.port, f"{u}/#")]
    for number in range(20):
        publish(here.port, f"{u}/h", str(number % 3), retain=number % 2 == 0)
        publish(mosquitto.port, f"{u}/m", str(number % 3), retain=number % 2 == 0)
    for listener in listeners:
        found = listener.until(40)
        assert len(listener.all()) == 40, found
        assert [payload for topic, payload, _ in found if topic == f"{u}/h"] == [str(n % 3) for n in range(20)]


def test_1263_two_brokers_that_bridge_to_each_other_make_no_storm(
    make: Make, here: BrokerProcess, there: BrokerProcess, unique: Unique
) -> None:
    u = str(unique)
    make(there.port, f"{u}/# both 1").in_sync()
    with Api(there) as other:
        link = CutLink(here.port)
        back = Bridge(other, link, f"back-{u}", topic=f"{u}/# both 1")
        back.in_sync()
        listeners = [Listener(here.port, f"{u}/#"), Listener(there.port, f"{u}/#")]
        for number in range(5):
            publish(here.port, f"{u}/h", str(number), retain=False)
            publish(there.port, f"{u}/t", str(number), retain=True)
        for listener in listeners:
            listener.until(10)
            # Two ways lead to the same broker: each message may come over both, and never a third time.
            assert len(listener.all()) <= 20
        other.ok("DELETE", "/api/v1/bridges", params={"name": back.name})
        link.stop()


def test_2248_nothing_is_sent_again_when_the_link_comes_back(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    u = str(unique)
    for number in range(30):
        publish(here.port, f"{u}/h/{number}", "1")
        publish(mosquitto.port, f"{u}/m/{number}", "1")
    bridge = make(mosquitto.port, f"{u}/# both 1")
    bridge.in_sync()
    becomes(here.port, u, {f"{u}/{side}/{number}": "1" for number in range(30) for side in "hm"})
    before = bridge.status()
    here_now = Listener(here.port, f"{u}/#")
    there_now = Listener(mosquitto.port, f"{u}/#")
    assert len(here_now.until(60)) == len(there_now.until(60)) == 60
    for _ in range(3):
        bridge.cut()
        bridge.mend()
    publish(here.port, f"{u}/h/0", "2")
    assert here_now.until(61)[60:] == [(f"{u}/h/0", "2", True)]
    assert there_now.until(61)[60:] == [(f"{u}/h/0", "2", True)]
    assert len(here_now.all()) == len(there_now.all()) == 61
    after = bridge.wait(lambda one: one["sent"] > before["sent"])
    assert (after["sent"], after["received"]) == (before["sent"] + 1, before["received"])


def test_2165_and_3275_qos_2_is_exactly_once_over_a_link_that_is_cut(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    u = str(unique)
    bridge = make(mosquitto.port, [f"{u}/out/# out 2", f"{u}/in/# in 2"])
    bridge.in_sync()
    listeners = [Listener(mosquitto.port, f"{u}/out/#"), Listener(here.port, f"{u}/in/#")]
    seen = 0

    def cut_now_and_then(data: bytes) -> bool:
        nonlocal seen
        seen += 1
        return seen % 9 == 0

    bridge.link.on_bytes = cut_now_and_then
    for number in range(60):
        if number % 6 == 0:  # in the middle of whatever is under way
            connects = bridge.status()["connects"]
            bridge.link.cut()
            bridge.wait(lambda one, before=connects: comes_back(bridge, one, before))  # type: ignore[misc]
        publish(here.port, f"{u}/out/a", str(number), qos=2, retain=False)
        publish(mosquitto.port, f"{u}/in/a", str(number), qos=2, retain=False)
    bridge.link.on_bytes = None
    bridge.link.cut()
    bridge.mend()
    bridge.wait(lambda one: one["waiting"] == 0)
    for listener in listeners:
        listener.until(60)
        assert [payload for _, payload, _ in listener.all()] == [str(number) for number in range(60)]
    assert bridge.status()["connects"] > 10


def comes_back(bridge: Bridge, now: dict[str, Any], before: int) -> bool:
    """Whether it has connected again; what cuts the link may do so once more meanwhile."""
    bridge.link.mend()
    return bool(now["connects"] > before)


def test_1510_the_state_topics_say_on_both_sides_whether_the_link_is_there(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    client_id = f"{unique}-me"
    bridge = make(mosquitto.port, f"{unique}/# out 1", client_id=client_id)
    bridge.in_sync()
    topic = "$SYS/broker/connection"
    state = f"{topic}/{client_id}/state"
    for port in (here.port, mosquitto.port):
        assert_state(port, topic, state, "1")
    bridge.cut()
    for port in (here.port, mosquitto.port):
        assert_state(port, topic, state, "0")
    bridge.mend()
    for port in (here.port, mosquitto.port):
        assert_state(port, topic, state, "1")


def assert_state(port: int, topic: str, state: str, expected: str) -> None:
    until(lambda: retained(port, topic).get(state), lambda value: value == expected, PATIENCE_S)


def test_1312_retain_can_be_stripped_for_a_broker_or_a_topic(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    u = str(unique)
    publish(here.port, f"{u}/a/old", "0")
    make(mosquitto.port, [f"{u}/a/# out 1 retain=strip", f"{u}/b/# out 1", f"{u}/c/# out 1 retain=set"]).in_sync()
    make(mosquitto.port, f"{u}/d/# out 1", outgoing_retain=False).in_sync()
    listener = Listener(mosquitto.port, f"{u}/#")
    for name in "abd":
        publish(here.port, f"{u}/{name}/x", "1")
    publish(here.port, f"{u}/c/x", "1", retain=False)
    assert sorted(listener.until(4)) == [(f"{u}/{name}/x", "1", name in "bc") for name in "abcd"]
    assert len(listener.all()) == 4
    assert retained(mosquitto.port, u) == {f"{u}/b/x": "1", f"{u}/c/x": "1"}


def test_a_conflict_ends_with_the_same_value_on_both_sides(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    u = str(unique)
    for conflict, winner in (("local", "here"), ("remote", "there")):
        prefix = f"{u}/{conflict}"
        publish(here.port, f"{prefix}/a", "before")
        bridge = make(mosquitto.port, f"{prefix}/# both 1", conflict=conflict)
        bridge.in_sync()
        becomes(mosquitto.port, prefix, {f"{prefix}/a": "before"})
        bridge.cut()
        publish(here.port, f"{prefix}/a", "here")
        publish(mosquitto.port, f"{prefix}/a", "there")
        bridge.mend()
        for port in (here.port, mosquitto.port):
            becomes(port, prefix, {f"{prefix}/a": winner})


def test_values_that_cross_each_other_end_the_same_on_both_sides(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    u = str(unique)
    make(mosquitto.port, f"{u}/# both 1").in_sync()
    for number in range(100):
        publish(here.port, f"{u}/{number % 5}", f"h{number}")
        publish(mosquitto.port, f"{u}/{number % 5}", f"m{number}")
    until(
        lambda: (retained(here.port, u), retained(mosquitto.port, u)),
        lambda both: both[0] == both[1] and len(both[0]) == 5,
        PATIENCE_S,
    )


# To another Holdfast.


def test_holdfast_to_holdfast_syncs_by_version_with_deletions(
    make: Make, here: BrokerProcess, there: BrokerProcess, unique: Unique
) -> None:
    u = str(unique)
    for number in range(20):
        publish(there.port, f"{u}/t/{number}", "1")
        publish(here.port, f"{u}/h/{number}", "1")
    bridge = make(there.port, f"{u}/# both 0")
    assert bridge.in_sync()["holdfast"]
    expected = {f"{u}/{side}/{number}": "1" for number in range(20) for side in "ht"}
    becomes(here.port, u, expected)
    becomes(there.port, u, expected)
    bridge.cut()
    clear(there.port, f"{u}/t/1")
    clear(here.port, f"{u}/h/1")
    publish(there.port, f"{u}/t/2", "2", qos=0)
    publish(here.port, f"{u}/h/2", "2", qos=0)
    publish(here.port, f"{u}/t/3", "older")
    time.sleep(0.002)  # brokers tell what is newer by the millisecond
    publish(there.port, f"{u}/t/3", "newer")
    before = bridge.status()
    bridge.mend()
    expected = {key: value for key, value in expected.items() if key not in (f"{u}/t/1", f"{u}/h/1")}
    expected |= {f"{u}/t/2": "2", f"{u}/h/2": "2", f"{u}/t/3": "newer"}
    becomes(here.port, u, expected)
    becomes(there.port, u, expected)
    after = bridge.status()
    assert after["received"] - before["received"] == 3
    assert after["sent"] - before["sent"] == 2


def test_a_link_that_is_cut_while_the_snapshot_comes_brings_all_of_it_and_nothing_else(
    make: Make, here: BrokerProcess, there: BrokerProcess, unique: Unique
) -> None:
    """What is left of the snapshot that was cut off says nothing about the one that comes over the next connection."""
    u = str(unique)
    with WireClient(there.port, 5) as client:
        client.connect("filler")
        for number in range(3000):
            client.send_publish(f"{u}/{number}", b"1", qos=0, retain=True)
        client.publish(f"{u}/last", b"1", qos=1, retain=True)
    bridge = make(there.port, f"{u}/# both 0")
    bridge.wait(lambda one: one["received"] > 100)
    bridge.link.cut()
    clear(there.port, f"{u}/2999")
    bridge.link.mend()
    bridge.wait(lambda one: one["connects"] > 1)
    assert bridge.in_sync()["cleared"] <= 1
    for broker in (here, there):
        with Api(broker) as api:
            topics = set(api.topics(filter=f"{u}/#", limit=1000))
        assert topics == {f"{u}/{number}" for number in [*range(2999), "last"]}


# Queues.


def test_2666_what_waits_for_the_other_side_survives_a_kill(
    start_broker: Callable[..., BrokerProcess], mosquitto: PersistentMosquitto, unique: Unique, tmp_path: Path
) -> None:
    u = str(unique)
    link = CutLink(mosquitto.port)
    config = tmp_path / "holdfast.toml"
    config.write_text(
        f'[[bridge]]\nname = "b"\naddress = "{link.url}"\nclient_id = "{u}"\nretry = "100ms"\nretry_max = "500ms"\n'
        f'topic = "{u}/# out 1"\n'
    )
    listener = Listener(mosquitto.port, f"{u}/#")
    broker = start_broker(data=tmp_path / "data", args=("--config", str(config)))
    broker.wait_output("bridge synchronised")
    publish(broker.port, f"{u}/kept", "1")
    assert listener.until(1) == [(f"{u}/kept", "1", True)]
    link.cut()
    broker.wait_output("bridge lost")
    for number in range(50):
        publish(broker.port, f"{u}/a", str(number), retain=False)
    clear(broker.port, f"{u}/kept")
    broker.kill()
    broker = start_broker(data=tmp_path / "data", args=("--config", str(config)))
    link.mend()
    found = listener.until(52)[1:]
    assert [payload for topic, payload, _ in found if topic == f"{u}/a"] == [str(number) for number in range(50)]
    becomes(mosquitto.port, u, {})
    link.stop()


def test_the_queue_is_bounded_and_retained_messages_are_right_beyond_the_bound(
    start_broker: Callable[..., BrokerProcess], mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    u = str(unique)
    broker = start_broker(listen=LISTEN, limits__max_queued_messages=10, history__enable=False)
    with Api(broker) as api:
        link = CutLink(mosquitto.port)
        bridge = Bridge(api, link, u, topic=f"{u}/# out 1", max_inflight=5)
        bridge.in_sync()
        bridge.cut()
        for number in range(100):
            publish(broker.port, f"{u}/{number}", str(number))
        assert bridge.wait(lambda one: one["waiting"] >= 10)["waiting"] <= 20
        bridge.mend()
        becomes(mosquitto.port, u, {f"{u}/{number}": str(number) for number in range(100)})
        link.stop()


class Counting:
    """Publishes a counter to a few topics, retained and the last of them acknowledged, in one go, again and again."""

    def __init__(self, port: int, topics: list[str]) -> None:
        self.port = port
        self.topics = topics
        self.last: dict[str, str] = {}
        self.stopping = False
        self.thread = threading.Thread(target=self.run, name="counting", daemon=True)
        self.thread.start()

    def run(self) -> None:
        with WireClient(self.port, 5) as client:
            client.connect(f"counting-{time.monotonic_ns()}")
            number = 0
            while not self.stopping:
                number += 1
                for topic in self.topics[1:]:
                    client.send_publish(topic, str(number).encode(), qos=0, retain=True)
                client.publish(self.topics[0], str(number).encode(), qos=1, retain=True)
                self.last = dict.fromkeys(self.topics, str(number))
                time.sleep(0.1)

    def stop(self) -> dict[str, str]:
        self.stopping = True
        self.thread.join(PATIENCE_S)
        return self.last


def test_a_kill_of_this_broker_takes_nothing_back_that_the_other_one_has(
    start_broker: Callable[..., BrokerProcess], mosquitto: PersistentMosquitto, unique: Unique, tmp_path: Path
) -> None:
    """What has come in is known to be what both had, so it gives way to what was set there meanwhile."""
    u = str(unique)
    config = tmp_path / "holdfast.toml"
    config.write_text(
        f'[[bridge]]\nname = "b"\naddress = "mqtt://127.0.0.1:{mosquitto.port}"\nclient_id = "{u}"\nretry = "100ms"\n'
        f'retry_max = "500ms"\nquiet = "700ms"\ntopic = "{u}/# both 1"\n'
    )
    counting = Counting(mosquitto.port, [f"{u}/{number}" for number in range(50)])
    for _ in range(3):
        broker = start_broker(data=tmp_path / "data", args=("--config", str(config)))
        broker.wait_output("bridge synchronised", PATIENCE_S)
        at_first = retained(broker.port, u)
        until(lambda at=broker.port: retained(at, u), lambda now, first=at_first: now != first, PATIENCE_S)  # type: ignore[misc]
        broker.kill()
        time.sleep(0.2)
    last = counting.stop()
    broker = start_broker(data=tmp_path / "data", args=("--config", str(config)))
    broker.wait_output("bridge synchronised", PATIENCE_S)
    becomes(broker.port, u, last)
    becomes(mosquitto.port, u, last)


@pytest.mark.parametrize("retain", [True, False])
def test_a_message_on_which_the_other_broker_hangs_up_holds_nothing_up(
    make: Make, here: BrokerProcess, tmp_path: Path, unique: Unique, retain: bool
) -> None:
    """MQTT 3.1.1 has no other way to say that a message is too large."""
    u = str(unique)
    narrow = PersistentMosquitto(tmp_path, "allow_anonymous true", "max_packet_size 2000")
    try:
        bridge = make(narrow.port, f"{u}/# out 1", protocol="3.1.1")
        bridge.in_sync()
        listener = Listener(narrow.port, f"{u}/#")
        publish(here.port, f"{u}/a", "before", retain=retain)
        for number in range(2):
            publish(here.port, f"{u}/large", f"{number}" * 5000, retain=retain)
            publish(here.port, f"{u}/b", f"behind {number}", retain=retain)
        publish(here.port, f"{u}/large", "small", retain=retain)
        assert set(listener.until(4)) >= {
            (f"{u}/a", "before", retain),
            (f"{u}/b", "behind 1", retain),
            (f"{u}/large", "small", retain),
        }
        told = bridge.wait(lambda one: one["in_sync"] and one["waiting"] == 0)
        assert told["refused"] >= 2
        if retain:
            becomes(narrow.port, u, {f"{u}/a": "before", f"{u}/b": "behind 1", f"{u}/large": "small"})
    finally:
        narrow.stop()


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_a_link_that_ends_again_and_again_costs_no_message(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique, protocol: str
) -> None:
    """The same message is in front each time, and it is not what the connection ended for."""
    u = str(unique)
    bridge = make(mosquitto.port, f"{u}/# out 1", protocol=protocol)
    link = bridge.link
    link.on_bytes = lambda data: b"in front" in data
    bridge.in_sync()
    bridge.cut()
    bridge.mend()
    listener = Listener(mosquitto.port, f"{u}/#")
    publish(here.port, f"{u}/a", "in front", retain=False)
    until(lambda: link.is_cut, bool, PATIENCE_S)
    link.on_bytes = lambda data: data[0] >> 4 != CONNECT
    for _ in range(SUSPECTED_AFTER + LEFT_OUT_AFTER + 2):
        link.mend()
        until(lambda: link.is_cut, bool, PATIENCE_S)
    link.on_bytes = None
    bridge.mend()
    assert (f"{u}/a", "in front", False) in listener.until(1)
    assert bridge.status()["refused"] == 0


# Changes while it runs.


def test_2535_a_bridge_is_added_changed_and_removed_without_touching_the_others(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    u = str(unique)
    steady = make(mosquitto.port, f"{u}/steady/# out 1")
    steady.in_sync()
    other = make(mosquitto.port, f"{u}/a/# out 1")
    other.in_sync()
    other.change(topic=[f"{u}/b/# out 1"])
    other.in_sync()
    publish(here.port, f"{u}/a/x", "1")
    publish(here.port, f"{u}/b/x", "1")
    publish(here.port, f"{u}/steady/x", "1")
    becomes(mosquitto.port, u, {f"{u}/b/x": "1", f"{u}/steady/x": "1"})
    other.api.ok("DELETE", "/api/v1/bridges", params={"name": other.name})
    assert steady.status()["connects"] == 1
    assert steady.link.passed == 1


def test_2535_sighup_starts_changes_and_stops_bridges_one_by_one(
    start_broker: Callable[..., BrokerProcess], mosquitto: PersistentMosquitto, unique: Unique, tmp_path: Path
) -> None:
    u = str(unique)
    config = tmp_path / "holdfast.toml"

    def write(**topics: str) -> None:
        config.write_text(
            "".join(
                f'[[bridge]]\nname = "{name}"\naddress = "mqtt://127.0.0.1:{mosquitto.port}"\n'
                f'client_id = "{u}-{name}"\ntopic = "{topic}"\n'
                for name, topic in topics.items()
            )
        )

    write(steady=f"{u}/steady/# out 1", changed=f"{u}/a/# out 1", gone=f"{u}/gone/# out 1")
    broker = start_broker(listen=LISTEN, args=("--config", str(config)), history__enable=False)
    with Api(broker) as api:

        def states() -> dict[str, Any]:
            return {one["name"]: one for one in api.ok("GET", "/api/v1/bridges")["bridges"]}

        until(states, lambda found: all(one["in_sync"] for one in found.values()), PATIENCE_S)
        write(steady=f"{u}/steady/# out 1", changed=f"{u}/b/# out 1", new=f"{u}/new/# out 1")
        broker.signal(signal.SIGHUP)
        found = until(
            states,
            lambda found: (
                found.keys() == {"steady", "changed", "new"} and all(one["in_sync"] for one in found.values())
            ),
            PATIENCE_S,
        )
        assert found["changed"]["topics"] == [f"{u}/b/# out 1"]
        assert found["steady"]["connects"] == 1
        refused = api.request("DELETE", "/api/v1/bridges", params={"name": "steady"})
        assert refused.status_code == 400
        assert "configuration" in refused.json()["detail"]
    assert broker.output.count("bridge=steady") == 2  # connected and synchronised, once


def test_3676_a_password_is_read_anew_at_each_connect(
    start_broker: Callable[..., BrokerProcess], unique: Unique, tmp_path: Path
) -> None:
    from password_file import write_password_file

    passwords = tmp_path / "passwords"
    write_password_file(passwords, {"site": "first"})
    other = start_broker(data=tmp_path / "other", listen=LISTEN, auth__password_file=passwords, history__enable=False)
    secret = tmp_path / "secret"
    secret.write_text("first\n")
    secret.chmod(0o600)
    config = tmp_path / "holdfast.toml"
    config.write_text(
        f'[[bridge]]\nname = "b"\naddress = "mqtt://127.0.0.1:{other.port}"\nusername = "site"\nretry = "100ms"\n'
        f'retry_max = "500ms"\npassword_file = "{secret}"\ntopic = "{unique}/# out 1"\n'
    )
    broker = start_broker(data=tmp_path / "data", args=("--config", str(config)))
    broker.wait_output("bridge synchronised")
    write_password_file(passwords, {"site": "second"})
    other.signal(signal.SIGHUP)
    broker.wait_output("bridge not connected")
    secret.write_text("second\n")
    until(lambda: broker.output.count("bridge synchronised"), lambda count: count == 2, PATIENCE_S)


def test_bridges_made_through_the_api_are_there_after_a_restart_and_keep_their_password_to_themselves(
    start_broker: Callable[..., BrokerProcess], mosquitto: PersistentMosquitto, unique: Unique, tmp_path: Path
) -> None:
    told = {
        "name": "b",
        "address": f"mqtt://127.0.0.1:{mosquitto.port}",
        "topic": f"{unique}/# out 1",
        "username": "me",
        "password": "a secret",
    }
    broker = start_broker(listen=LISTEN, data=tmp_path / "data", history__enable=False)
    with Api(broker) as api:
        api.ok("POST", "/api/v1/bridges", json=told)
        assert api.request("POST", "/api/v1/bridges", json=told).status_code == 400
        refused = api.request("POST", "/api/v1/bridges", json={**told, "name": "c", "password_file": "/etc/hostname"})
        assert refused.status_code == 400
        assert "a secret" not in api.get("/api/v1/bridges/told", params={"name": "b"}).text
    kept = tmp_path / "data" / "bridges" / "b.password"
    assert kept.read_text() == "a secret\n"
    assert kept.stat().st_mode & 0o777 == 0o600
    broker.stop()
    broker = start_broker(listen=LISTEN, data=tmp_path / "data", history__enable=False)
    broker.wait_output("bridge synchronised")


# Addresses, and when it starts.


def test_a_link_goes_to_the_next_address_and_back_to_the_first(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    spare = CutLink(mosquitto.port)
    bridge = make(mosquitto.port, f"{unique}/# out 1")
    bridge.change(address=[bridge.link.url, spare.url])
    assert bridge.in_sync()["address"] == bridge.link.url
    bridge.link.cut()
    bridge.wait(lambda one: one["address"] == spare.url and one["in_sync"])
    bridge.link.mend()
    bridge.wait(lambda one: one["address"] == bridge.link.url and one["in_sync"])
    bridge.change(round_robin=True)
    bridge.in_sync()
    bridge.link.cut()
    bridge.wait(lambda one: one["address"] == spare.url and one["in_sync"])
    spare.stop()


def test_a_lazy_bridge_connects_for_what_waits_and_rests_again(
    make: Make, here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    u = str(unique)
    bridge = make(mosquitto.port, f"{u}/# out 1", start="lazy", threshold=3, idle_timeout="500ms")
    bridge.wait(lambda one: one["state"] == "resting")
    publish(here.port, f"{u}/a", "1")
    publish(here.port, f"{u}/b", "1")
    bridge.wait(lambda one: one["waiting"] == 2)
    assert bridge.link.passed == 0
    publish(here.port, f"{u}/c", "1")
    becomes(mosquitto.port, u, {f"{u}/{topic}": "1" for topic in "abc"})
    bridge.wait(lambda one: one["state"] == "resting")
    for topic in "def":
        publish(here.port, f"{u}/{topic}", "2", qos=0)
    becomes(mosquitto.port, u, {**{f"{u}/{topic}": "1" for topic in "abc"}, **{f"{u}/{topic}": "2" for topic in "def"}})


def test_a_bridge_that_starts_once_ends_with_its_link(
    make: Make, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    bridge = make(mosquitto.port, f"{unique}/# out 1", start="once")
    bridge.in_sync()
    bridge.link.cut()
    bridge.wait(lambda one: one["state"] == "ended")


# The command.


def test_the_command_lists_makes_tests_and_ends_bridges(
    here: BrokerProcess, mosquitto: PersistentMosquitto, unique: Unique
) -> None:
    url = f"http://127.0.0.1:{here.ports['http']}"
    name, address = str(unique), f"mqtt://127.0.0.1:{mosquitto.port}"
    words = [name, "--address", address, "--topic", f"{unique}/# both 1"]
    tested = holdfast_process("bridge", "test", *words, "--url", url)
    assert (tested.returncode, tested.stdout) == (0, f"{address}: works\n"), tested.stderr
    assert holdfast_process("bridge", "add", *words, "--url", url).returncode == 0
    again = holdfast_process("bridge", "add", *words, "--url", url)
    assert again.returncode == 1
    assert "is there already" in again.stderr

    def listed() -> dict[str, Any]:
        told = json.loads(holdfast_process("bridge", "ls", "--json", "--url", url).stdout)
        return {one["name"]: one for one in told["bridges"]}

    until(listed, lambda found: found[name]["in_sync"], PATIENCE_S)
    assert f"{unique}/# both 1" in holdfast_process("bridge", "ls", "--url", url).stdout
    nobody = holdfast_process("bridge", "test", "x", "-a", "mqtt://127.0.0.1:1", "-t", "# in", "--url", url)
    assert nobody.returncode == 1
    assert "refused - is the broker running?" in nobody.stdout
    wrong = holdfast_process("bridge", "add", "x", "-a", address, "-t", "# sideways", "--url", url)
    assert wrong.returncode == 1
    assert "expected a direction out, in or both, got 'sideways'" in wrong.stderr
    assert holdfast_process("bridge", "rm", name, "--url", url).returncode == 0
    assert name not in listed()


def test_the_metrics_name_each_bridge(make: Make, mosquitto: PersistentMosquitto, unique: Unique) -> None:
    bridge = make(mosquitto.port, f"{unique}/# out 1")
    bridge.in_sync()
    text = bridge.api.get("/metrics").text
    assert f'holdfast_bridge_up{{bridge="{bridge.name}"}} 1.0' in text
    assert f'holdfast_bridge_messages_sent_total{{bridge="{bridge.name}"}} 0.0' in text
    named = re.findall(r"`(holdfast_bridge_\w+)\{bridge\}`", GUIDE.read_text())
    served = re.findall(r"^(holdfast_bridge_\w+)\{bridge=", text, re.MULTILINE)
    assert set(named) == {name for name in served if not name.endswith("_created")}


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_a_snapshot_that_the_other_broker_cuts_comes_whole(
    make: Make, here: BrokerProcess, unique: Unique, tmp_path: Path, protocol: str
) -> None:
    """By itself mosquitto keeps 1000 messages for a client at most, and drops the rest of a snapshot in silence."""
    other = PersistentMosquitto(tmp_path / "cutting", "allow_anonymous true", "max_queued_messages 100")
    with WireClient(other.port, 5) as client:
        client.connect("filler")
        for number in range(2000):
            client.send_publish(f"{unique}/{number}", b"1", qos=0, retain=True)
        client.publish(f"{unique}/last", b"1", qos=1, retain=True)
    bridge = make(other.port, f"{unique}/# both 1", protocol=protocol)
    bridge.in_sync()
    topics = {f"{unique}/{number}" for number in [*range(2000), "last"]}
    assert set(bridge.api.topics(filter=f"{unique}/#", limit=1000)) == topics
    assert bridge.status()["sent"] == 0
    bridge.cut()
    clear(other.port, f"{unique}/7")
    bridge.mend()
    until(
        lambda: set(bridge.api.topics(filter=f"{unique}/#", limit=1000)),
        lambda found: found == topics - {f"{unique}/7"},
        PATIENCE_S,
    )
    other.stop()
