"""MQTT topic filters for columns: one rule, said to Python, to Arrow and to Spark.

A filter is taken apart once. Most filters are an exact topic or a subtree, and those become comparisons; only a `+`
needs a regular expression, written in what RE2 (Arrow) and Java (Spark) have in common.
"""

import re
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from holdfast.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

_ANY_LEVEL: Final = "[^/]*"


class TopicFilter:
    """A topic filter that was checked. Equal text means equal filter."""

    def __init__(self, text: str) -> None:
        levels = text.split("/")
        if not text:
            raise UsageError("expected a topic filter such as `site/+/temp` or `#`, got an empty text")
        if levels[0] == "$share":
            raise UsageError(f"expected a topic filter without a share name, got {text!r}")
        for index, level in enumerate(levels):
            if ("+" in level and level != "+") or ("#" in level and (level != "#" or index != len(levels) - 1)):
                raise UsageError(f"expected `+` alone in its level and `#` alone and last, got {text!r}")
        self.text: Final = text
        self.subtree: Final = levels[-1] == "#"
        self.levels: Final = levels[:-1] if self.subtree else levels
        self.wild: Final = "+" in self.levels
        # [MQTT-4.7.2-1] a filter that starts with a wildcard does not reach topics that start with `$`
        self.hides_dollar: Final = levels[0] in ("+", "#")

    @property
    def everything(self) -> bool:
        return self.subtree and not self.levels

    @property
    def stem(self) -> str:
        """The levels in front of `#`, when none of them is a wildcard; else the whole exact topic."""
        return "/".join(self.levels)

    def pattern(self) -> str:
        body = "/".join(_ANY_LEVEL if level == "+" else re.escape(level) for level in self.levels)
        if self.everything:
            return r"(?s)\A.*\z"
        return rf"(?s)\A{body}(/.*)?\z" if self.subtree else rf"(?s)\A{body}\z"

    def matches(self, topic: str) -> bool:
        if self.hides_dollar and topic.startswith("$"):
            return False
        parts = topic.split("/")
        if len(parts) < len(self.levels) or (not self.subtree and len(parts) != len(self.levels)):
            return False
        return all(mine in ("+", theirs) for mine, theirs in zip(self.levels, parts, strict=False))

    def mask(self, topics: "pa.Array") -> "pa.Array":
        """Which of these topics match, for Arrow."""
        import pyarrow.compute as pc

        if self.wild:
            found = pc.match_substring_regex(topics, self.pattern())
        elif self.everything:
            return pc.invert(pc.starts_with(topics, "$"))
        else:
            found = pc.equal(topics, self.stem)
            if self.subtree:
                found = pc.or_(found, pc.starts_with(topics, self.stem + "/"))
        if self.hides_dollar:
            found = pc.and_not(found, pc.starts_with(topics, "$"))
        return found

    def column(self, topic: "Column") -> "Column":
        """Whether the topic in a column matches, for Spark."""
        if self.wild:
            found = topic.rlike(self.pattern())
        elif self.everything:
            return ~topic.startswith("$")
        else:
            found = topic == self.stem
            if self.subtree:
                found = found | topic.startswith(self.stem + "/")
        return found & ~topic.startswith("$") if self.hides_dollar else found

    def sql(self, topic: str = "topic") -> str:
        """The same as a condition in Spark's SQL."""
        if self.wild:
            found = f"{topic} RLIKE {literal(self.pattern())}"
        elif self.everything:
            return f"NOT startswith({topic}, '$')"
        else:
            found = f"{topic} = {literal(self.stem)}"
            if self.subtree:
                found = f"({found} OR startswith({topic}, {literal(self.stem + '/')}))"
        return f"{found} AND NOT startswith({topic}, '$')" if self.hides_dollar else found


def literal(text: str) -> str:
    """A text as Spark's SQL spells it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class TopicTemplate:
    """`site/{site}/line/{line}/{device}/#`: which topics belong to a device, and what their levels are called."""

    def __init__(self, text: str) -> None:
        levels = text.split("/")
        names = [level[1:-1] for level in levels if level.startswith("{") and level.endswith("}")]
        if not names:
            raise UsageError(
                f"expected a topic template with a name in braces, such as `site/{{device}}/#`, got {text!r}"
            )
        for name in names:
            if not name.isidentifier() or names.count(name) > 1:
                raise UsageError(
                    f"expected each name in braces once and spelt like an identifier, got {name!r} in {text!r}"
                )
        self.text: Final = text
        self.names: Final = names
        self.places: Final = {level[1:-1]: i for i, level in enumerate(levels) if level.startswith("{")}
        self.filter: Final = TopicFilter("/".join("+" if level.startswith("{") else level for level in levels))
        # the levels that decide whether a topic belongs to a device, and what they all begin with
        self.prefix: Final = "/".join(self.filter.levels)
        self.stem: Final = "".join(f"{level}/" for level in takewhile(lambda level: level != "+", self.filter.levels))

    def fields(self, topic: "Column") -> dict[str, "Column"]:
        from pyspark.sql import functions as F

        levels = F.split(topic, "/")
        return {name: F.get(levels, F.lit(place)) for name, place in self.places.items()}
