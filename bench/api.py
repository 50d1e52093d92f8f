"""The speed of the HTTP API and the dashboard: python bench/api.py [--topics N]

How long does the first page of a listing take with many retained messages, for any filter? How long does a browser take
to open a node of the tree? How much more does a message cost the broker with a dashboard open and live? On loopback,
with the build that is installed. The exit code is 1 when a bound is missed.
"""

import argparse
import contextlib
import http.client
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

PAGE_MS = 50
OPEN_MS = 100
DROP_PERCENT = 5.0
FILTERS = [
    "#",
    "fleet/#",
    "fleet/+/unit0007/state",
    "+/+/+/state",
    "fleet/line007/#",
    "nothing/+/here",
    "+/line500/+/state",
]
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]


class Broker:
    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "holdfast", "serve", "--data", str(folder)]
        command += ["--listen", "tcp://127.0.0.1:0", "--listen", "http://127.0.0.1:0"]
        command += ["--set", "history.enable=false", "--set", "sys.interval=0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.ports: dict[str, int] = {}
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "listening " in line:
                scheme, _, port = line.split("listening ")[1].strip().rpartition(":")
                self.ports[scheme.partition(":")[0]] = int(port)
            if len(self.ports) == 2:
                break
        if len(self.ports) < 2:
            raise SystemExit("the broker did not start")
        self.connection = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=120)

    def call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body)
        self.connection.request(method, path, data, {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        content = response.read()
        if response.status >= 300:
            raise SystemExit(f"{method} {path}: {response.status} {content[:200]!r}")
        return json.loads(content)

    def fill(self, count: int) -> None:
        for start in range(0, count, 1000):
            batch = [
                {"topic": f"fleet/line{start // 1000:03}/unit{n:04}/state", "payload": "running", "retain": True}
                for n in range(min(1000, count - start))
            ]
            self.call("POST", "/api/v1/publish/batch", batch)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def first_pages(broker: Broker) -> bool:
    good = True
    for name, query in [*((f, f"filter={quote(f)}") for f in FILTERS), ("contains=unit0999", "contains=unit0999")]:
        times = []
        found = 0
        for _ in range(20):
            started = time.perf_counter()
            found = len(broker.call("GET", f"/api/v1/retained?limit=100&{query}")["messages"])
            times.append((time.perf_counter() - started) * 1000)
        median, worst = statistics.median(times), max(times)
        good = good and median < PAGE_MS
        print(f"first page of {name:28} {median:7.1f} ms, slowest {worst:7.1f} ms, {found} messages")
    return good


@contextlib.contextmanager
def browsers() -> Iterator[Any]:
    """A headless browser, or None where there is none."""
    program = shutil.which("chromium")
    if program is None or importlib.util.find_spec("playwright") is None:
        print("the browser's part is not measured: chromium or playwright is not installed")
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=program, args=FLAGS)


def opened_nodes(broker: Broker, browser: Any) -> bool:
    if browser is None:
        return True
    script = """async (path) => {
        const started = performance.now();
        document.querySelector(`.row[data-path="${path}"] .twist`).click();
        while (!document.querySelector(`.row[data-path="${path}/unit0000"]`)) {
            await new Promise((done) => requestAnimationFrame(done));
        }
        const took = performance.now() - started;
        document.querySelector(`.row[data-path="${path}"] .twist`).click();
        return took;
    }"""
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{broker.ports['http']}/#explorer")
    page.click('.row[data-path="fleet"]')
    page.wait_for_selector('.row[data-path="fleet/line009"]')
    times: list[float] = [page.evaluate(script, f"fleet/line{n:03}") for n in range(10)]
    page.close()
    print(f"opening a node in the browser      {statistics.median(times):7.1f} ms, slowest {max(times):7.1f} ms")
    return statistics.median(times) < OPEN_MS


def cost(broker: Broker) -> float:
    """Microseconds of the broker's processor time for each message of a pair that goes flat out."""
    process = psutil.Process(broker.process.pid)
    command = [sys.executable, "-m", "holdfast", "bench", "pair", "-p", str(broker.ports["tcp"])]
    before = process.cpu_times()
    done = subprocess.run([*command, "--duration", "5", "--json"], capture_output=True, text=True, check=True)
    after = process.cpu_times()
    spent: float = after.user + after.system - before.user - before.system
    return spent * 1e6 / float(json.loads(done.stdout)["received"])


def live_cost(broker: Broker, browser: Any) -> bool:
    """Processor time rather than messages a second: on a busy machine the latter says more about the neighbours."""
    if browser is None:
        return True
    without, along = [], []
    for _ in range(3):
        without.append(cost(broker))
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{broker.ports['http']}/#explorer")
        page.wait_for_selector("#status[data-state=on]")
        page.click('.row[data-path="fleet"]')
        along.append(cost(broker))
        page.close()
    more = (min(along) / min(without) - 1) * 100
    print(f"a message costs {min(without):.3f} us, with a dashboard open {min(along):.3f} us: {more:+.1f} %")
    return more < DROP_PERCENT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        try:
            started = time.perf_counter()
            broker.fill(options.topics)
            print(f"{options.topics} messages set through the API in {time.perf_counter() - started:.1f} s")
            good = first_pages(broker)
            with browsers() as browser:
                good = opened_nodes(broker, browser) and good
                good = live_cost(broker, browser) and good
        finally:
            broker.stop()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
