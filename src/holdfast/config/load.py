"""From flags, environment and file to one checked `Settings`, with the place each value came from.

Layers are merged key by key (flag, then environment, then file, then default) before anything is validated, so that a
bad value in a file does not matter when a flag replaces it. Every problem is collected: a person who fixes a
configuration wants the whole list. pydantic-settings would merge the same layers, but it ignores a misspelt environment
variable and does not say where a value came from.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from holdfast.config.checks import problems_of
from holdfast.config.settings import Section, Settings
from holdfast.errors import ConfigError
from holdfast.problem import Problem, nearest, shown, without_login

PREFIX: Final = "HOLDFAST_"
DEFAULT: Final = "default"

# Variables with our prefix that are not settings: the build to run, and what stands for flags of single commands.
OTHER_VARIABLES: Final = (
    "HOLDFAST_PURE",
    "HOLDFAST_CONFIG",
    "HOLDFAST_URL",
    "HOLDFAST_KEY",
    "HOLDFAST_FROM_KEY",
    "HOLDFAST_PASSWORD",
    "HOLDFAST_SPARK_MASTER",
)

# Kubernetes gives each pod such variables for every service, so a service called `holdfast` must not stop the broker.
SERVICE_LINK: Final = re.compile(r"HOLDFAST_(SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_\w+)")


@dataclass(frozen=True)
class Key:
    """One setting. `table` is the model of its entries where the setting is an array of tables."""

    name: str
    field: FieldInfo
    is_list: bool
    table: type[BaseModel] | None


def _walk(model: type[BaseModel], prefix: str) -> Iterator[Key]:
    for name, info in model.model_fields.items():
        annotation = info.annotation
        if isinstance(annotation, type) and issubclass(annotation, Section):
            yield from _walk(annotation, f"{prefix}{name}.")
            continue
        is_list = get_origin(annotation) is list
        entry = get_args(annotation)[0] if is_list else None
        table = entry if isinstance(entry, type) and issubclass(entry, Section) else None
        yield Key(prefix + name, info, is_list, table)


KEYS: Final[dict[str, Key]] = {key.name: key for key in _walk(Settings, "")}
SECTIONS: Final[dict[str, type[BaseModel]]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}


@dataclass(frozen=True)
class Source:
    """Where to look: everything needed to read the configuration once more."""

    config: Path | None = None
    listen: tuple[str, ...] = ()
    data: str | None = None
    assignments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


@dataclass(frozen=True)
class Loaded:
    settings: Settings
    origins: dict[str, str]
    source: Source

    def reload(self) -> "Loaded":
        """Reads the same places again; raises ConfigError and changes nothing when they hold a problem."""
        return _load(self.source)


@dataclass
class Merge:
    """Values by key, later layers replacing earlier ones, and the problems met on the way."""

    values: dict[str, object] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def put(self, key: str, value: object, origin: str) -> None:
        self.values[key] = value
        self.origins[key] = origin

    def unknown(self, key: str, value: object, origin: str) -> None:
        known = [*KEYS, *SECTIONS] if isinstance(value, dict) else [*KEYS]
        self.problems.append(
            Problem(key, f"unknown key (value {shown(value, key)}); nearest known key: {nearest(key, known)}", origin)
        )


def load(
    config: Path | None = None,
    listen: Sequence[str] = (),
    data: str | None = None,
    assignments: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Returns the checked settings; raises ConfigError, a line for each problem. `assignments` are those of `--set`."""
    return _load(Source(config, tuple(listen), data, tuple(assignments), os.environ if environ is None else environ))


def _load(source: Source) -> Loaded:
    settings, origins, problems = read(source)
    if settings is not None:
        problems = problems_of(settings, origins)
    if settings is None or problems:
        raise ConfigError("\n".join(str(problem) for problem in problems))
    return Loaded(settings, origins, source)


def read(source: Source) -> tuple[Settings | None, dict[str, str], list[Problem]]:
    """Returns the settings, where each key's value came from, and what is wrong; no settings when something is."""
    merge = Merge()
    from_file(merge, source)
    from_environment(merge, source.environ)
    from_flags(merge, source)
    imply(merge)
    origins = {key: merge.origins.get(key, DEFAULT) for key in KEYS}
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(nested(merge.values))
    except ValidationError as error:
        merge.problems += [describe(detail, merge.origins) for detail in error.errors()]
    return (None if merge.problems else settings), origins, merge.problems


def from_file(merge: Merge, source: Source) -> None:
    path = config_path(source)
    if path is None:
        return
    import tomllib  # like below: a broker without a file does without it

    origin = f"file {path}"
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        merge.problems.append(
            Problem("", f"cannot read the configuration: {(error.strerror or str(error)).lower()}", origin)
        )
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        merge.problems.append(Problem("", f"not a TOML file: {str(error)[:1].lower()}{str(error)[1:]}", origin))
    else:
        flatten(merge, document, "", origin)


def config_path(source: Source) -> Path | None:
    """Returns the file that is read: the flag's, or the one HOLDFAST_CONFIG names."""
    named = source.environ.get("HOLDFAST_CONFIG", "")
    return source.config or (Path(named) if named else None)


def flatten(merge: Merge, table: Mapping[str, object], prefix: str, origin: str) -> None:
    for name, value in table.items():
        key = prefix + name
        if key in KEYS:
            merge.put(key, value, origin)
        elif key not in SECTIONS:
            merge.unknown(key, value, origin)
        elif isinstance(value, dict):
            flatten(merge, value, key + ".", origin)
        else:
            merge.problems.append(Problem(key, f"expected a table, got {shown(value)}", origin))


def from_environment(merge: Merge, environ: Mapping[str, str]) -> None:
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES or SERVICE_LINK.fullmatch(variable):
            continue
        assign(merge, variable[len(PREFIX) :].lower().replace("__", "."), environ[variable], f"environment {variable}")


def from_flags(merge: Merge, source: Source) -> None:
    for assignment in source.assignments:
        key, separator, text = assignment.partition("=")
        if not separator:
            merge.problems.append(Problem("", f"expected KEY=VALUE, got {assignment!r}", "--set"))
            continue
        assign(merge, key.strip(), text, "--set")
    if source.listen:
        listen_on(merge, source.listen)
    if source.data is not None:
        merge.put("data", source.data, "--data")


def listen_on(merge: Merge, urls: Sequence[str]) -> None:
    """URLs replace the list; with a `+` in front they are added to it, and take the place of those on the same port."""
    added = [url[1:] for url in urls if url.startswith("+")]
    if not added:
        merge.put("listen", list(urls), "--listen")
        return
    if len(added) < len(urls):
        merge.problems.append(Problem("listen", "expected a + in front of every URL, or of none", "--listen"))
        return
    before = merge.values.get("listen", KEYS["listen"].field.default)
    taken = {port_of(url) for url in added} - {None}
    kept = [url for url in one_or_many_texts(before) if port_of(url) not in taken]
    merge.put("listen", [*kept, *added], "--listen")


def one_or_many_texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def port_of(url: str) -> tuple[bool, str] | None:
    """What no two listeners can share: UDP or TCP, and the port; None for a port that the system picks."""
    scheme, _, rest = url.partition("://")
    port = re.split(r"[/?]", rest, maxsplit=1)[0].rpartition(":")[2]
    return None if port == "0" else (scheme == "udp", port)


def imply(merge: Merge) -> None:
    """Who named topics for the history before `history.record` was there meant every publish to them."""
    if "history.filter" in merge.values and "history.record" not in merge.values:
        merge.put("history.record", "all", "implied by history.filter")


def assign(merge: Merge, key: str, text: str, origin: str) -> None:
    """Sets a value given as text. Lists are comma-separated, or arrays in JSON or TOML; tables are such arrays."""
    if key not in KEYS:
        merge.unknown(key, text, origin)
        return
    value: object = text
    if KEYS[key].is_list:
        value = array(text)
        if value is None:
            expected = "an array of tables" if KEYS[key].table else "values separated by commas, or an array"
            merge.problems.append(
                Problem(key, f"expected {expected} in JSON or TOML, got {without_login(text)!r}", origin)
            )
            return
        if KEYS[key].table is None and isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
    elif text == "" and KEYS[key].field.default is None:
        value = None  # `HOLDFAST_TLS__CERT=` takes a value away again
    merge.put(key, value, origin)


def array(text: str) -> object:
    """Returns an array if the text looks like one, else the text itself; None when it looks like one and is not."""
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return None


def nested(values: Mapping[str, object]) -> dict[str, object]:
    tree: dict[str, object] = {}
    for key, value in values.items():
        section, dot, name = key.rpartition(".")
        if dot:
            table = tree.setdefault(section, {})
            assert isinstance(table, dict)
            table[name] = value
        else:
            tree[key] = value
    return tree


def describe(detail: ErrorDetails, origins: Mapping[str, str]) -> Problem:
    """One of pydantic's errors in this project's words: the key, what was expected, what stands there."""
    location = [str(part) for part in detail["loc"]]
    key = next((k for k in (".".join(location[:2]), location[0]) if k in KEYS), location[0])
    inside = [part for part in location[len(key.split(".")) :] if part.isdigit() or part.isidentifier()]
    name = key + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in inside)
    origin = origins.get(key, "")
    value = detail["input"]
    table = KEYS[key].table if key in KEYS else None
    if detail["type"] == "extra_forbidden":
        known = [str(field_name) for field_name in table.model_fields] if table else [*KEYS]
        return Problem(
            name, f"unknown key (value {shown(value, name)}); nearest known key: {nearest(inside[-1], known)}", origin
        )
    if detail["type"] == "missing":
        return Problem(name, "expected a value, got none", origin)
    if detail["type"] == "value_error":
        return Problem(name, detail["msg"].removeprefix("Value error, "), origin)
    return Problem(name, f"expected {expectation(detail)}, got {shown(value)}", origin)


def expectation(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    match detail["type"]:
        case "greater_than_equal":
            return f"at least {context['ge']}"
        case "less_than_equal":
            return f"at most {context['le']}"
        case "int_parsing" | "int_type" | "int_from_float":
            return "a whole number"
        case "bool_parsing" | "bool_type":
            return "true or false"
        case "too_short":
            return "at least one value"
        case _:
            text = detail["msg"].removeprefix("Input should be ")
            return text[:1].lower() + text[1:]
