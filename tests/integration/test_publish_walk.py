"""The walk through the code that the page about it describes, taken by a publish."""

import re
from functools import cache
from pathlib import Path

import pytest

from code_names import code_links
from publish_walk import JOURNAL, LOOP, Hop, count, walk

ROOT = Path(__file__).parents[2]
ARCHITECTURE = "docs/concepts/architecture.md"


@cache
def steps() -> list[Hop]:
    """The functions of the walk that the page names, up to PUBACK."""
    named = []
    for part in re.split(r"^### ", (ROOT / ARCHITECTURE).read_text(), flags=re.MULTILINE):
        heading, _, text = part.partition("\n")
        if heading.endswith(("thread", "thread again")):
            thread = JOURNAL if "journal" in heading else LOOP
            named += [Hop(thread, target.partition("src/holdfast/")[2], name) for name, target in code_links(text)]
    return named


@cache
def hops() -> list[Hop]:
    return walk()


@pytest.mark.parametrize("thread", [LOOP, JOURNAL])
def test_the_functions_that_the_walk_names_are_called_in_that_order(thread: str) -> None:
    taken = [Hop(hop.thread, hop.file, hop.name.removesuffix(".__init__")) for hop in hops() if hop.thread == thread]
    named = [step for step in steps() if step.thread == thread]
    assert [step for step in named if step not in taken] == []
    assert named == sorted(named, key=taken.index)


def test_the_walk_is_named_from_the_socket_to_the_puback() -> None:
    first, last = [(hop.file, hop.name) for hop in (hops()[0], hops()[-1])]
    assert (first, last) == (("net/peer.py", "StreamPeer.data_received"), ("net/peer.py", "StreamPeer.write"))
    assert [(step.file, step.name) for step in (steps()[0], steps()[-1])] == [first, last]


def test_the_walk_is_no_longer_than_the_page_says() -> None:
    said = re.findall(r"(\d+)\s+functions\s+in\s+(\d+)\s+files", (ROOT / ARCHITECTURE).read_text())
    parts = [[hop for hop in hops() if hop.thread in threads] for threads in ((LOOP, JOURNAL), (LOOP,), (JOURNAL,))]
    for most, part in zip(said, parts, strict=True):
        functions, files = count(part)
        assert functions <= int(most[0]), "`python tests/publish_walk.py` prints them"
        assert files <= int(most[1]), "`python tests/publish_walk.py` prints them"
