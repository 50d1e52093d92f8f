"""What the shell offers as values of options, where it cannot be told from their type."""

from typing import Literal, get_args, get_origin


def assignments(incomplete: str) -> list[str]:
    """`KEY=` for each setting, and `KEY=VALUE` behind the equals sign where the values are few."""
    from holdfast.config.load import KEYS

    key, equals, _ = incomplete.partition("=")
    if not equals:
        return [f"{name}=" for name in KEYS if name.startswith(incomplete)]
    if key not in KEYS:
        return []
    annotation = KEYS[key].field.annotation
    values = get_args(annotation) if get_origin(annotation) is Literal else ("true", "false")
    is_few = get_origin(annotation) is Literal or annotation in (bool, bool | None)
    return [one for value in values if is_few and (one := f"{key}={value}").startswith(incomplete)]


def listener_urls(incomplete: str) -> list[str]:
    from holdfast.config.listener import SCHEMES

    plus = "+" if incomplete.startswith("+") else ""
    return [one for scheme in SCHEMES if (one := f"{plus}{scheme}://").startswith(incomplete)]


def protocol_versions(incomplete: str) -> list[str]:
    return [one for one in ("5", "311", "31") if one.startswith(incomplete)]
