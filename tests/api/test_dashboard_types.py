"""The types that the dashboard's scripts are checked with are those of the API."""

import subprocess
import sys
from pathlib import Path

from broker_process import serve_environment

ROOT = Path(__file__).parents[2]


def test_the_types_are_what_the_openapi_document_says_now() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "api_types.py"],
        capture_output=True,
        text=True,
        check=True,
        env=serve_environment(),
    )
    assert (ROOT / "src" / "holdfast" / "ui" / "api.d.ts").read_text() == done.stdout, "run `make docs`"
