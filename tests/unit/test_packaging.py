"""How Holdfast is installed: under which name, in which parts, and with what a wheel of it promises."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = ("src", "docs", "tests", "bench", "scripts", "deploy", ".github", ".ci")
NOT_OURS = {"node_modules", "__pycache__", "corpus", "findings", "files"}
# The name alone is a package of somebody else: asking pip for it brings their code.
FOREIGN = re.compile(r"install (?:-U |--upgrade )?['\"]?holdfast(?![-_\w/.])|\bholdfast\[")


def texts() -> list[Path]:
    inside = [path for folder in OURS for path in (ROOT / folder).rglob("*") if NOT_OURS.isdisjoint(path.parts)]
    files = [path for path in [*ROOT.iterdir(), *inside] if path.is_file() and path.stat().st_size < 2_000_000]
    return [path for path in files if path != Path(__file__) and path.suffix not in (".png", ".so", ".pyc")]


def test_nobody_is_sent_to_the_package_of_somebody_else() -> None:
    assert FOREIGN.search("pip install " + "holdfast") is not None
    assert FOREIGN.search("holdfast" + "[history]") is not None
    assert FOREIGN.search("pip install 'holdfast-mqtt[history]'") is None
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in texts()
        for line in path.read_text(errors="replace").splitlines()
        if FOREIGN.search(line)
    ]
    assert found == []


def test_the_package_is_holdfast_mqtt_and_the_command_is_holdfast() -> None:
    assert PROJECT["name"] == "holdfast-mqtt"
    assert list(PROJECT["scripts"]) == ["holdfast"]


def test_all_is_history_and_dashboard_and_no_spark() -> None:
    assert PROJECT["optional-dependencies"]["all"] == ["holdfast-mqtt[history,ui]"]
