"""The demo's broker: a process of its own that can be killed and started again on the same ports."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from holdfast.errors import UsageError

START_S: Final = 30.0
STOP_S: Final = 15.0
SCHEMES: Final = ("tcp", "udp", "http")


class DemoBroker:
    """A running `holdfast serve`. What it says goes to a file beside its data."""

    def __init__(self, config: Path, data: Path, log: Path) -> None:
        self.config, self.data, self.log = config, data, log
        self.urls = {scheme: f"{scheme}://127.0.0.1:0" for scheme in SCHEMES}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    def port(self, scheme: str) -> int:
        return urlsplit(self.urls[scheme]).port or 0

    def start(self) -> None:
        """Start it and wait until it listens. The first start lets the system pick ports, the next ones keep them."""
        command = [sys.executable, "-m", "holdfast", "serve", "--config", str(self.config), "--data", str(self.data)]
        for url in self.urls.values():
            command += ["--listen", url]
        # settings of whoever runs the demo are not the demo's
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        if "HOLDFAST_PURE" in os.environ:
            kept["HOLDFAST_PURE"] = os.environ["HOLDFAST_PURE"]
        kept["PYTHONUNBUFFERED"] = "1"
        begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            # in a session of its own: Ctrl-C is for the demo, which then ends the broker in good order
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=kept, start_new_session=True
            )
        self._wait_until_listening(begin)

    def _wait_until_listening(self, begin: int) -> None:
        deadline = time.monotonic() + START_S
        while True:
            lines = self.log.read_bytes()[begin:].decode(errors="replace").splitlines()
            found = [line.partition("listening ")[2].split()[0] for line in lines if "listening " in line]
            urls = {urlsplit(url).scheme: url for url in found if "://" in url}
            if all(scheme in urls for scheme in SCHEMES):
                self.urls = {scheme: urls[scheme] for scheme in SCHEMES}
                return
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.stop()
                said = lines[-1] if lines else "nothing"
                what = "ended at once" if ended else f"did not listen within {START_S:g} s"
                raise UsageError(f"the demo's broker {what}; the last it said was: {said}")
            time.sleep(0.05)

    def kill(self) -> None:
        """As a power cut would: no warning, nothing tidied up."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As an operator would; safe to repeat."""
        self._end(signal.SIGTERM)

    def wait(self) -> int:
        """Until it ends by itself."""
        return 0 if self._process is None else self._process.wait()

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
