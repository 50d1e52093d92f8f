"""The guide to backups, followed: what it says to copy is all there when it is put back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from broker_process import BrokerProcess, Unique
from command_line import holdfast, holdfast_process
from http_api import LISTEN, Api
from wire import P, Publish

Start = Callable[..., BrokerProcess]


def url_of(broker: BrokerProcess) -> str:
    return f"http://127.0.0.1:{broker.ports['http']}"


def test_an_export_of_a_running_broker_fills_another_one(start_broker: Start, tmp_path: Path) -> None:
    first = start_broker(listen=LISTEN, data=tmp_path / "first")
    with Api(first) as api:
        api.set("home/kitchen", "21.5", content_type="text/plain")
        api.set("home/gate", "open", expiry_s=3600)
    file = str(tmp_path / "retained.jsonl")
    assert holdfast("retained", "export", "-o", file, "--url", url_of(first)).returncode == 0
    second = start_broker(listen=LISTEN, data=tmp_path / "second")
    done = holdfast("retained", "import", file, "--url", url_of(second))
    assert done.returncode == 0, done.stderr
    with Api(second) as api:
        assert sorted(api.topics()) == ["home/gate", "home/kitchen"]
        assert (
            api.ok("GET", "/api/v1/retained/message", params={"topic": "home/kitchen"})["content_type"] == "text/plain"
        )


def test_the_copied_folder_of_a_stopped_broker_is_sound_and_has_messages_sessions_and_history(
    start_broker: Start, tmp_path: Path, unique: Unique
) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    broker = start_broker(listen=LISTEN, data=data)
    with broker.client(5) as client:
        client.connect(unique.client("away"), properties=[(P.SESSION_EXPIRY, 3600)])
        client.subscribe("home/#", qos=1)
        client.disconnect()
    with Api(broker) as api:
        api.set("home/kitchen", "20")
        api.set("home/kitchen", "21")
        api.history("home/kitchen", 2)
    assert broker.stop() == 0
    shutil.copytree(data, copy)
    looked = holdfast_process("doctor", str(copy))
    assert looked.returncode == 0, looked.stdout + looked.stderr
    again = start_broker(listen=LISTEN, data=copy)
    with Api(again) as api:
        assert [row["text"] for row in api.history("home/kitchen", 2)] == ["21", "20"]
    with again.client(5) as client:
        assert client.connect(unique.client("away"), clean=False, properties=[(P.SESSION_EXPIRY, 3600)]).session_present
        waited = client.messages(2)
    assert [(one.topic, one.payload) for one in waited if isinstance(one, Publish)] == [
        ("home/kitchen", b"20"),
        ("home/kitchen", b"21"),
    ]
