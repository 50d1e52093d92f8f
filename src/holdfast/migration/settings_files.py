"""Settings, users and rules on their way into files of this broker: what was found, and how it is written.

A file that is there already is left as it is unless it is to be replaced; one with the same text needs nothing.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.errors import UsageError
from holdfast.identity.passwords import read_users, write_lines

BRIDGE_PASSWORD: Final = "password of a bridge"


@dataclass(frozen=True)
class LeftLine:
    """A line that has no counterpart: where it stands, what it says, and what to do about it."""

    where: str
    text: str
    reason: str


@dataclass(frozen=True)
class Beside:
    """A file that stands beside the configuration, wherever that will be."""

    file: str


@dataclass
class FoundSettings:
    """`values` are settings by their key here (`limits.max_inflight`), `tables` arrays of tables such as `access`.
    `users` are hashes by name. `access` is the text of an access file, `secrets` are texts of files of their own by
    name. `lines` counts what was read, `left` what stays behind.
    """

    source: str
    values: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    users: dict[str, str] | None = None
    access: str | None = None
    secrets: dict[str, str] = field(default_factory=dict)
    rules: int = 0
    lines: int = 0
    left: list[LeftLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def leave(self, where: str, text: str, reason: str) -> None:
        self.left.append(LeftLine(where, text, reason))


@dataclass(frozen=True)
class SettingsFile:
    path: Path
    what: str
    lines: list[str]


def password_file(config: Path) -> Path:
    return config.absolute().parent / "passwords"


def files_of(found: FoundSettings, config: Path) -> list[SettingsFile]:
    """The files that say the same here: `passwords` and `access` stand beside the configuration and are named in it."""
    files: list[SettingsFile] = []
    values = dict(found.values)
    folder = config.absolute().parent
    if found.users is not None:
        path = password_file(config)
        files.append(SettingsFile(path, "users", [f"{name}:{stored}" for name, stored in found.users.items()]))
        values["auth.password_file"] = str(path)
    if found.access is not None:
        path = folder / "access"
        files.append(SettingsFile(path, "access rules", found.access.splitlines()))
        values["auth.access_file"] = str(path)
    for name, secret in found.secrets.items():
        files.append(SettingsFile(folder / name, BRIDGE_PASSWORD, [secret]))
    return [SettingsFile(config, "settings", toml_lines(found, values, folder)), *files]


def toml_lines(found: FoundSettings, values: dict[str, Any], folder: Path) -> list[str]:
    lines = [f"# Made by `holdfast import` from {one_line(found.source)}."]
    lines += [f"{key} = {toml_value(value)}" for key, value in values.items() if "." not in key]
    for section in dict.fromkeys(key.partition(".")[0] for key in values if "." in key):
        lines += ["", f"[{section}]"]
        for key, value in values.items():
            if key.startswith(f"{section}."):
                lines.append(f"{key.partition('.')[2]} = {toml_value(value)}")
    for name, tables in found.tables.items():
        for table in tables:
            placed = {key: folder / one.file if isinstance(one, Beside) else one for key, one in table.items()}
            lines += ["", f"[[{name}]]", *(f"{key} = {toml_value(value)}" for key, value in placed.items())]
    if found.left:
        lines += ["", "# What has no counterpart here:"]
        lines += [f"# {one_line(left.where)}: {one_line(left.text)} - {one_line(left.reason)}" for left in found.left]
    return lines


def toml_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(toml_value(one) for one in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    # A basic string of TOML is one of JSON, but for DEL and characters beyond the first plane, which JSON splits.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")


def one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:200]


def merge_users(found: FoundSettings, path: Path, replace: bool) -> int:
    """Add the users of a password file that is there; returns how many have another password there, which stays unless
    it is to be replaced. Raises ConfigError where the file cannot be read.
    """
    if found.users is None or not path.exists():
        return 0
    there = read_users(path)
    kept = 0
    for name, stored in list(found.users.items()):
        if there.get(name, stored) != stored and not replace:
            found.leave(
                str(path), f"user {name}", "has another password there, which stays (--replace takes its place)"
            )
            kept += 1
    found.users = {**there, **found.users} if replace else {**found.users, **there}
    found.users = {name: found.users[name] for name in [*there, *(name for name in found.users if name not in there)]}
    return kept


NEW = "new"
SAME = "same"
OTHER = "other"


def put_file(file: SettingsFile, replace: bool, dry_run: bool) -> str:
    """Write a file, readable by its owner alone. Returns NEW, SAME where it says that already, or OTHER where it says
    something else and stays. Raises UsageError.
    """
    try:
        before = file.path.read_text(encoding="utf-8").splitlines() if file.path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file.path}, which is there already: {error}") from None
    if before == file.lines:
        return SAME
    if before is not None and not replace:
        return OTHER
    if not dry_run:
        try:
            os.makedirs(file.path.absolute().parent, exist_ok=True)
            write_lines(file.path, file.lines)
        except OSError as error:
            raise UsageError(f"cannot write {file.path}: {(error.strerror or str(error)).lower()}") from None
    return NEW
