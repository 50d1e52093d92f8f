"""What the command line loads: in a process of its own, because one that has loaded everything cannot tell."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from broker_process import serve_environment
from holdfast.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env=serve_environment(), capture_output=True, text=True)


WITHOUT_EXTRAS = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {forbidden!r}:
            raise ImportError(f"{{name}} is not a runtime dependency")

sys.meta_path.insert(0, Refuse())
from holdfast.cli.main import main
for words in {asked!r}:
    try:
        main(words)
    except SystemExit as ended:
        print(words, ended.code, file=sys.stderr)
"""


def runtime_distributions() -> set[str]:
    """What `pip install holdfast-mqtt` brings: its dependencies and theirs, without extras."""
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


def test_the_command_line_works_with_runtime_dependencies_only() -> None:
    ours = importlib.metadata.packages_distributions()["holdfast"]
    runtime = runtime_distributions() | {name.lower().replace("_", "-") for name in ours}
    forbidden = {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if not {owner.lower().replace("_", "-") for owner in owners} & runtime
    }
    assert {"pytest", "mypy", "hypothesis"} <= forbidden
    asked = [["--help"], ["--version"], ["check-config"], *([name, "--help"] for name in COMMANDS)]
    result = python(WITHOUT_EXTRAS.format(forbidden=forbidden, asked=asked))
    assert result.stderr.splitlines() == [f"{words} 0" for words in asked]


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
    result = python(code)
    assert "holdfast.cli.main" in result.stderr
    for unwanted in ("holdfast.config", "holdfast.server", "holdfast.broker.core", "holdfast.cli.serve"):
        assert f"'{unwanted}'" not in result.stderr
