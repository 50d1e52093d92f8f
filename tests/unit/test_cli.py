"""The command line as a whole: what it offers, how it helps and how it fails."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from command_line import holdfast
from holdfast import __version__, build
from holdfast.cli.main import COMMANDS
from holdfast.cli.reference import reference

ROOT = Path(__file__).parents[2]


def test_version_names_the_release_and_the_build() -> None:
    result = holdfast("--version")
    assert result.stdout == f"holdfast {__version__} ({build.name()}, Python {sys.version.split()[0]})\n"
    assert result.returncode == 0


def test_the_release_is_the_same_in_code_and_package() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__


def test_help_lists_every_command_with_its_summary() -> None:
    result = holdfast("--help")
    assert result.returncode == 0
    for name, command in COMMANDS.items():
        assert re.search(rf"\b{name}\s+{re.escape(command.summary)}", result.stdout)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    result = holdfast(name, "--help")
    assert result.returncode == 0, result.stderr
    assert "Examples:" in result.stdout
    assert re.search(rf"^\W*(?:\w+=\S+ )*holdfast {name} \S", result.stdout.split("Examples:")[1], re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help_text(name: str) -> None:
    section = reference().split(f"\n## `holdfast {name}`\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \| (.*?) \| .* ?\|$", section, re.MULTILINE)
    assert rows
    assert [flags for flags, meaning in rows if not meaning.strip()] == []


def test_the_command_reference_is_what_the_code_says_now() -> None:
    assert (ROOT / "docs/reference/commands.md").read_text() == reference(), "run `make docs`"


def test_a_misspelt_command_is_answered_with_the_nearest_one() -> None:
    result = holdfast("serv")
    assert result.returncode == 2
    assert "serve" in result.stderr
    assert "Traceback" not in result.stderr


def test_without_words_the_help_is_shown() -> None:
    result = holdfast()
    assert result.returncode == 2
    assert "holdfast serve" in result.stdout + result.stderr


@pytest.mark.parametrize("words", [["serve"], ["pub"], ["retained", "ls"], ["pipeline", "run"], []])
def test_help_shows_no_value_behind_a_flag(words: list[str]) -> None:
    shown = holdfast(*words, "--help").stdout
    assert "--help" in shown
    assert "bool" not in shown.lower()


def test_no_row_of_the_reference_is_broken_by_a_bar_or_names_an_argument_twice() -> None:
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert [row for row in rows if len(re.findall(r"(?<!\\)\|", row)) != 4] == []
    assert [row for row in rows if re.match(r"\| `([A-Z]+) \1`", row)] == []
