import re
import tomllib
from pathlib import Path

import pytest

from holdfast.config import Settings, load
from holdfast.config.listener import OPTIONS
from holdfast.config.load import KEYS, SECTIONS
from holdfast.config.reference import EXAMPLE_VALUES, example, reference

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def page() -> str:
    return (ROOT / "docs/reference/configuration.md").read_text()


@pytest.mark.parametrize("key", KEYS)
def test_every_setting_has_help_and_stands_in_the_reference(key: str, page: str) -> None:
    description = KEYS[key].field.description
    assert description
    row = next((line for line in page.splitlines() if line.startswith(f"| `{key}` |")), "")
    assert description in row


@pytest.mark.parametrize("key", [key for key in KEYS if KEYS[key].table])
def test_every_key_of_a_table_has_help_and_stands_in_the_reference(key: str, page: str) -> None:
    table = KEYS[key].table
    assert table is not None
    part = page.split(f"## `[[{key}]]`")[1]
    for name, field in table.model_fields.items():
        assert field.description
        assert f"| `{name}` | " in part
        assert field.description in part


@pytest.mark.parametrize("option", OPTIONS)
def test_every_listener_option_stands_in_the_reference(option: str, page: str) -> None:
    assert f"| `{option}` |" in page.split("## Listeners")[1]


def test_the_reference_is_what_the_code_says_now(page: str) -> None:
    assert page == reference(), "run `make docs`"


def test_the_example_file_is_what_the_code_says_now() -> None:
    assert (ROOT / "holdfast.example.toml").read_text() == example(), "run `make docs`"


def test_the_example_file_changes_nothing_as_it_is() -> None:
    result = load(ROOT / "holdfast.example.toml", environ={})
    assert result.settings == Settings()


def test_the_example_file_shows_the_defaults() -> None:
    """Each `# key = value` line taken at its word gives the default; settings without one are shown by example."""
    text = example().split("# One `[[")[0]
    shown = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    document = tomllib.loads(shown)
    for key in EXAMPLE_VALUES:
        section, name = key.split(".")
        del document[section][name]
    assert Settings.model_validate(document) == Settings()
    named = {f"{s}.{name}" for s in SECTIONS for name in document[s]} | (set(document) - set(SECTIONS))
    assert named | set(EXAMPLE_VALUES) == {key for key in KEYS if KEYS[key].table is None}


def test_the_example_tables_are_valid(tmp_path: Path) -> None:
    tables = example()[example().index("# One `[[retainer") :]
    path = tmp_path / "tables.toml"
    path.write_text(re.sub(r"^#(?! One )", "", tables, flags=re.MULTILINE))
    settings = load(path, environ={}).settings
    assert len(settings.retainer.policy) == 2
    assert len(settings.access) == 2
