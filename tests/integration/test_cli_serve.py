"""The first words of `holdfast serve`, and a port that it cannot have."""

import socket
import subprocess
import sys
from dataclasses import dataclass

import pytest

from broker_process import serve_environment
from holdfast import __version__, build


@dataclass
class Refused:
    url: str
    code: int
    err: str


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Refused:
    """A start on a port that another program has."""
    folder = tmp_path_factory.mktemp("refused")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "holdfast", "serve", "--data", str(folder / "data"), "--listen", url]
        done = subprocess.run(command, env=serve_environment(), cwd=folder, capture_output=True, text=True, check=False)
    return Refused(url, done.returncode, done.stderr)


def test_a_port_in_use_is_one_clear_line_and_exit_code_1(refused: Refused) -> None:
    assert refused.code == 1
    assert "Traceback" not in refused.err
    (line,) = [line for line in refused.err.splitlines() if line.startswith("holdfast: ")]
    assert refused.url in line
    assert "in use" in line


def test_the_first_line_names_version_and_build_and_an_interpreted_one_says_so(refused: Refused) -> None:
    first = refused.err.splitlines()[0]
    assert f"starting version={__version__} build={build.name()}" in first
    assert ("the hot path is interpreted" in refused.err) is not build.is_compiled()
