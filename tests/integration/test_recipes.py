"""The recipes of the documentation, tried: what each program publishes, and what a new subscriber then gets."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker_process import MOSQUITTO, BrokerProcess, start_holdfast, under_test
from http_api import LISTEN, Api
from sparkplug_wire import NOON, metric, number, sparkplug
from wire import P, Publish
from wire_packets import Will

PAGE = (Path(__file__).parents[2] / "docs/guides/recipes.md").read_text()

DISCOVERY = {
    "availability": [{"topic": "zigbee2mqtt/bridge/state", "value_template": "{{ value_json.state }}"}],
    "device": {
        "identifiers": ["zigbee2mqtt_0x00158d0001a2b3c4"],
        "manufacturer": "Aqara",
        "model": "Temperature and humidity sensor (WSDCGQ11LM)",
        "name": "bedroom",
        "via_device": "zigbee2mqtt_bridge_0x00124b0018e2b8d1",
    },
    "device_class": "temperature",
    "object_id": "bedroom_temperature",
    "origin": {"name": "Zigbee2MQTT", "sw": "1.42.0", "url": "https://www.zigbee2mqtt.io"},
    "state_class": "measurement",
    "state_topic": "zigbee2mqtt/bedroom",
    "unique_id": "0x00158d0001a2b3c4_temperature_zigbee2mqtt",
    "unit_of_measurement": "°C",
    "value_template": "{{ value_json.temperature }}",
}
TASMOTA_SENSOR = {
    "Time": "2026-11-16T12:00:00",
    "ENERGY": {"TotalStartTime": "2025-01-01T00:00:00", "Total": 12.345, "Power": 42, "Voltage": 231, "Current": 0.18},
}
TASMOTA_DISCOVERY = {
    "ip": "192.168.1.50", "dn": "Kitchen", "fn": ["Kitchen"], "hn": "kitchen-1234", "mac": "AABBCCDDEEFF", "md": "Plug",
    "ofln": "Offline", "onln": "Online", "t": "kitchen", "ft": "%prefix%/%topic%/", "tp": ["cmnd", "stat", "tele"],
}  # fmt: skip
ESPHOME_DISCOVERY = {
    "dev_cla": "temperature",
    "unit_of_meas": "°C",
    "stat_cla": "measurement",
    "name": "Attic Temperature",
    "stat_t": "attic/sensor/attic_temperature/state",
    "avty_t": "attic/status",
    "uniq_id": "a4cf12abcdef-sensor-1f2e3d4c",
    "dev": {"ids": "a4cf12abcdef", "name": "attic", "sw": "esphome v2026.10.0", "mdl": "esp32dev", "mf": "Espressif"},
}


BD_SEQ = metric("bdSeq", at=NOON, datatype=8, value=number(11, 0))
NBIRTH = sparkplug(NOON, 0, BD_SEQ, metric("Node Control/Rebirth", at=NOON, datatype=11, value=number(14, 0)))
NDEATH = sparkplug(NOON, None, BD_SEQ)


@dataclass(frozen=True)
class Sent:
    topic: str
    payload: bytes
    retain: bool = False
    kept: bool = False


def text(value: object) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()


def kept(topic: str, value: object) -> Sent:
    return Sent(topic, text(value), retain=True, kept=True)


def live(topic: str, value: object) -> Sent:
    return Sent(topic, text(value))


def commanded(topic: str, value: object) -> Sent:
    """Retained by somebody who should not have."""
    return Sent(topic, text(value), retain=True)


RECIPES: dict[str, list[Sent]] = {
    "Home Assistant": [
        kept("homeassistant/sensor/0x00158d0001a2b3c4/temperature/config", DISCOVERY),
        kept("homeassistant/sensor/attic/attic_temperature/config", ESPHOME_DISCOVERY),
        live("homeassistant/status", "online"),
    ],
    "Zigbee2MQTT": [
        kept("zigbee2mqtt/bridge/state", {"state": "online"}),
        kept(
            "zigbee2mqtt/bridge/devices",
            [{"ieee_address": f"0x{n:016x}", "definition": "x" * 3000} for n in range(400)],
        ),
        live("zigbee2mqtt/bedroom", {"battery": 91, "humidity": 46.1, "linkquality": 120, "temperature": 21.43}),
        kept("zigbee2mqtt/hall lamp", {"brightness": 254, "state": "ON", "color": {"x": 0.4599, "y": 0.4106}}),
        commanded("zigbee2mqtt/hall lamp/set", {"state": "ON"}),
    ],
    "Tasmota": [
        kept("tele/kitchen/LWT", "Online"),
        live("tele/kitchen/SENSOR", TASMOTA_SENSOR),
        kept("stat/kitchen/POWER", "ON"),
        kept("tasmota/discovery/AABBCCDDEEFF/config", TASMOTA_DISCOVERY),
        commanded("cmnd/kitchen/POWER", "ON"),
    ],
    "ESPHome": [
        kept("attic/status", "online"),
        kept("attic/sensor/attic_temperature/state", "18.4"),
        live("attic/debug", "\x1b[0;36m[D][sensor:094]: 'Attic Temperature': Sending state 18.40000 °C\x1b[0m"),
        commanded("attic/switch/relay/command", "ON"),
    ],
    "Sparkplug B": [
        Sent("spBv1.0/Plant/NBIRTH/Edge1", NBIRTH),
        kept("spBv1.0/STATE/scada", {"online": True, "timestamp": NOON}),
    ],
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """As the page sets up a home, with the larger of its limits."""
    if under_test() == MOSQUITTO:
        pytest.skip("about Holdfast's settings")
    shown = [tomllib.loads(text).get("retainer", {}) for text in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)]
    settings = max(shown, key=len)
    assert settings["presets"] == ["commands"]
    options = {"retainer.presets": "commands", "retainer.max_payload_size": settings["max_payload_size"]}
    running = start_holdfast(tmp_path_factory.mktemp("recipes"), options, listen=LISTEN)
    yield running
    running.stop()


def retained_on(broker: BrokerProcess, topic: str) -> bytes | None:
    """What a client is sent that has just come."""
    with Api(broker) as api:
        if not api.topics(filter=topic):
            return None
    with broker.client(4) as client:
        client.connect("")
        client.subscribe(topic)
        return client.expect(Publish, topic=topic, retain=True).payload


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_program_retains_is_there_for_those_who_come_later_and_its_commands_are_not(
    broker: BrokerProcess, name: str
) -> None:
    sent = RECIPES[name]
    assert f"## {name}\n" in PAGE
    with broker.client(4) as listener, broker.client(4) as program:
        listener.connect("")
        for one in sent:
            listener.subscribe(one.topic)
        program.connect("")
        for one in sent:
            program.publish(one.topic, one.payload, qos=1, retain=one.retain)
        heard = [listener.expect(Publish) for _ in sent]
    assert [(packet.topic, packet.payload) for packet in heard] == [(one.topic, one.payload) for one in sent]
    for one in sent:
        assert retained_on(broker, one.topic) == (one.payload if one.kept else None), one.topic


@pytest.mark.parametrize(
    ("topic", "gone", "retained"),
    [
        ("tele/shed/LWT", b"Offline", True),
        ("zigbee2mqtt2/bridge/state", b'{"state":"offline"}', True),
        ("shed/status", b"offline", True),
        ("spBv1.0/Plant/NDEATH/Edge1", NDEATH, False),
        ("spBv1.0/STATE/other", b'{"online": false, "timestamp": 1794830400000}', True),
    ],
)
def test_a_device_that_loses_power_is_shown_as_gone(
    broker: BrokerProcess, topic: str, gone: bytes, retained: bool
) -> None:
    with broker.client(4) as listener:
        listener.connect("")
        listener.subscribe(topic, qos=1)
        program = broker.client(4)
        program.connect("", will=Will(topic, gone, qos=1, retain=retained))
        program.cut()
        assert listener.expect(Publish, topic=topic).payload == gone
    assert retained_on(broker, topic) == (gone if retained else None)


def test_what_node_red_sends_comes_back_with_all_its_properties(broker: BrokerProcess) -> None:
    carried = [
        (P.PAYLOAD_FORMAT, 1),
        (P.CONTENT_TYPE, "application/json"),
        (P.RESPONSE_TOPIC, "flows/answers"),
        (P.CORRELATION_DATA, b"\x00\x01\xfe"),
        (P.USER_PROPERTY, ("flow", "heating")),
        (P.USER_PROPERTY, ("flow", "second")),
    ]
    with broker.client(5) as client:
        client.connect("nodered_8c1f2a", properties=[(P.SESSION_EXPIRY, 3600)])
        client.publish("flows/heating", b'{"payload":21.5}', qos=1, retain=True, properties=carried)
        client.disconnect()
    with broker.client(5) as client:
        client.connect("")
        client.subscribe("flows/heating")
        copy = client.expect(Publish, topic="flows/heating")
    assert copy.payload == b'{"payload":21.5}'
    for name, value in carried:
        assert value in copy.props(name)
