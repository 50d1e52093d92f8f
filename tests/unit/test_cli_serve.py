"""`holdfast serve` up to the moment it serves: configuration, first words, and failures told in a line."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from holdfast import __version__, build


def serve(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {
        name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_") or name == "HOLDFAST_PURE"
    }
    command = [sys.executable, "-m", "holdfast", "serve", "--data", str(folder / "data"), *words]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_a_problem_in_the_configuration_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    result = serve(tmp_path, "--set", "limits.max_qso=1")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == (
        'holdfast: limits.max_qso (--set): unknown key (value "1"); nearest known key: limits.max_qos\n'
    )


def test_every_problem_has_a_line_of_its_own(tmp_path: Path) -> None:
    result = serve(tmp_path, "--set", "limits.max_qos=7", "--set", "log.level=loud")
    assert result.returncode == 1
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("holdfast: ") for line in lines)


def test_a_listener_open_to_strangers_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    result = serve(tmp_path, "--listen", "tcp://0.0.0.0:0")
    assert result.returncode == 1
    assert "asks nobody to log in" in result.stderr
    assert not (tmp_path / "data").exists()


def test_a_port_in_use_is_one_clear_line_and_exit_code_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        result = serve(tmp_path, "--listen", url)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("holdfast: ")]
    assert url in line
    assert "in use" in line


def test_the_first_line_names_version_and_build_and_an_interpreted_one_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that it ends by itself
        result = serve(tmp_path, "--listen", f"tcp://127.0.0.1:{taken.getsockname()[1]}")
    first = result.stderr.splitlines()[0]
    assert f"starting version={__version__} build={build.name()}" in first
    assert ("the hot path is interpreted" in result.stderr) is not build.is_compiled()
