"""Places in a payload: `drive.speed`, `tags[0]`, `"odd name".x`, and `$` for all of it."""

import re
from typing import Any, Final

WHOLE: Final = "$"
Path = tuple[str | int, ...]
_STEP: Final = re.compile(r'(?:^|\.)(?:([^.\[\]"]+)|"([^"]+)")|\[(\d+)\]')


class Missing:
    """What stands for a value that a payload does not have; null is a value."""


MISSING: Final = Missing()


def parse_path(text: str) -> Path:
    """The names and numbers that lead to a place. Raises ValueError."""
    if text == WHOLE:
        return ()
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None or (position == 0 and found[3] is not None and not text.startswith("[")):
            break
        name = found[1] or found[2]
        steps.append(int(found[3]) if name is None else name)
        position = found.end()
    if not steps or position < len(text):
        raise ValueError(f"expected a place in the payload such as drive.speed, tags[0] or $, got {text!r}")
    return tuple(steps)


def find(value: Any, path: Path) -> Any:
    """The value at a place, or MISSING."""
    for step in path:
        if isinstance(step, int):
            if not isinstance(value, list) or step >= len(value):
                return MISSING
            value = value[step]
        elif isinstance(value, dict):
            # CBOR's maps may have numbers for names
            value = value.get(step, value.get(int(step), MISSING) if step.isdecimal() else MISSING)
        else:
            return MISSING
    return value
