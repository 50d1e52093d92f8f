"""What the build promises: which code runs, and what may be compiled."""

import ast
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from holdfast import build

ROOT = Path(__file__).parents[2]


def hot_files() -> list[str]:
    code = "import setup; print(*setup.hot_files(), sep='\\n')"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_the_build_under_test_is_the_one_that_was_asked_for() -> None:
    assert build.name() == os.environ.get("EXPECTED_BUILD", build.name())
    # brokers that tests start inherit the environment, so it must agree with what runs here
    assert (os.environ.get("HOLDFAST_PURE") == "1") <= (build.name() == "interpreted")


@pytest.mark.parametrize("path", hot_files())
def test_every_hot_module_runs_in_the_build_under_test(path: str) -> None:
    name = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    source = str(importlib.import_module(name).__file__)
    assert source.endswith(".py") is not build.is_compiled(), f"{name} is loaded from {source}"


@pytest.mark.parametrize("path", hot_files())
def test_hot_modules_import_only_the_hot_set_errors_and_the_standard_library(path: str) -> None:
    allowed = {name.removeprefix("src/").removesuffix(".py").replace("/", ".") for name in hot_files()}
    imported: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            base = str(node.module)
            imported |= {f"{base}.{alias.name}" if f"{base}.{alias.name}" in allowed else base for alias in node.names}
    foreign = {
        name
        for name in imported
        if name not in allowed and name.partition(".")[0] not in {*sys.stdlib_module_names, "mypy_extensions"}
    }
    assert foreign == set()


def test_spark_imports_the_history_schema_rules_and_errors_and_nothing_else_of_ours() -> None:
    graph = grimp.build_graph("holdfast", "holdfast_mqtt_stream", cache_dir=None)
    allowed = {"holdfast", "holdfast.history.schema", "holdfast.errors"}
    for module in graph.modules:
        if module.startswith(("holdfast.spark", "holdfast_mqtt_stream")):
            found = graph.find_modules_directly_imported_by(module)
            ours = {name for name in found if not name.startswith(("holdfast.spark", "holdfast_mqtt_stream"))}
            ours -= {name for name in ours if name.startswith("holdfast.rules")}
            assert ours <= allowed, module


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what setup.py looks at, free to be changed."""
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path


def asked(checkout: Path, expression: str, **environ: str) -> str:
    env = {name: value for name, value in os.environ.items() if name not in ("CC", "HOLDFAST_PURE", "PYTHONPATH")}
    code = f"import setup; print({expression})"
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=checkout, env=env | environ, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_digest_of_a_build_changes_with_every_hot_source(checkout: Path) -> None:
    first = asked(checkout, "setup.digest()")
    assert asked(checkout, "setup.digest()") == first
    with (checkout / "src/holdfast/errors.py").open("a") as file:
        file.write("\n")
    second = asked(checkout, "setup.digest()")
    (checkout / "src/holdfast/broker/added.py").write_text("")
    third = asked(checkout, "setup.digest()")
    (checkout / "src/holdfast/broker/added.py").rename(checkout / "src/holdfast/broker/renamed.py")
    fourth = asked(checkout, "setup.digest()")
    assert len({first, second, third, fourth}) == 4


def test_the_digest_of_a_build_does_not_change_with_other_sources(checkout: Path) -> None:
    first = asked(checkout, "setup.digest()")
    with (checkout / "src/holdfast/diagnostics.py").open("a") as file:
        file.write("\n")
    assert asked(checkout, "setup.digest()") == first


def test_without_a_compiler_the_interpreted_build_is_installed(checkout: Path) -> None:
    assert asked(checkout, "setup.why_interpreted()", CC="no-such-compiler") == "no C compiler (no-such-compiler) found"
    assert asked(checkout, "len(setup.extensions())", CC="no-such-compiler").endswith("\n0")
    assert asked(checkout, "setup.why_interpreted()", HOLDFAST_PURE="1") == "HOLDFAST_PURE=1 is set"
