"""A real disk that gets full: the history stops first, acknowledgements go on, and nothing is missing afterwards."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from http_api import LISTEN, Api, until

MIB = 1 << 20
WITHIN_S = 90.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def paused(api: Api) -> float:
    [line] = [line for line in api.get("/metrics").text.splitlines() if line.startswith("holdfast_history_paused ")]
    return float(line.split()[1])


def test_history_pauses_on_a_disk_that_fills_and_goes_on_when_there_is_room(
    small_disk: Path, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker = start_broker(data=small_disk / "data", listen=LISTEN, history__reserve="128MiB")
    with Api(broker) as api, broker.client() as client:
        client.connect("writer")
        client.publish("t", b"before", qos=1, retain=True)
        assert len(api.history("t", 1)) == 1
        assert (paused(api), api.get("/readyz").json()) == (0, {"status": "ready"})
        ballast = small_disk / "ballast"
        with ballast.open("wb") as file:
            for _ in range(150):
                file.write(bytes(MIB))
        until(lambda: paused(api), bool, WITHIN_S)
        for number in range(100):
            client.publish("t", b"%d" % number, qos=1, retain=True)  # returns when it is acknowledged
        answer = api.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (200, "ready")
        assert "history.reserve" in answer.json()["history"]
        assert "history.reserve" in api.ok("GET", "/api/v1/overview")["problems"]["history"]
        assert len(api.history("t", 1)) == 1
        assert "history.retention_bytes" in broker.output
        ballast.unlink()
        until(lambda: paused(api), lambda found: not found, WITHIN_S)
        until(lambda: api.ok("GET", "/api/v1/history/span")["rows"], lambda rows: rows == 101, WITHIN_S)
        assert api.ok("GET", "/api/v1/overview")["problems"] == {}
        assert api.get("/readyz").json() == {"status": "ready"}
