"""Topic names and topic filters: what is well formed, and what matches what.

Both are UTF-8 bytes that the codec has already validated as text. Levels are walked with loops and capped in number:
compiled code does not check for stack overflow.
"""

from typing import Final

from holdfast.errors import ProtocolError

TOPIC_NAME_INVALID: Final = 0x90
TOPIC_FILTER_INVALID: Final = 0x8F

SHARE: Final = b"$share/"
ANY_LEVELS: Final = 65_536  # as many as 65,535 bytes can have
# As numbers: looking for a byte in bytes is faster than looking for bytes in bytes.
PLUS: Final = 0x2B
HASH: Final = 0x23


def check_topic(topic: bytes, max_levels: int) -> None:
    """Raise unless `topic` may be published to [3.1.1 and 5: MQTT-3.3.2-2, MQTT-4.7.3-1]."""
    if len(topic) == 0:
        raise ProtocolError("topic is empty, expected at least one character")
    if PLUS in topic or HASH in topic:
        raise ProtocolError("topic has a wildcard, expected none", TOPIC_NAME_INVALID)
    if len(topic) >= max_levels and topic.count(b"/") >= max_levels:
        levels = topic.count(b"/") + 1
        raise ProtocolError(f"topic has {levels} levels, expected no more than {max_levels}", TOPIC_NAME_INVALID)


def is_valid_filter(topic_filter: bytes, max_levels: int) -> bool:
    """Return whether a (non-shared) topic filter is well formed: `#` last and alone, `+` alone in its level."""
    if len(topic_filter) == 0 or len(topic_filter) > 65535:
        return False
    levels = topic_filter.split(b"/")
    count = len(levels)
    if count > max_levels:
        return False
    if PLUS not in topic_filter and HASH not in topic_filter:
        return True
    for i in range(count):
        level = levels[i]
        if b"#" in level and (level != b"#" or i != count - 1):
            return False
        if b"+" in level and level != b"+":
            return False
    return True


def split_share(topic_filter: bytes) -> tuple[bytes, bytes]:
    """Return (NAME, FILTER) of `$share/NAME/FILTER`; raises if the name is malformed [5: MQTT-4.8.2-1, 4.8.2-2]."""
    rest = topic_filter[len(SHARE) :]
    cut = rest.find(b"/")
    if cut <= 0 or cut == len(rest) - 1:
        raise ProtocolError("shared subscription needs $share/NAME/FILTER", TOPIC_FILTER_INVALID)
    name = rest[:cut]
    if b"+" in name or b"#" in name:
        raise ProtocolError("share name has a wildcard, expected none", TOPIC_FILTER_INVALID)
    return name, rest[cut + 1 :]


def is_well_formed(topic_filter: bytes) -> bool:
    """Return whether this is a topic filter, `$share/NAME/FILTER` included, however many levels it has."""
    if topic_filter.startswith(SHARE):
        try:
            topic_filter = split_share(topic_filter)[1]
        except ProtocolError:
            return False
    return is_valid_filter(topic_filter, ANY_LEVELS)


def matches(filter_levels: list[bytes], topic_levels: list[bytes], start: int = 0) -> bool:
    """Return whether the filter matches the topic from level `start` on; levels before it are known to match.

    Wildcards in the first level do not match topics that start with `$` [MQTT-4.7.2-1].
    """
    count = len(filter_levels)
    topic_count = len(topic_levels)
    i = start
    while i < count:
        level = filter_levels[i]
        if level == b"#":
            return i > 0 or not topic_levels[0].startswith(b"$")
        if i >= topic_count:
            return False
        if level == b"+":
            if i == 0 and topic_levels[0].startswith(b"$"):
                return False
        elif level != topic_levels[i]:
            return False
        i += 1
    return topic_count == count


def covers(outer: list[bytes], inner: list[bytes]) -> bool:
    """Return whether every topic that filter `inner` matches is also matched by filter `outer`."""
    count = len(outer)
    inner_count = len(inner)
    for i in range(count):
        level = outer[i]
        if level == b"#":
            return i > 0 or not inner[0].startswith(b"$")
        if i >= inner_count:
            return False
        other = inner[i]
        if other == b"#":
            return False
        if level == b"+":
            if i == 0 and other.startswith(b"$"):
                return False
        elif level != other:
            return False
    return inner_count == count
