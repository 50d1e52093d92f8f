"""The documentation says what is true: links lead somewhere, examples are accepted, the code that is named exists."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from code_names import code_links, names_in
from holdfast.cli.main import COMMANDS, build_app
from holdfast.config import Settings

ROOT = Path(__file__).parents[2]
PAGES = [str(path.relative_to(ROOT)) for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]]
ARCHITECTURE = "docs/concepts/architecture.md"
GLOSSARY = "docs/concepts/glossary.md"

# Code of others, and files, that the two pages about the code name without a link.
FOREIGN = {
    "fdatasync",
    "flush.messages",
    "max_inflight",
    "max_inflight_messages",
    "mosquitto.db",
    "msg_expiry_interval",
    "out_packet",
    # values of our settings
    "disc_only",
}


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
    ("page", "text"),
    # one declares tables, which tests/spark/test_declared.py runs, the other is what an object store is told
    [
        (page, text)
        for page in PAGES
        for text in blocks(page, "toml")
        if not text.startswith(("# pipeline.toml\n", "# storage.toml\n"))
    ],
    ids=lambda value: value[:40],
)
def test_every_configuration_shown_is_valid(page: str, text: str) -> None:
    Settings.model_validate(tomllib.loads(text))


SECTIONS = {name: field.annotation for name, field in Settings.model_fields.items()}
KEYS = {f"{name}.{key}" for name, model in SECTIONS.items() for key in getattr(model, "model_fields", ())}
NO_KEYS = {"history.place", "retainer.delivery_rate"}  # a file, and a setting of EMQX
FILE_NAME = re.compile(r"\.(md|png|py|toml)$")


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_that_is_named_exists(page: str) -> None:
    sections = "|".join(key.partition(".")[0] for key in KEYS)
    named = re.findall(rf"(?<![\w./-])(?:{sections})\.[a-z_]+\b(?![./(])", (ROOT / page).read_text())
    assert {name for name in named if not FILE_NAME.search(name)} - KEYS - NO_KEYS == set()


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


# The pages about the code.


@pytest.mark.parametrize("page", [ARCHITECTURE, GLOSSARY])
def test_every_name_in_the_code_that_is_linked_stands_in_the_file_it_leads_to(page: str) -> None:
    here = (ROOT / page).parent
    wrong = []
    for name, target in code_links((ROOT / page).read_text()):
        file = (here / target).resolve()
        is_path = file.as_posix().removesuffix("/__init__.py").endswith(f"/{name}")
        if not is_path and name not in names_in(file):
            wrong.append(f"{name} in {target}")
    assert wrong == []


@pytest.mark.parametrize("page", [ARCHITECTURE, GLOSSARY])
def test_every_name_that_looks_like_code_of_ours_is_linked(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    linked = {name for name, _ in code_links(text)}
    spans = set(re.findall(r"`([^`]+)`", text)) - linked - FOREIGN
    code = re.compile(r"[A-Za-z_]+(\.[A-Za-z_]+)*")
    looks = [span for span in spans if code.fullmatch(span) and re.search(r"[._]|[a-z][A-Z]", span)]
    assert looks == []


def test_the_glossary_is_in_alphabetical_order_and_names_no_word_twice() -> None:
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / GLOSSARY).read_text(), re.MULTILINE)
    assert words == sorted(set(words))


@pytest.mark.parametrize(("page", "heading"), [(ARCHITECTURE, "The packages"), ("CONTRIBUTING.md", "Where things are")])
def test_every_room_is_named_where_a_newcomer_looks_for_it(page: str, heading: str) -> None:
    _, _, text = (ROOT / page).read_text().partition(f"\n## {heading}\n")
    named = set(re.findall(r"\b[a-z_]+\b", text.partition("\n## ")[0]))
    rooms = {path.parent.name for path in (ROOT / "src/holdfast").glob("*/__init__.py")}
    assert rooms - named == set()


@pytest.mark.parametrize("page", [ARCHITECTURE, "CONTRIBUTING.md"])
def test_the_order_of_the_rooms_is_that_of_the_import_contract(page: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [set(layer.split(" | ")) for layer in contracts[0]["layers"]]
    (shown,) = re.findall(r"`([^`]+ ->[^`]+)`", (ROOT / page).read_text())
    places = []
    for rooms in shown.split("->"):
        (place,) = [i for i, layer in enumerate(layers) if set(rooms.split()) - {"|"} <= layer]
        places.append(place)
    assert places == sorted(set(places))


def test_every_message_that_troubleshooting_explains_is_one_that_the_code_says() -> None:
    text = (ROOT / "docs/guides/troubleshooting.md").read_text()
    code = "".join(path.read_text() for path in sorted((ROOT / "src/holdfast").rglob("*.py")))
    code = re.sub(r'"\n\s*f?"', "", code)  # strings that go on in the next line
    cells = [row.split(" | ")[0] for row in re.findall(r"^\| (`.*)$", text, re.MULTILINE)]
    messages = [message for cell in cells for message in re.findall(r"`([^`/]+)`", cell)]
    assert len(messages) > 10
    missing = [part for one in messages for part in re.split(r"…|; ", one) if part.strip(" :;") not in code]
    assert missing == []
