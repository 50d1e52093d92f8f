"""The first words of `holdfast serve`, and a port that it cannot have."""

import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker_process import BrokerProcess, serve_environment
from holdfast import __version__, build


@dataclass
class Refused:
    url: str
    code: int
    err: str
    data: Path


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Refused:
    """A start on a port that another program has."""
    folder = tmp_path_factory.mktemp("refused")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "holdfast", "serve", "--data", str(folder / "data"), "--listen", url]
        done = subprocess.run(command, env=serve_environment(), cwd=folder, capture_output=True, text=True, check=False)
    return Refused(url, done.returncode, done.stderr, folder / "data")


def test_a_port_in_use_is_one_clear_line_and_exit_code_1(refused: Refused) -> None:
    assert refused.code == 1
    assert "Traceback" not in refused.err
    (line,) = refused.err.splitlines()
    assert line.startswith("holdfast: ")
    assert refused.url in line
    assert "in use" in line


def test_a_start_that_fails_leaves_no_data_folder_behind(refused: Refused) -> None:
    assert not refused.data.exists()


def test_the_first_line_names_version_and_build_and_an_interpreted_one_says_so(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    output = start_broker().output
    assert f"starting version={__version__} build={build.name()}" in output.splitlines()[0]
    assert ("the hot path is interpreted" in output) is not build.is_compiled()
