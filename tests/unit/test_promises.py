"""SECURITY.md ends with a table of guarantees: every setting and every test that it names exists."""

import re
from pathlib import Path

import pytest

from code_names import names_in

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs/reference/configuration.md").read_text()


def promises() -> list[tuple[str, str, str]]:
    """(promise, settings, test) of each row that is no heading."""
    text = (ROOT / "SECURITY.md").read_text()
    table = text[text.index("\n## Guarantees\n") :]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in re.findall(r"^\|.*\|$", table, re.M)]
    return [(row[0], row[1], row[2]) for row in rows[2:] if not row[0].startswith("**")]


def test_there_is_a_table_at_the_end() -> None:
    assert len(promises()) > 40
    assert (ROOT / "SECURITY.md").read_text().rstrip().endswith("|")


@pytest.mark.parametrize(("promise", "settings", "test"), promises(), ids=lambda value: value[:60])
def test_every_promise_names_settings_and_a_test_that_exist(promise: str, settings: str, test: str) -> None:
    found = re.fullmatch(r"`([\w/]+\.py)::(test_\w+)`", test)
    assert found is not None, f"{promise}: expected a test as `folder/file.py::name`, got {test}"
    assert found[2] in names_in(ROOT / "tests" / found[1])
    for key in re.findall(r"`([a-z_]+(?:\.[a-z_]+)?)`", settings):
        assert f"| `{key}` |" in REFERENCE, f"{promise}: there is no setting {key}"
    assert bool(settings) == bool(re.search(r"`[a-z_.]+`", settings))


def test_no_promise_is_made_twice() -> None:
    said = [promise for promise, _, _ in promises()]
    assert len(said) == len(set(said))
