"""Completion in the shell: the script that `--show-completion` prints, run by a real bash as TAB would run it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from broker_process import serve_environment

TAB = """
source completion.sh
complete -p holdfast >/dev/null || exit 3
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_holdfast_completion holdfast "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., set[str]]:
    """What bash offers after these words."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    folder = tmp_path_factory.mktemp("completion")
    command = folder / "holdfast"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast "$@"\n')
    command.chmod(0o755)
    (folder / "tab.sh").write_text(TAB)

    def run(*words: str) -> str:
        environment = {**serve_environment(), "PATH": f"{folder}:{os.environ['PATH']}"}
        ran = subprocess.run([bash, "--norc", *words], env=environment, cwd=folder, capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (0, "")
        return ran.stdout

    # a bash that stays: the shell is told by who has started the command
    (folder / "completion.sh").write_text(run("-c", "holdfast --show-completion; exit $?"))
    return lambda *words: set(run("tab.sh", *words).split())


def test_a_command_is_completed(tab: Callable[..., set[str]]) -> None:
    assert tab("holdfast", "ret") == {"retained"}
    assert tab("holdfast", "p") == {"pub", "pipeline", "passwd"}


def test_a_command_within_a_command_is_completed(tab: Callable[..., set[str]]) -> None:
    assert tab("holdfast", "pipeline", "re") == {"replay", "report", "restore", "retained"}


def test_an_option_is_completed(tab: Callable[..., set[str]]) -> None:
    assert tab("holdfast", "pipeline", "stats", "--max-") == {"--max-retained-messages", "--max-payload-size"}


def test_what_nothing_begins_with_is_left_to_the_shell(tab: Callable[..., set[str]]) -> None:
    assert tab("holdfast", "nothing-like-it") == set()


def test_values_are_completed(tab: Callable[..., set[str]]) -> None:
    assert tab("holdfast", "bench", "f") == {"fanout"}
    assert tab("holdfast", "pub", "-V", "3") == {"31", "311"}
    assert tab("holdfast", "serve", "--set", "sn.retr") == {"sn.retry_interval=", "sn.retries="}
    assert tab("holdfast", "serve", "--set", "durability=d") == {"durability=deliver"}
    assert tab("holdfast", "serve", "--listen", "ht") == {"http://", "https://"}
    assert tab("holdfast", "passwd", "--hash", "arg") == {"argon2id"}
