"""The settings as they may be shown to somebody: values as JSON can hold them, where each came from, no secrets."""

import re
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from holdfast.config.load import DEFAULT, KEYS, Loaded
from holdfast.config.reference import default_of, kind_of
from holdfast.config.settings import Settings
from holdfast.quantity import format_duration, format_size

# What stands between a user name and the host of a URL.
PASSWORD: Final = re.compile(r"(?<=://)([^/@\s:]*):[^/@\s]*@")
HIDDEN: Final = r"\1:(hidden)@"


def value_of(settings: Settings | None, key: str) -> object:
    """The value as JSON can hold it."""
    value: object = settings
    for part in key.split("."):
        value = getattr(value, part)
    if isinstance(value, list):
        return [entry.model_dump(mode="json") if isinstance(entry, BaseModel) else entry for entry in value]
    return str(value) if isinstance(value, Path) else value


def shown_settings(loaded: Loaded) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for name, key in KEYS.items():
        origin = loaded.origins[name]
        found.append(
            {
                "key": name,
                "value": without_passwords(value_of(loaded.settings, name)),
                "text": text_of(value_of(loaded.settings, name), kind_of(key.field)),
                "origin": origin,
                "changed": origin != DEFAULT,
                "default": default_of(key.field),
                "description": key.field.description or "",
            }
        )
    return found


def without_passwords(value: object) -> object:
    """Secrets stand in files, except where a URL has one in it."""
    if isinstance(value, str):
        return PASSWORD.sub(HIDDEN, value)
    if isinstance(value, list):
        return [without_passwords(one) for one in value]
    if isinstance(value, dict):
        return {name: without_passwords(one) for name, one in value.items()}
    return value


def text_of(value: object, kind: str) -> str:
    """A value as one would write it; empty where there is none."""
    if value is None or value == []:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind == "size" and isinstance(value, int) and value:
        return format_size(value)
    if kind == "duration" and isinstance(value, int | float) and value:
        return format_duration(value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(str(without_passwords(one)) for one in value)
    return str(without_passwords(value))
