"""How Holdfast is installed: under which name, in which parts, and with what a wheel of it promises."""

import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = ("src", "docs", "tests", "bench", "scripts", "deploy", ".github", ".ci")
NOT_OURS = {"node_modules", "__pycache__", "corpus", "findings", "files"}
# The name alone is a package of somebody else: asking pip for it brings their code.
FOREIGN = re.compile(r"install (?:-U |--upgrade )?['\"]?holdfast(?![-_\w/.])|\bholdfast\[")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def test_a_node_of_a_cluster_brings_the_api_and_no_library_for_nats() -> None:
    assert PROJECT["optional-dependencies"]["cluster"] == ["holdfast-mqtt[ui]"]
    assert not any("nats-py" in one for lines in PROJECT["optional-dependencies"].values() for one in lines)


# Wheels.

HEADERS = """
Dynamic Section:
  NEEDED               libc.so.6
  SONAME               x
Version References:
  required from libc.so.6:
    0x0d696914 0x00 03 GLIBC_2.{newest}
    0x09691a75 0x00 02 GLIBC_2.2.5
"""


def wheel_of(folder: Path, *modules: str) -> Path:
    path = folder / "a-1-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.py", "")
        for name in modules:
            archive.writestr(name, b"")
    return path


@pytest.mark.parametrize(("newest", "glibc"), [(4, 17), (17, 17), (28, 28), (34, 34)])
def test_a_wheel_is_named_after_the_newest_symbol_it_needs_and_no_name_is_older_than_2_17(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: int, glibc: int
) -> None:
    manylinux = script("manylinux")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "objdump").write_text(f"#!/bin/sh\ncat <<'EOF'{HEADERS.format(newest=newest)}EOF\n")
    (tools / "objdump").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    assert manylinux.glibc_of(wheel_of(tmp_path, "a.so")) == glibc


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed (Debian: binutils)")
def test_the_headers_of_a_module_of_this_python_are_understood() -> None:
    module = next(path for path in Path(sysconfig.get_path("platlib")).rglob("*.so") if "linux" in path.name)
    headers = subprocess.run(["objdump", "-p", str(module)], capture_output=True, text=True, check=True).stdout
    libraries, glibc = script("manylinux").needed(headers)
    assert "libc.so.6" in libraries
    assert 2 <= glibc < 100


def test_a_wheel_that_links_to_more_than_the_c_library_is_refused() -> None:
    libraries, _ = script("manylinux").needed(HEADERS.format(newest=4) + "  NEEDED               libssl.so.3\n")
    assert libraries - script("manylinux").ALLOWED == {"libssl.so.3"}


def test_a_wheel_without_a_compiled_module_is_not_taken_for_a_compiled_one(tmp_path: Path) -> None:
    manylinux = script("manylinux")
    with pytest.raises(manylinux.Refused, match="no compiled module"):
        manylinux.glibc_of(wheel_of(tmp_path))


# Releases.

CHANGELOG = """# Changes

## 1.1.0, not released yet

- Something.

## 1.0.0, 2026-12-01

- Everything.

## 0.9.0, 2026-11-01

- Less.
"""


def test_the_notes_of_a_release_are_its_part_of_the_changelog() -> None:
    assert script("release_notes").notes("v1.0.0", "1.0.0", CHANGELOG) == "- Everything.\n"


@pytest.mark.parametrize(
    ("tag", "version", "told"),
    [
        ("v1.0.1", "1.0.0", "expected v1.0.0"),
        ("1.0.0", "1.0.0", "expected v1.0.0"),
        ("v1.1.0", "1.1.0", "not released yet"),
        ("v2.0.0", "2.0.0", "no heading"),
    ],
)
def test_a_release_that_the_changelog_does_not_know_is_refused(tag: str, version: str, told: str) -> None:
    notes = script("release_notes")
    with pytest.raises(notes.Mismatch, match=told):
        notes.notes(tag, version, CHANGELOG)


def workflow() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    return found


def commands() -> list[str]:
    return [step["run"] for job in workflow()["jobs"].values() for step in job["steps"] if "run" in step]


def test_the_jobs_of_the_release_wait_for_jobs_that_exist_and_nothing_is_uploaded_before_the_checks() -> None:
    jobs = workflow()["jobs"]
    for job in jobs.values():
        needs = job.get("needs", [])
        assert {needs} if isinstance(needs, str) else set(needs) <= set(jobs)
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    assert "check" in jobs["image"]["needs"]
    writers = {name for name, job in jobs.items() if "write" in (job.get("permissions") or {}).values()}
    assert (workflow()["permissions"], writers) == ({"contents": "read"}, {"image", "publish"})


@pytest.mark.parametrize("command", commands())
def test_what_the_release_runs_is_sound_and_exists(command: str) -> None:
    assert subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True).stderr == ""
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z-]+)", command)) <= set(targets)
    for name in re.findall(r"(?:scripts|deploy|\.ci)/[\w./-]+", command):
        assert (ROOT / name).is_file(), name
    # what comes from outside reaches the shell as a variable, never as text of the command
    assert "${{" not in command
