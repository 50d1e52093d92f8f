"""`holdfast demo` as its user sees it: what it proves, what it says when that fails, and what it leaves behind."""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import paho.mqtt.client as paho
import psutil
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from holdfast.errors import UsageError
from holdfast_demo.command import _one_sentence

TIMEOUT_S = 400.0
SHORT = ("--rounds", "2")

pytestmark = pytest.mark.timeout(1000)


class Demo:
    """A running demo, with its output as far as it has come, and every process it has started."""

    def __init__(self, *flags: str, **environ: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        kept |= {name: os.environ[name] for name in ("HOLDFAST_PURE",) if name in os.environ}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "demo", *flags],
            env=kept | {"COLUMNS": "200"} | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # a shell starts what it puts into the background deaf to Ctrl-C, and the tests may be that
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.output = ""
        self.children: dict[int, psutil.Process] = {}
        self._changed = threading.Condition()
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    self.output += line
                    self._changed.notify_all()

    def wait_for(self, text: str) -> None:
        """Until it has said this, noting who works for it then."""
        with self._changed:
            found = self._changed.wait_for(lambda: text in self.output, TIMEOUT_S)
        assert found, f"expected {text!r} within {TIMEOUT_S} s, got:\n{self.output}"
        for child in psutil.Process(self.process.pid).children(recursive=True):
            self.children[child.pid] = child

    def wait(self) -> int:
        code = self.process.wait(TIMEOUT_S)
        self._reader.join(120)
        return code

    def left_running(self) -> list[psutil.Process]:
        _, alive = psutil.wait_procs(list(self.children.values()), timeout=120)
        return [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]

    def port(self) -> int:
        found = re.search(r"tcp://127\.0\.0\.1:(\d+)", self.output)
        assert found, self.output
        return int(found[1])


@pytest.fixture
def demo() -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def start(*flags: str, **environ: str) -> Demo:
        started.append(Demo(*flags, **environ))
        return started[-1]

    yield start
    for running in started:
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGTERM)
            running.wait()


def test_everything_is_proven_and_the_broker_is_kept_until_ctrl_c(demo: Callable[..., Demo], tmp_path: Path) -> None:
    running = demo("--keep", "--data", str(tmp_path / "demo"), *SHORT)
    running.wait_for("until Ctrl-C")
    proven = [line for line in running.output.splitlines() if line.startswith("  ✓ ")]
    assert len(proven) == 5, running.output
    assert "✗" not in running.output
    assert "0 differences" in running.output
    assert (tmp_path / "demo" / "report.html").stat().st_size > 1_000_000

    tried = next(line for line in running.output.splitlines() if " sub -p " in line)
    words = [sys.executable, "-m", "holdfast", *shlex.split(tried)[1:], "-C", "1", "-W", "120"]
    heard = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert heard.returncode == 0, heard.stderr
    assert heard.stdout.startswith("site/2/")

    running.process.send_signal(signal.SIGINT)
    assert running.wait() == 0, running.output
    assert running.left_running() == []


def test_a_message_that_nobody_of_the_fleet_sent_makes_it_fail(demo: Callable[..., Demo], tmp_path: Path) -> None:
    running = demo("--data", str(tmp_path / "demo"), *SHORT)
    running.wait_for("messages are back")
    stranger = paho.Client(CallbackAPIVersion.VERSION2)
    stranger.connect("127.0.0.1", running.port())
    stranger.loop_start()
    stranger.publish("stranger/state", b"here", qos=1, retain=True).wait_for_publish(120)
    stranger.disconnect()
    stranger.loop_stop()
    assert running.wait() == 1, running.output
    assert "✗ the fleet's own books" in running.output
    assert running.left_running() == []


def test_ctrl_c_in_the_middle_ends_all_that_was_started(demo: Callable[..., Demo], tmp_path: Path) -> None:
    running = demo("--data", str(tmp_path / "demo"), "--rounds", "100000")
    running.wait_for("fleet:")
    assert len(running.children) >= 2  # the broker, and Java or what starts it
    running.process.send_signal(signal.SIGINT)
    assert running.wait() == 130, running.output
    assert "Traceback" not in running.output
    assert running.left_running() == []


def test_a_folder_with_files_in_it_is_refused(demo: Callable[..., Demo], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("not yours")
    running = demo("--data", str(tmp_path))
    assert running.wait() == 1
    assert running.output == f"holdfast: expected {tmp_path} to be a new or empty folder, got one with files in it\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_without_java_it_says_what_to_install_and_starts_nothing(demo: Callable[..., Demo], tmp_path: Path) -> None:
    running = demo("--data", str(tmp_path / "demo"), JAVA_HOME=str(tmp_path / "no-java"))
    assert running.wait() == 1
    assert "Java 17 or newer" in running.output
    assert len(running.output.splitlines()) == 1
    assert not (tmp_path / "demo").exists()


def test_an_error_without_words_is_said_by_its_name() -> None:
    with pytest.raises(UsageError, match=r"the demo cannot go on: TimeoutError$"), _one_sentence(False):
        raise TimeoutError
