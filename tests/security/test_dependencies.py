"""What a build is made of is known, and what is not known about it is never taken for good."""

import importlib.util
import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain(name: str) -> str:
    """A package's name as every index spells it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[ \[<>=!;~]", name, maxsplit=1)[0]).lower()


def named(*extras: str) -> set[str]:
    lines = [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    return {plain(line) for line in lines} - {PROJECT["name"]}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not (ROOT / ".venv/bin/python").exists():
        pytest.skip("there is no .venv to list")
    if not list(ROOT.glob(".make/tools-*")):
        pytest.skip("cyclonedx-bom is not installed: scripts/tools brings it")
    done = subprocess.run([ROOT / "scripts/sbom"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_list_of_parts_is_cyclonedx_and_names_every_dependency(document: dict[str, Any]) -> None:
    """The script has checked it against the format's schema; this is what the schema does not ask for."""
    assert document["bomFormat"] == "CycloneDX"
    assert document["metadata"]["component"]["name"] == PROJECT["name"]
    assert document["metadata"]["component"]["version"] == PROJECT["version"]
    parts = {plain(part["name"]): part for part in document["components"]}
    wanted = {plain(line) for line in PROJECT["dependencies"]} | named("history", "spark", "connect", "ui")
    assert wanted <= set(parts), wanted - set(parts)
    assert {"cryptography", "cffi", "starlette", "numpy"} <= set(parts), "dependencies of dependencies"
    for part in parts.values():
        assert part["version"]
        assert part["purl"].startswith("pkg:pypi/")
    # The wheel of protobuf (BSD-3-Clause) does not say what its licence is.
    assert {name for name, part in parts.items() if not part.get("licenses")} <= {"protobuf"}


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_list_of_parts_has_no_tools_of_the_checkout_in_it(document: dict[str, Any]) -> None:
    parts = {plain(part["name"]) for part in document["components"]}
    shipped = {plain(line) for line in PROJECT["dependencies"]} | named("history", "spark", "connect", "ui")
    assert parts.isdisjoint(named("dev") - shipped)
    assert parts.isdisjoint({"pip-audit", "cyclonedx-bom", "pip", "setuptools"})
    known = parts | {"root-component"}
    links = {plain(one["ref"].partition("==")[0]) for one in document["dependencies"]}
    assert links <= known


SOUND = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "Dependency not found on PyPI and could not be audited: b (1)"}
OWN = {"name": "holdfast-mqtt", "skip_reason": "distribution marked as editable"}
HOLE = {"name": "c", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([SOUND, OWN], 0),
        ([SOUND, SKIPPED, OWN], 3),
        ([SKIPPED], 3),
        ([OWN], 3),
        ([], 3),
        ([HOLE, SOUND], 1),
        ([HOLE, SKIPPED], 1),
    ],
)
def test_an_audit_that_could_not_look_is_not_a_good_one(
    found: list[dict[str, Any]], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load("audit").judge(found) == code
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 1
    assert ("PYSEC-1" in said.out) == (HOLE in found)
