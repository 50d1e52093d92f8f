"""MQTT.js, the client of browsers and Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from broker_process import Unique
from integration.conftest import TRANSPORTS, Everywhere

FOLDER = Path(__file__).parent / "node"

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (FOLDER / "node_modules" / "mqtt").exists(),
    reason="needs node and `npm ci` in tests/integration/node",
)


@pytest.mark.parametrize("version", ["4", "5"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_mqttjs_publishes_receives_and_leaves_a_will(
    transport: str, version: str, everywhere: Everywhere, unique: Unique
) -> None:
    authority = everywhere.ca if transport in ("tls", "wss") else "-"
    command = ["node", "scenario.mjs", everywhere.url(transport), version, str(unique), authority]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, f"MQTT.js ended with {done.returncode}: {done.stderr}"
    result = json.loads(done.stdout)
    assert result["granted"] == [2]
    kept, *live, will = result["seen"]
    assert (kept["payload"], kept["retain"], kept["qos"]) == ("kept", True, 1)
    assert [(message["payload"], message["qos"], message["retain"]) for message in live] == [
        ("0", 0, False),
        ("1", 1, False),
        ("2", 2, False),
    ]
    assert (will["payload"], will["qos"]) == ("gone", 1)
    if version == "5":
        assert {message["contentType"] for message in live} == {"text/plain"}
        assert all(message["userProperties"] == {"a": ["1", "2"]} for message in live)
