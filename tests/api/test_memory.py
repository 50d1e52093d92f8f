"""What a broker keeps in memory for its past: nothing. The libraries that read and write the table are large."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from broker_process import start_holdfast
from http_api import LISTEN, Api, until

LIBRARIES = ("pyarrow", "deltalake", "numpy", "pandas")
WITHIN_S = 120


def loaded(pid: int) -> list[str]:
    """Which of the libraries a process has in memory: each brings compiled code."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
    except OSError:  # it has ended meanwhile
        return []
    return [name for name in LIBRARIES if f"/{name}/" in maps]


def everyone(api: Api) -> list[int]:
    return [api.broker.pid, *(child.pid for child in psutil.Process(api.broker.pid).children())]


def children(api: Api, module: str) -> list[psutil.Process]:
    return [child for child in psutil.Process(api.broker.pid).children() if module in child.cmdline()]


def test_a_broker_answers_for_its_past_without_the_libraries_of_the_table(api: Api) -> None:
    version = api.set("memory/kept", "1")
    api.history("memory/kept", 1)
    then = {"offset": version, "filter": "memory/#"}
    assert [one["text"] for one in api.ok("GET", "/api/v1/retained/at", params=then)["messages"]] == ["1"]
    operation = api.ok("DELETE", "/api/v1/retained/message", params={"topic": "memory/kept"})["operation"]
    assert api.ok("POST", f"/api/v1/operations/{operation}/undo")["restored"] == 1
    api.ok("GET", "/api/v1/history/span")
    api.get("/metrics").raise_for_status()
    [reader] = children(api, "holdfast.service.past_main")
    assert loaded(reader.pid) == ["pyarrow", "deltalake"]
    assert loaded(api.broker.pid) == []


def test_a_broker_whose_reader_of_the_past_is_killed_answers_again(api: Api) -> None:
    api.set("memory/again", "1")
    api.history("memory/again", 1)
    [reader] = children(api, "holdfast.service.past_main")
    os.kill(reader.pid, signal.SIGKILL)
    query = {"topic": "memory/again"}
    until(lambda: api.get("/api/v1/history", params=query), lambda answer: answer.status_code == 200, WITHIN_S)


@pytest.mark.timeout(300)  # waits until the followers rest
def test_no_process_of_a_broker_that_nobody_uses_has_the_libraries(tmp_path: Path) -> None:
    running = start_holdfast(tmp_path, listen=LISTEN)
    with Api(running) as api:
        api.set("memory/rest", "1")
        api.history("memory/rest", 1)
        # the broker and its two followers: one that is about to be gone has nothing loaded either
        until(lambda: [loaded(pid) for pid in everyone(api)], lambda found: found == [[], [], []], WITHIN_S)
        api.set("memory/rest", "2")
        assert [row["text"] for row in api.history("memory/rest", 2)] == ["2", "1"]
    running.stop()
