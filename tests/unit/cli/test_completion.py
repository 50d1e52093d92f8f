"""Completion in the shell: the script that `--show-completion` prints, run by a real bash as TAB would run it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TAB = """
eval "$(holdfast --show-completion)"
complete -p holdfast >/dev/null || exit 3
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_holdfast_completion holdfast "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def tab(tmp_path: Path) -> Callable[..., set[str]]:
    """What bash offers after these words."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    command = tmp_path / "holdfast"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast "$@"\n')
    command.chmod(0o755)
    (tmp_path / "tab.sh").write_text(TAB)

    def press(*words: str) -> set[str]:
        ran = subprocess.run(
            [bash, "--norc", str(tmp_path / "tab.sh"), *words],
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        return set(ran.stdout.split())

    return press


def test_a_command_is_completed(tab: Callable[..., set[str]]) -> None:
    assert tab("holdfast", "ret") == {"retained"}
    assert tab("holdfast", "p") == {"pub", "pipeline", "passwd"}


def test_a_command_within_a_command_is_completed(tab: Callable[..., set[str]]) -> None:
    assert tab("holdfast", "pipeline", "re") == {"retained", "restore", "report"}


def test_an_option_is_completed(tab: Callable[..., set[str]]) -> None:
    assert tab("holdfast", "pipeline", "stats", "--max-") == {"--max-retained-messages", "--max-payload-size"}


def test_what_nothing_begins_with_is_left_to_the_shell(tab: Callable[..., set[str]]) -> None:
    assert tab("holdfast", "nothing-like-it") == set()
