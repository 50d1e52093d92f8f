"""The `holdfast` command, called in this process, which takes milliseconds, or in one of its own, which takes a second.

The latter is for commands that end their process, and for what only a process shows.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass
from unittest import mock

from broker_process import serve_environment
from holdfast.cli.main import main

SHOWN = {"COLUMNS": "200", "NO_COLOR": "1"}


@dataclass(frozen=True)
class Done:
    returncode: object
    stdout: str
    stderr: str


def holdfast(*words: str, stdin: str = "") -> Done:
    """Run it to its end."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    code: object = 0
    with (
        mock.patch.dict(os.environ, SHOWN),
        mock.patch("sys.stdin", given),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main(list(words))
        except SystemExit as ended:
            code = ended.code
    return Done(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def holdfast_process(*words: str, stdin: str = "") -> Done:
    command = [sys.executable, "-m", "holdfast", *words]
    environment = {**serve_environment(), **SHOWN}
    ran = subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True, check=False)
    return Done(ran.returncode, ran.stdout, ran.stderr)
