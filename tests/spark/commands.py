"""`holdfast pipeline` in a Spark that is there already. Starting one takes seconds, and few tests are about that.

As a program it is the same for a Spark elsewhere: commands come as lines of JSON, and all are done in the session that
the first of them started.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from holdfast.cli.main import main
from holdfast.spark import session

Ran = subprocess.CompletedProcess[str]
Pipeline = Callable[..., Ran]
# Short runs spend most of their time in the compiler that makes long ones fast.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def run_command(*words: str) -> Ran:
    """What a command would print as a process, and its exit code."""
    out, err = StringIO(), StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    code: object = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(["pipeline", *words])
        except SystemExit as end:
            code = end.code
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return Ran(words, code if isinstance(code, int) else 1, out.getvalue(), err.getvalue())


class Commands:
    """A process that does one command after another in a session of its own."""

    def __init__(self, master: str) -> None:
        self.master = master
        tests = str(Path(__file__).parents[1])
        path = os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "spark.commands"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "JAVA_TOOL_OPTIONS": QUICK_JAVA},
        )

    def __call__(self, command: str, *flags: str) -> Ran:
        words = [command, "--master", self.master, *flags]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(words), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"the process ended with {self._process.wait()} at `{' '.join(words)}`"
        return Ran(words, *json.loads(answer))

    def close(self) -> None:
        """It ends with what it reads, and Java with it."""
        self._process.communicate()


def _keep_the_first_session() -> None:
    start = session.start_session
    started: list[Any] = []

    def start_once(*words: Any, **flags: Any) -> Any:
        if not started:
            started.append(start(*words, **flags))
            started[0].stop = lambda: None
        return started[0]

    session.start_session = start_once


if __name__ == "__main__":
    _keep_the_first_session()
    for line in sys.stdin:
        ran = run_command(*json.loads(line))
        print(json.dumps([ran.returncode, ran.stdout, ran.stderr]), flush=True)
