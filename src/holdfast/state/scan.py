"""Walking the retained table by topic filter, a stretch at a time.

Keys sort as the tree of topic levels does. A walk starts at the filter's literal beginning and, where a topic does not
match, jumps to the next key that could, so `a/+/c` does not visit everything below `a`. No transaction stays open
between two stretches: a walk is a key, and costs nothing while its reader is slow.
"""

from dataclasses import dataclass, field

from lmdb import Cursor

from holdfast.state.formats import KEY_MAX, LONG_PREFIX

AFTER_SEPARATOR = b"\x01"
AFTER_DOLLAR = b"%"


@dataclass
class Walk:
    """A position in the walk over the topics that match a filter. `key` is where to go on."""

    topic_filter: bytes
    hidden: bool = False  # with `#`: topics that begin with `$` too
    levels: list[bytes] = field(init=False)
    prefix: bytes = field(init=False)  # every key that can match starts with this
    key: bytes = field(init=False)
    anywhere: bool = field(init=False)  # the filter begins with a wildcard; an empty first level is not that
    takes_all: bool = field(init=False)  # the filter is a literal beginning and `#`: what has the prefix matches
    ended: bool = False

    def __post_init__(self) -> None:
        self.levels = self.topic_filter.split(b"/")
        literal: list[bytes] = []
        for level in self.levels:
            if level in (b"+", b"#"):
                break
            literal.append(level)
        self.anywhere = not literal
        self.takes_all = self.levels[-1] == b"#" and len(literal) == len(self.levels) - 1
        # Keys of long topics are cut, so a longer beginning than they have would miss them.
        self.prefix = self.key = b"\0".join(literal)[:LONG_PREFIX]

    def outside(self, key: bytes) -> bool:
        """Whether no key from this one on can match."""
        if self.anywhere:
            return False
        prefix = self.prefix
        if not key.startswith(prefix):
            return key > prefix
        return len(prefix) < LONG_PREFIX and key > prefix + AFTER_SEPARATOR


def next_candidate(filter_levels: list[bytes], key: bytes) -> bytes | None:
    """The smallest key that could match and is greater than `key`, whose topic does not match. None: just the next one.

    `key` is no long one, so its levels are all there.
    """
    candidate = after_mismatch(filter_levels, key)
    return candidate if candidate is not None and key < candidate and len(candidate) <= KEY_MAX else None


def after_mismatch(filter_levels: list[bytes], key: bytes) -> bytes | None:
    levels = key.split(b"\0")
    if levels[0].startswith(b"$") and filter_levels[0] in (b"+", b"#"):
        return AFTER_DOLLAR
    for depth, wanted in enumerate(filter_levels):
        if wanted == b"#":
            return None
        if depth >= len(levels):
            # The topic is too short. What lies below it comes next, and begins with the levels that are still wanted.
            return None
        if wanted != b"+" and wanted != levels[depth]:
            above = levels[:depth]
            if levels[depth] < wanted:
                return b"\0".join([*above, wanted])
            # Everything below `above` with a later level is too late: go behind all of it.
            return b"\0".join(above) + AFTER_SEPARATOR if above else None
    # The topic is longer than the filter: go behind everything below the levels that matched.
    return b"\0".join(levels[: len(filter_levels)]) + AFTER_SEPARATOR


def seek(cursor: "Cursor[bytes]", key: bytes) -> bool:
    return cursor.set_range(key) if key else cursor.first()
