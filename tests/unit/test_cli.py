"""The command line as a whole: what it offers, how it helps and how it fails."""

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from holdfast import __version__, build
from holdfast.cli.main import COMMANDS
from holdfast.cli.reference import reference

ROOT = Path(__file__).parents[2]


def holdfast(*words: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    env = {
        name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_") or name == "HOLDFAST_PURE"
    }
    env |= {"COLUMNS": "200", "NO_COLOR": "1"} | (environ or {})
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *words], env=env, capture_output=True, text=True, timeout=60, check=False
    )


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


WITHOUT_EXTRAS = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {forbidden!r}:
            raise ImportError(f"{{name}} is not a runtime dependency")

sys.meta_path.insert(0, Refuse())
from holdfast.cli.main import main
main({words!r})
"""


def runtime_distributions() -> set[str]:
    """What `pip install holdfast` brings: its dependencies and theirs, without extras."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found: set[str] = set()
    while wanted:
        requirement = wanted.pop()
        name = re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")  # type: ignore[index]
        if "extra ==" in requirement or name in found:
            continue
        try:
            wanted += importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform or version of Python
        found.add(name)
    return found


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["check-config"], *([name, "--help"] for name in COMMANDS)]
)
def test_the_command_line_works_with_runtime_dependencies_only(words: list[str]) -> None:
    runtime = runtime_distributions() | {"holdfast"}
    forbidden = {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if not {owner.lower().replace("_", "-") for owner in owners} & runtime
    }
    assert {"pytest", "mypy", "hypothesis"} <= forbidden
    code = WITHOUT_EXTRAS.format(forbidden=forbidden, words=words)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("words", [["--help"], ["pub", "--help"]])
def test_a_command_loads_only_itself(words: list[str]) -> None:
    code = f"""
import sys
from holdfast.cli.main import main
try:
    main({words!r})
except SystemExit:
    pass
print(sorted(sys.modules), file=sys.stderr)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "holdfast.cli.main" in result.stderr
    for unwanted in ("holdfast.config", "holdfast.server", "holdfast.broker.core", "holdfast.cli.serve"):
        assert f"'{unwanted}'" not in result.stderr
