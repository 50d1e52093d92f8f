"""`make cluster`: six processes that work together, and none of them is left behind."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from broker_process import serve_environment
from command_line import holdfast
from holdfast_demo.cluster import free_ports
from log_servers import until

pytestmark = pytest.mark.timeout(400)

FIRST_OF_THE_KERNEL = 32_768  # of the ports that Linux gives to connections, unless it was told otherwise


def test_ports_are_not_among_those_that_connections_are_given() -> None:
    found = free_ports(200)
    assert len(set(found)) == 200
    assert max(found) < FIRST_OF_THE_KERNEL


def test_three_nodes_come_up_and_ctrl_c_ends_all(tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    command = [sys.executable, "-m", "holdfast_demo.cluster", "--data", str(tmp_path / "data")]
    with output.open("wb") as file:
        started = subprocess.Popen(command, stdout=file, stderr=file, env=serve_environment())
    try:

        def shown() -> bool:
            assert started.poll() is None, output.read_text()
            return "Ctrl-C stops all" in output.read_text()

        until(shown, "the addresses are printed")
        found = re.findall(r"^node (\w) .* dashboard (http://\S+)/#cluster", output.read_text(), re.MULTILINE)
        urls = dict(found)
        assert sorted(urls) == ["a", "b", "c"]
        until(lambda: holdfast("cluster", "status", "--url", urls["b"]).returncode == 0, "all three nodes are ready")
        told = json.loads(holdfast("cluster", "status", "--url", urls["c"], "--json").stdout)
        assert [node["name"] for node in told["nodes"]] == ["a", "b", "c"]
        children = psutil.Process(started.pid).children()
        assert len(children) == 6
        started.send_signal(signal.SIGINT)
        assert started.wait(120) == 130
        assert not any(child.is_running() for child in children)
    finally:
        if started.poll() is None:
            started.send_signal(signal.SIGTERM)
            started.wait(120)
