"""What a build is made of is known, and what is not known about it is never taken for good."""

import importlib.util
import json
import re
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SHIPPED = [extra for extra in PROJECT["optional-dependencies"] if extra != "dev"]


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
    wanted = {plain(line) for line in PROJECT["dependencies"]} | named(*SHIPPED)
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
    needed = {plain(line) for line in PROJECT["dependencies"]} | named(*SHIPPED)
    needed |= {plain(line) for part in parts for line in requires(part) or [] if "extra ==" not in line}
    assert parts.isdisjoint(named("dev") - needed)
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


LOCKS = {path.stem: path for path in sorted((ROOT / "requirements").glob("*.txt"))}
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[a-z,]+\])?==(?P<version>[^ ;\\]+)(?: *;(?P<marker>[^\\]+))?")


def pins(lock: str) -> list[tuple[str, str, list[str]]]:
    """(name, version, hashes) of everything in a lock file."""
    found: list[tuple[str, str, list[str]]] = []
    for line in LOCKS[lock].read_text().splitlines():
        if match := PIN.match(line):
            found.append((plain(match["name"]), match["version"], []))
        elif line.startswith("    --hash="):
            found[-1][2].append(line.strip().removesuffix("\\").strip())
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_everything_that_is_installed_is_pinned_by_hash(lock: str) -> None:
    found = pins(lock)
    assert len(found) > 5
    for name, version, hashes in found:
        assert hashes, f"{name} {version} has no hash"
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", text) for text in hashes), name


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_place_to_get_packages_from(lock: str) -> None:
    text = LOCKS[lock].read_text()
    assert not re.search(r"://|--index-url|--find-links|--trusted-host|file:", text)


@pytest.mark.parametrize(
    ("lock", "lines"),
    [
        ("image", [*PROJECT["dependencies"], *(PROJECT["optional-dependencies"][one] for one in ("history", "ui"))]),
        (
            "demo",
            [*PROJECT["dependencies"], *(PROJECT["optional-dependencies"][one] for one in ("history", "ui", "spark"))],
        ),
        ("dev", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]),
        ("build", tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]),
    ],
)
def test_a_lock_has_what_the_project_asks_for_in_versions_that_it_allows(lock: str, lines: list[Any]) -> None:
    """It may have more; when this fails, `make lock` is due."""
    requirements = pytest.importorskip("packaging.requirements")
    versions: dict[str, list[str]] = {}
    for name, version, _ in pins(lock):
        versions.setdefault(name, []).append(version)
    for line in [one for entry in lines for one in ([entry] if isinstance(entry, str) else entry)]:
        wanted = requirements.Requirement(line)
        if plain(wanted.name) != PROJECT["name"]:
            found = versions.get(plain(wanted.name), [])
            assert found, f"{line} is not in requirements/{lock}.txt: run `make lock`"
            assert all(version in wanted.specifier for version in found), (
                f"{line} is locked at {found}: run `make lock`"
            )


@pytest.mark.parametrize("lock", ["image", "demo"])
def test_what_runs_was_tested_in_the_same_versions(lock: str) -> None:
    tested = {(name, version) for name, version, _ in pins("dev")}
    assert {(name, version) for name, version, _ in pins(lock)} <= tested


def test_setup_and_image_install_nothing_that_is_not_locked() -> None:
    """pip installs with hashes, or without dependencies from what is here; only a choice of extras is the exception."""
    texts = [(ROOT / "scripts/setup").read_text(), (ROOT / "deploy/Dockerfile").read_text()]
    lines = [line.strip() for text in texts for line in re.sub(r"\\\n\s*", " ", text).splitlines()]
    installs = [line for line in lines if re.search(r'pip install|"\$\{pip\[@\]\}"', line) and not line.startswith("#")]
    parts = [part for line in installs for part in line.split("&&") if re.search(r"pip (install|wheel)|pip\[@\]", part)]
    loose = [part for part in parts if "--require-hashes" not in part and "--no-deps" not in part]
    assert len(parts) >= 7
    assert [part for part in loose if "-c .make/versions.txt" not in part] == []


def test_the_list_of_the_image_has_its_packages_with_hashes_and_its_base() -> None:
    pytest.importorskip("packaging")
    digest = "a" * 64
    listed = [
        {"bom-ref": "1", "name": name, "version": version, "description": "a line"}
        for name, version, _ in pins("image")
    ]
    document = {"metadata": {"component": {"bom-ref": "root", "type": "application"}}, "components": listed}
    lock = LOCKS["image"].read_text()
    made = load("sbom_image").of_image(document, lock, f"python:3.11-slim@sha256:{digest}")
    names = {part["name"] for part in made["components"]}
    assert {"uvloop", "fastapi", "deltalake", "python"} <= names
    assert "colorama" not in names, "which is for Windows"
    base = made["components"][-1]
    assert base["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert made["dependencies"][0]["dependsOn"][-1] == base["bom-ref"]
