"""Tries a wheel where nothing else is installed: starts the broker, retains a message, reads it back, opens the
dashboard and asks for the message's history.

Run by `scripts/wheels` with the Python of the environment into which the wheel was installed. It uses the standard
library and the `holdfast` command beside that Python, and nothing else.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

PATIENCE_S = 120
COMMAND = str(Path(sys.executable).with_name("holdfast"))
TOPIC, VALUE = "wheel/tried", "21.5"


class Failed(Exception):
    pass


def run(*words: str) -> str:
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode:
        raise Failed(f"`holdfast {' '.join(words)}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def ports(log: Path, broker: "subprocess.Popen[bytes]") -> dict[str, str]:
    """The ports by URL scheme, once both listeners are up."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and broker.poll() is None:
        found = dict(re.findall(r"listening (tcp|http)://127\.0\.0\.1:(\d+)", log.read_text()))
        if len(found) == 2:
            return found
        time.sleep(0.1)
    raise Failed(f"expected a broker that listens, got:\n{log.read_text()}")


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        found: bytes = answer.read()
        return found


def serve_a_message(at: dict[str, str]) -> None:
    run("pub", "-p", at["tcp"], "-t", TOPIC, "-m", VALUE, "-r", "-q", "1")
    if (got := run("sub", "-p", at["tcp"], "-t", TOPIC, "-C", "1", "-W", "60")) != VALUE:
        raise Failed(f"expected {VALUE!r} from the broker, got {got!r}")


def show_the_dashboard(at: dict[str, str]) -> None:
    base = f"http://127.0.0.1:{at['http']}"
    page = get(f"{base}/").decode()
    for name in re.findall(r'(?:src|href)="(/static/[^"]+)"', page):
        get(base + name)
    if "<title>" not in page:
        raise Failed(f"expected the dashboard, got {page[:200]!r}")


def remember(at: dict[str, str]) -> None:
    url = f"http://127.0.0.1:{at['http']}/api/v1/history?topic={TOPIC}"
    deadline = time.monotonic() + PATIENCE_S
    rows: list[Any] = []
    while time.monotonic() < deadline:
        rows = json.loads(get(url))["rows"]
        if [row["text"] for row in rows] == [VALUE]:
            return
        time.sleep(0.2)
    raise Failed(f"expected one row of history, got {rows}")


def main(name: str) -> int:
    wanted = "interpreted" if name.endswith("none-any.whl") else "compiled"
    os.environ.pop("HOLDFAST_PURE", None)
    try:
        if wanted not in (version := run("--version")):
            raise Failed(f"expected the {wanted} build, got {version!r}")
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log")
            listen = ["--listen", "tcp://127.0.0.1:0", "--listen", "http://127.0.0.1:0"]
            with log.open("wb") as output:
                words = [COMMAND, "serve", "--data", f"{folder}/data", *listen]
                broker = subprocess.Popen(words, stdout=output, stderr=output, cwd=folder)
            try:
                at = ports(log, broker)
                serve_a_message(at)
                show_the_dashboard(at)
                remember(at)
            finally:
                broker.terminate()
                broker.wait(PATIENCE_S)
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        print(f"wheels: {name}: {error}", file=sys.stderr)
        return 1
    where = f"Python {sys.version.split()[0]}, {wanted}"
    print(f"wheels: {Path(name).name} serves a message, the dashboard and the history ({where})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
