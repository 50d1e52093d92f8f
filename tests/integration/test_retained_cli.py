"""`holdfast retained` through a real broker, and on the folder that it leaves behind."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_process import BrokerProcess
from command_line import Done, holdfast, holdfast_process
from http_api import LISTEN, Api
from password_file import write_password_file


class Command:
    """`holdfast retained`, with the arguments that say where."""

    def __init__(self, *where: str) -> None:
        self.where = where

    def __call__(self, *words: str, stdin: str = "") -> Done:
        run = holdfast if "--url" in self.where else holdfast_process
        return run("retained", *words, *self.where, stdin=stdin)

    def json(self, *words: str) -> list[dict[str, Any]]:
        done = self(*words, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def running(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> BrokerProcess:
    return start_broker(listen=LISTEN, data=tmp_path / "data")


@pytest.fixture
def retained(running: BrokerProcess) -> Command:
    with Api(running) as api:
        api.set("home/kitchen/temperature", "21.5", user_properties=[["unit", "C"]])
        api.set("home/hall/temperature", "19.0")
        api.set("garden/rain", "no", expiry_s=3600)
    return Command("--url", f"http://127.0.0.1:{running.ports['http']}")


def test_messages_are_listed_read_deleted_and_brought_back(retained: Command) -> None:
    listed = retained("ls", "home/#")
    assert listed.returncode == 0, listed.stderr
    assert "home/kitchen/temperature" in listed.stdout
    assert "21.5" in listed.stdout
    assert "garden" not in listed.stdout
    assert [m["topic"] for m in retained.json("ls", "--contains", "rain")] == ["garden/rain"]
    assert retained("get", "home/kitchen/temperature").stdout == "21.5"
    shown = retained("rm", "home/#")
    assert "would delete 2 messages" in shown.stdout
    assert len(retained.json("ls")) == 3
    [done] = retained.json("rm", "home/#", "--yes")
    assert done["count"] == 2
    assert [m["topic"] for m in retained.json("ls")] == ["garden/rain"]
    undone = retained("restore", "--undo", done["operation"])
    assert "restored 2 messages" in undone.stdout, undone.stderr
    assert len(retained.json("ls")) == 3


def test_exit_codes_tell_scripts_what_happened(retained: Command) -> None:
    assert retained("ls", "nothing/#").returncode == 1
    missing = retained("get", "nothing")
    assert (missing.returncode, missing.stderr) == (1, "holdfast: topic 'nothing' is not retained\n")
    assert retained("rm", "nothing/#", "--yes").returncode == 1
    assert retained("at", "yesterday").returncode == 2
    assert retained("restore").returncode == 2
    assert retained("ls", "a/#/b").returncode == 1


def test_a_topic_without_history_is_told_apart_from_messages_that_are_not_recorded(retained: Command) -> None:
    missing = retained("history", "nothing")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert (
        "nothing is recorded for this topic; publishes without RETAIN are not recorded: see history.record"
        in missing.stderr
    )


def test_a_broker_that_is_not_there_is_one_clear_line() -> None:
    done = Command("--url", "http://127.0.0.1:9")("ls")
    assert done.returncode == 1
    assert done.stderr.startswith("holdfast: no answer from http://127.0.0.1:9")
    assert len(done.stderr.splitlines()) == 1


def test_the_past_is_shown_and_restored(running: BrokerProcess, retained: Command) -> None:
    with Api(running) as api:
        version = api.set("home/hall/temperature", "18.0")
        api.set("home/hall/temperature", "17.0")
        api.history("home/hall/temperature", 3)
    rows = retained.json("history", "home/hall/temperature")
    assert [row["text"] for row in rows] == ["17.0", "18.0", "19.0"]
    then = {m["topic"]: m["text"] for m in retained.json("at", f"@{version}", "home/#")}
    assert then == {"home/hall/temperature": "18.0", "home/kitchen/temperature": "21.5"}
    shown = retained("restore", "home/#", "--at", f"@{version}", "--replace")
    assert "would restore 1 message;" in shown.stdout, shown.stderr
    assert retained("get", "home/hall/temperature").stdout == "17.0"
    assert retained("restore", "home/#", "--at", f"@{version}", "--replace", "--yes").returncode == 0
    assert retained("get", "home/hall/temperature").stdout == "18.0"


def test_what_is_exported_is_the_same_after_import(retained: Command, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    assert retained("export", "-o", str(file)).returncode == 0
    before = {m["topic"]: m for m in map(json.loads, file.read_text().splitlines())}
    assert len(before) == 3
    retained("rm", "#", "--yes")
    done = retained("import", "-", stdin=file.read_text())
    assert "imported 3 messages" in done.stderr
    [whole] = retained.json("get", "home/kitchen/temperature")
    for name in ("payload", "qos", "user_properties", "content_type"):
        assert whole[name] == before[whole["topic"]][name]
    [rain] = retained.json("get", "garden/rain")
    assert rain["expires_at_ms"] == pytest.approx(before["garden/rain"]["expires_at_ms"], abs=5000)


def test_ghosts_are_found(retained: Command) -> None:
    [found] = retained.json("ghosts", "--days", "0")
    assert found["stale"]["count"] == 3
    assert "3 of 3 not written for 0 days" in retained("ghosts", "--days", "0").stdout


def test_a_folder_is_read_under_a_running_broker_and_changed_without_one(
    running: BrokerProcess, retained: Command, tmp_path: Path
) -> None:
    folder = Command("--data", str(tmp_path / "data"))
    assert {m["topic"] for m in folder.json("ls")} == {
        "garden/rain",
        "home/hall/temperature",
        "home/kitchen/temperature",
    }
    refused = folder("rm", "home/#", "--yes")
    assert refused.returncode == 1
    assert "--url" in refused.stderr
    assert len(folder.json("ls")) == 3
    running.stop()
    assert folder("get", "home/hall/temperature").stdout == "19.0"
    [done] = folder.json("rm", "home/#", "--yes")
    assert [m["topic"] for m in folder.json("ls")] == ["garden/rain"]
    rows = folder.json("history", "home/hall/temperature")
    assert [(row["outcome"], row["publisher"]["protocol"]) for row in rows] == [("cleared", "api"), ("set", "api")]
    undone = folder("restore", "--undo", done["operation"])
    assert "restored 2 messages" in undone.stdout, undone.stderr
    [kitchen] = folder.json("get", "home/kitchen/temperature")
    assert kitchen["user_properties"] == [["unit", "C"]]


def test_a_folder_takes_back_what_was_exported_and_tells_its_ghosts(
    running: BrokerProcess, retained: Command, tmp_path: Path
) -> None:
    exported = retained("export").stdout
    running.stop()
    folder = Command("--data", str(tmp_path / "data"))
    assert folder("rm", "#", "--yes").returncode == 0
    began = time.monotonic()
    done = folder("import", "-", stdin=exported)
    took_ms = (time.monotonic() - began) * 1000
    assert "imported 3 messages" in done.stderr
    [rain] = folder.json("get", "garden/rain")
    # whole seconds, rounded up, from when the file was read to when the folder was open
    expected_ms = json.loads(exported.splitlines()[-1])["expires_at_ms"]
    assert expected_ms <= rain["expires_at_ms"] <= expected_ms + 1000 + took_ms
    [found] = folder.json("ghosts", "--days", "0")
    assert found["stale"]["count"] == 3
    wrong = folder("import", "-", stdin='{"topic": "a", "payload": "", "qos": 9}')
    assert (wrong.returncode, wrong.stderr.splitlines()[-1]) == (
        1,
        "holdfast: qos: input should be less than or equal to 2",
    )


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    done = Command("--data", str(tmp_path))("ls")
    assert done.returncode == 1
    assert "is not a data folder" in done.stderr
    assert os.listdir(tmp_path) == []


def test_deleting_what_is_not_there_says_so_whether_or_not_it_was_meant(retained: Command) -> None:
    for words in (["nothing/#", "--yes"], ["nothing/#"], ["nothing"]):
        done = retained("rm", *words)
        assert (done.returncode, done.stdout) == (1, "nothing matches, so nothing was deleted\n")


def test_one_message_is_one_message_and_many_are_in_order(retained: Command) -> None:
    assert retained("ls", "garden/#").stderr == "1 message\n"
    assert "would delete 1 message," in retained("rm", "garden/#").stdout
    topics = [message["topic"] for message in retained.json("ls")]
    assert topics == sorted(topics)


def test_a_filter_is_not_taken_for_a_topic(retained: Command) -> None:
    done = retained("get", "home/+/temperature")
    assert done.returncode == 1
    assert "expected a topic without wildcards, got 'home/+/temperature'" in done.stderr


def test_an_export_to_where_nothing_can_be_written_is_one_line(retained: Command, tmp_path: Path) -> None:
    done = retained("export", "-o", str(tmp_path / "no" / "where.jsonl"))
    assert done.returncode == 1
    assert done.stderr == f"holdfast: cannot write {tmp_path}/no/where.jsonl: no such file or directory\n"


def test_a_moment_that_has_not_come_is_refused_and_one_before_the_history_is_explained(
    retained: Command, running: BrokerProcess
) -> None:
    with Api(running) as api:
        api.history("garden/rain", 1)
    assert "expected a time in the past" in retained("at", "2099-01-01").stderr
    never = retained("at", "@999999999")
    assert never.returncode == 1
    assert "no publish has the offset @999999999 yet: the history ends at @" in never.stderr
    before = retained("at", "2020-01-01")
    assert before.returncode == 1
    assert "the history begins at 2" in before.stderr


def test_times_are_shown_with_their_zone(retained: Command) -> None:
    assert re.search(r"\d\d:\d\d:\d\d[+-]\d{4}", retained("ls", "home/#").stdout)


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (["--key", "admin"], "expected --key NAME:SECRET (or HOLDFAST_KEY), got one without a colon"),
        (["--key", "admin:wrong"], "the name or the secret of --key (or HOLDFAST_KEY) is wrong"),
        ([], "asks for a login: give --key NAME:SECRET, or set HOLDFAST_KEY"),
    ],
)
def test_a_wrong_key_is_told_apart_from_none(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, key: list[str], told: str
) -> None:
    users = tmp_path / "users"
    write_password_file(users, {"admin": "right"})
    broker = start_broker(listen=LISTEN, data=tmp_path / "data", auth__password_file=str(users), api__admins="admin")
    url = f"http://127.0.0.1:{broker.ports['http']}"
    done = holdfast("retained", "ls", "--url", url, *key)
    assert done.returncode == 1
    assert told in done.stderr
    assert holdfast("retained", "ls", "--url", url, "--key", "admin:right").stderr == "0 messages\n"
