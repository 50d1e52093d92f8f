"""Options as Spark hands them over: text, any case. Each is checked before anything is read or written."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

from holdfast.errors import UsageError

TRUE = ("true", "1", "yes", "on")
FALSE = ("false", "0", "no", "off")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Options:
    """What the user gave, by lower-case name, with the spelling we document kept for messages."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str], source: str) -> None:
        self._names = {name.lower(): name for name in known}
        self._source = source
        self._values: dict[str, str] = {}
        for key, value in given.items():
            if key.lower() not in self._names:
                near = get_close_matches(key.lower(), self._names, n=1, cutoff=0.0)
                raise UsageError(
                    f"option {key!r} (= {value!r}) is not known to format {source!r}; "
                    f"the nearest known one is {self._names[near[0]]!r}"
                )
            self._values[key.lower()] = value

    def text(self, *names: str) -> str | None:
        """The value under the first of these names that was given: one meaning may have several names."""
        found = [name for name in names if name.lower() in self._values]
        if len({self._values[name.lower()] for name in found}) > 1:
            raise UsageError(f"expected one of the options {found} of format {self._source!r}, got both, and different")
        return self._values[found[0].lower()] if found else None

    def required(self, *names: str) -> str:
        value = self.text(*names)
        if value is None:
            raise UsageError(f"format {self._source!r} needs option {' or '.join(repr(name) for name in names)}")
        return value

    def number(self, *names: str, default: int | None = None, least: int = 0, most: int | None = None) -> int | None:
        value = self.text(*names)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise UsageError(f"option {names[0]!r}: expected a whole number {bounds}, got {value!r}")
        return number

    def seconds(self, *names: str, default: float) -> float:
        value = self.text(*names)
        if value is None:
            return default
        try:
            number = float(value.removesuffix("s"))
        except ValueError:
            number = -1.0
        if not 0 < number < 1e9:
            raise UsageError(f"option {names[0]!r}: expected seconds above 0, such as 2 or 0.5, got {value!r}")
        return number

    def moment(self, *names: str) -> str | None:
        """A time as Kafka's source takes it, in milliseconds since the epoch, or in ISO 8601; as ISO 8601."""
        value = self.text(*names)
        if value is None or not value.isdecimal():
            return value
        return (EPOCH + timedelta(milliseconds=int(value))).isoformat()

    def flag(self, *names: str, default: bool) -> bool:
        value = self.text(*names)
        if value is None:
            return default
        if value.lower() in TRUE:
            return True
        if value.lower() in FALSE:
            return False
        raise UsageError(f"option {names[0]!r}: expected true or false, got {value!r}")


def parse_moment(text: str) -> int | datetime:
    """An offset (digits only) or a moment (ISO 8601, UTC when it names no zone)."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"expected an offset such as 120000 or a time such as 2026-01-31T12:00:00Z, got {text!r}"
        ) from None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def micros(moment: datetime) -> int:
    """Microseconds since the epoch, exactly: a float would round."""
    delta = moment - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
