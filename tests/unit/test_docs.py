"""The documentation says what is true: its links lead somewhere, its examples are accepted."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from holdfast.cli.main import COMMANDS, build_app
from holdfast.config import Settings

ROOT = Path(__file__).parents[2]
PAGES = [str(path.relative_to(ROOT)) for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]]


def blocks(page: str, *languages: str) -> list[str]:
    """The fenced blocks in any of the languages. All fences are paired first: an end must not be taken for a start."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [text for language, text in fenced if language in languages]


def command_lines(page: str) -> list[str]:
    lines = re.sub(r"\\\n\s*", " ", "\n".join(blocks(page, "", "sh", "bash", "console"))).splitlines()
    return [found[1] for line in lines if (found := re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*(holdfast .*)", line))]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_to_a_file_leads_there(page: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / page).read_text())
    here = (ROOT / page).parent
    missing = [target for target in targets if "://" not in target and not (here / target).exists()]
    assert missing == []


@pytest.mark.parametrize(
    ("page", "text"), [(page, text) for page in PAGES for text in blocks(page, "toml")], ids=lambda value: value[:40]
)
def test_every_configuration_shown_is_valid(page: str, text: str) -> None:
    Settings.model_validate(tomllib.loads(text))


@pytest.mark.parametrize(("page", "line"), [(page, line) for page in PAGES for line in command_lines(page)])
def test_every_command_line_shown_has_only_options_that_exist(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    assert words[1] in COMMANDS or words[1].startswith("-"), f"unknown command in {page}"
    group = get_command(build_app(words[1]))
    command = group.commands[words[1]] if words[1] in COMMANDS else group  # type: ignore[attr-defined]
    for word in words[2:]:
        command = getattr(command, "commands", {}).get(word, command)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help", "--install-completion"}
    given = {word.partition("=")[0] for word in words[1:] if re.match(r"--?[A-Za-z]", word)}
    assert given <= known
