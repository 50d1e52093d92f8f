"""Access files in mosquitto's format, read as they are.

    topic read public/#          before any user: for clients without a user name
    user alice
    topic readwrite home/#       for alice
    topic deny home/safe/#       whatever else the file says for alice
    pattern write sensors/%u/#   for everyone; %u is the user name, %c the client id

What mosquitto does with it decides here too: denials come before grants, the lines of a user before patterns, and what
no line grants is refused. Subscribing is free, but only what may be read is delivered. An empty file grants nothing,
and a line that cannot be read is an error: a file never says more than its author wrote (CVE-2018-12550, -12551).
"""

from pathlib import Path
from typing import Final

from holdfast.broker.access import PUBLISH, RECEIVE, RETAIN, Rule
from holdfast.broker.topics import is_valid_filter
from holdfast.errors import ConfigError

READ: Final = RECEIVE
WRITE: Final = PUBLISH | RETAIN
KINDS: Final = {"read": READ, "write": WRITE, "readwrite": READ | WRITE, "deny": 0}


def read_access_file(path: Path) -> list[Rule]:
    """Returns the rules of a file, in the order in which they decide; raises ConfigError at the first line that is
    wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the access file {path}: {error}") from None
    return parse_access(text, str(path))


def parse_access(text: str, name: str) -> list[Rule]:
    user = ""
    topics: tuple[list[Rule], list[Rule]] = [], []  # denials, grants
    patterns: tuple[list[Rule], list[Rule]] = [], []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip(" \t\r")
        if not line or line.startswith("#"):
            continue
        where = f"{name}, line {number}"
        word, _, rest = line.partition(" ")
        rest = rest.strip(" \t")
        if word == "user":
            if not rest:
                raise ConfigError(f"{where}: expected a user name after `user`")
            user = rest
        elif word == "topic":
            add(topics, rest, user, f"{where}: {line}", where)
        elif word == "pattern":
            add(patterns, rest, None, f"{where}: {line}", where)
        else:
            raise ConfigError(f"{where}: expected `user`, `topic` or `pattern`, got {word[:40]!r}")
    return [*topics[0], *topics[1], *patterns[0], *patterns[1]]


def add(to: tuple[list[Rule], list[Rule]], rest: str, user: str | None, origin: str, where: str) -> None:
    kind, space, topic_filter = rest.partition(" ")
    if not space:
        kind, topic_filter = "readwrite", rest  # the kind is left out
    topic_filter = topic_filter.strip(" \t")
    if kind not in KINDS:
        raise ConfigError(f"{where}: expected read, write, readwrite or deny before the topic, got {kind[:40]!r}")
    encoded = topic_filter.encode()
    if not is_valid_filter(encoded, 65535) or "\0" in topic_filter:
        raise ConfigError(f"{where}: expected a topic filter, got {topic_filter[:80]!r}")
    # `%u` in a `topic` line is text to mosquitto; a rule would fill it in.
    literal = user is not None and ("%u" in topic_filter or "%c" in topic_filter)
    if literal:
        raise ConfigError(f"{where}: expected %u and %c in `pattern` lines only, got {topic_filter[:80]!r}")
    if kind == "deny":
        to[0].append(Rule(False, READ | WRITE, encoded, user, None, origin=origin))
    else:
        to[1].append(Rule(True, KINDS[kind], encoded, user, None, origin=origin))
