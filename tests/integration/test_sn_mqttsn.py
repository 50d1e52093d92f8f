"""A client of others: `mqttsn` of PyPI, the 1.2 client of Eclipse's reference broker made ready for Python 3.

It is the one MQTT-SN client found among the package registries, where none for 2.0 turned up. It
cannot say goodbye and cannot answer REGISTER (both fail inside it), so this is about the rest.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from wire import Publish

SCENARIO = Path(__file__).with_name("mqttsn_scenario.py")

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mqttsn") is None, reason="mqttsn is not installed")


def test_a_sensor_of_others_publishes_and_subscribes(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(listen=("tcp://127.0.0.1:0", "udp://127.0.0.1:0"), retainer__storage_type="ram")
    with broker.client(5) as mqtt:
        mqtt.connect("mqtt")
        mqtt.publish("xy", b"kept", retain=True, qos=1)
        mqtt.subscribe("their/#", qos=2)
        command = [sys.executable, str(SCENARIO), str(broker.ports["udp"])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1]) == {
            "subscribed": [0, 1],
            "short": [0, 0],
            "acknowledged": True,
            "messages": [["xy", "kept", 0, True]],
        }
        mqtt.expect(Publish, topic="their/topic", payload=b"one", qos=1)
        mqtt.expect(Publish, topic="their/topic", payload=b"two", qos=2)
        mqtt.subscribe("their/topic", qos=1)
        mqtt.expect(Publish, topic="their/topic", payload=b"two", qos=1, retain=True)
