"""The known keys, in the order of the file, and the nearest one to a key that is not known."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from holdfast.config.settings import Section, Settings


@dataclass(frozen=True)
class Key:
    """One setting. `table` is the model of its entries where the setting is an array of tables."""

    name: str
    field: FieldInfo
    is_list: bool
    table: type[BaseModel] | None


def _walk(model: type[BaseModel], prefix: str) -> Iterator[Key]:
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, Section):
            yield from _walk(annotation, f"{prefix}{name}.")
            continue
        is_list = get_origin(annotation) is list
        entry = get_args(annotation)[0] if is_list else None
        table = entry if isinstance(entry, type) and issubclass(entry, Section) else None
        yield Key(prefix + name, field, is_list, table)


KEYS: Final[dict[str, Key]] = {key.name: key for key in _walk(Settings, "")}
SECTIONS: Final[dict[str, type[BaseModel]]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}


def nearest(name: str, known: Iterator[str] | list[str] | dict[str, Key]) -> str:
    """The known key that `name` was most likely meant to be; a match of the last part alone counts nearly as much."""

    def likeness(candidate: str) -> float:
        whole = SequenceMatcher(None, name, candidate).ratio()
        last = SequenceMatcher(None, name.rpartition(".")[2], candidate.rpartition(".")[2]).ratio()
        return max(whole, last * 0.95)

    return max(known, key=likeness)
