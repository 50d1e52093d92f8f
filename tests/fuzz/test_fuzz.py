"""Every input of the corpus and every finding of the past as a test; in `make test-long` a guided search for new ones.

`make fuzz` searches for as long as one likes. A finding goes to tests/fuzz/findings/TARGET under a name that says what
it was, and stays there.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SEARCH_S = 20


def load_targets() -> dict[str, object]:
    spec = importlib.util.spec_from_file_location("fuzz_targets", HERE / "targets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.TARGETS)


TARGETS = load_targets()
INPUTS = sorted(path for folder in ("corpus", "findings") for path in (HERE / folder).glob("*/*"))


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_known_input_does_no_harm(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())  # type: ignore[operator]


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    assert {path.name for path in (HERE / "corpus").iterdir()} == set(TARGETS)


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.parametrize("target", TARGETS)
def test_a_short_search_finds_nothing(target: str, tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "run.py"), target, f"-max_total_time={SEARCH_S}", "-timeout=20"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr[-4000:]}\ninputs: {[p.read_bytes() for p in tmp_path.glob('*-*')]}"
    assert "Done " in done.stderr
