"""The settings as they may be shown to somebody: values as JSON can hold them, where each came from, no secrets."""

from pathlib import Path

from pydantic import BaseModel

from holdfast.config.load import DEFAULT, KEYS, Loaded
from holdfast.config.reference import default_of, kind_of
from holdfast.config.settings import Settings
from holdfast.problem import without_secrets
from holdfast.quantity import format_duration, format_size


def value_of(settings: Settings | None, key: str) -> object:
    """The value as JSON can hold it, without secrets: these stand in files, except where a URL has one in it."""
    value: object = settings
    for part in key.split("."):
        value = getattr(value, part)
    if isinstance(value, list):
        value = [entry.model_dump(mode="json") if isinstance(entry, BaseModel) else entry for entry in value]
    return without_secrets(str(value) if isinstance(value, Path) else value)


def shown_settings(loaded: Loaded) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for name, key in KEYS.items():
        origin = loaded.origins[name]
        found.append(
            {
                "key": name,
                "value": value_of(loaded.settings, name),
                "text": text_of(value_of(loaded.settings, name), kind_of(key.field)),
                "origin": origin,
                "changed": origin != DEFAULT,
                "default": default_of(key.field),
                "description": key.field.description or "",
            }
        )
    return found


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
        return ", ".join(map(str, value))
    return str(value)
