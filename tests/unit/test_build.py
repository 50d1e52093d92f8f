"""What the build promises: which code runs, and what may be compiled."""

import ast
import contextlib
import importlib
import importlib.util
import os
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import grimp
import pytest

from holdfast import build

ROOT = Path(__file__).parents[2]
PLACES = ("containers", "layers", "source_modules", "forbidden_modules")  # where a contract names packages


def load_setup() -> Any:
    spec = importlib.util.spec_from_file_location("holdfast_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


setup = load_setup()


def hot_files() -> list[str]:
    with contextlib.chdir(ROOT):
        return list(setup.hot_files())


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
        if name not in allowed and name.partition(".")[0] not in {*sys.stdlib_module_names, "mypy_extensions", "librt"}
    }
    assert foreign == set()


def test_every_package_has_its_place_in_the_import_contract() -> None:
    """Inside `holdfast` the contract itself refuses a room that it does not know."""
    packages = {path.parent.name for path in (ROOT / "src").glob("*/__init__.py")}
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert set(linter["root_packages"]) == packages
    assert [contract["containers"] for contract in linter["contracts"] if contract.get("exhaustive")] == [["holdfast"]]
    named = {name for contract in linter["contracts"] for key in PLACES for name in contract.get(key, [])}
    assert packages - {name.partition(".")[0] for name in named} == set()


def test_rooms_of_the_core_know_of_what_is_above_them_only_the_objects_that_they_are_parts_of() -> None:
    """An import for types alone can hide a circle. Each of these is one object whose verbs have files of their own."""
    meant = {"Broker", "Shared", "Gateway", "PendingFilters"}
    found = set()
    for path in (ROOT / "src/holdfast/broker").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                found |= {alias.name for one in node.body if isinstance(one, ast.ImportFrom) for alias in one.names}
    assert found == meant


def test_spark_imports_how_the_history_is_written_shown_and_erased_rules_and_errors_and_nothing_else_of_ours() -> None:
    graph = grimp.build_graph("holdfast", "holdfast_mqtt_stream", cache_dir=None)
    history = {"holdfast.history.schema", "holdfast.history.erased", "holdfast.history.forget"}
    history |= {"holdfast.history.place", "holdfast.history.storage_options", "holdfast.history.iceberg"}
    history |= {"holdfast.history.lenient_view", "holdfast.history.layout"}
    allowed = {"holdfast", "holdfast.errors", "holdfast.problem", "holdfast.quantity", *history}
    for module in graph.modules:
        if module.startswith(("holdfast.spark", "holdfast_mqtt_stream")):
            found = graph.find_modules_directly_imported_by(module)
            ours = {name for name in found if not name.startswith(("holdfast.spark", "holdfast_mqtt_stream"))}
            ours -= {name for name in ours if name.startswith("holdfast.rules")}
            assert ours <= allowed, module


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what setup.py looks at, free to be changed; it looks at the folder that it runs in."""
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_digest_of_a_build_changes_with_every_hot_source(checkout: Path) -> None:
    first = setup.digest()
    assert setup.digest() == first
    with (checkout / "src/holdfast/errors.py").open("a") as file:
        file.write("\n")
    second = setup.digest()
    (checkout / "src/holdfast/broker/added.py").write_text("")
    third = setup.digest()
    (checkout / "src/holdfast/broker/added.py").rename(checkout / "src/holdfast/broker/renamed.py")
    assert len({first, second, third, setup.digest()}) == 4


def test_the_digest_of_a_build_does_not_change_with_other_sources(checkout: Path) -> None:
    first = setup.digest()
    with (checkout / "src/holdfast/diagnostics.py").open("a") as file:
        file.write("\n")
    assert setup.digest() == first


def test_without_a_compiler_the_interpreted_build_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HOLDFAST_PURE", raising=False)
    monkeypatch.setenv("CC", "no-such-compiler")
    assert setup.why_interpreted() == "no C compiler (no-such-compiler) found"
    assert setup.extensions() == []
    assert "no-such-compiler" in capsys.readouterr().out
    monkeypatch.setenv("HOLDFAST_PURE", "1")
    assert setup.why_interpreted() == "HOLDFAST_PURE=1 is set"
