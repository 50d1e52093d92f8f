"""Which side is right about a retained topic after the link was down: a merge of what each has, by what both had last.

| here         | there        | a topic that comes in | a topic that goes both ways             |
|--------------|--------------|-----------------------|-----------------------------------------|
| the same as there           || nothing to do        | nothing to do                           |
| anything     | unchanged    | stays                 | stays, and goes out                     |
| unchanged    | changed      | theirs is taken       | theirs is taken                         |
| changed      | changed      | theirs is taken       | a value before a deletion, else `conflict` |

"Changed" is against what both had when they last agreed; a deletion is a change.
"""

from typing import Final

from holdfast.bridge.options import LOCAL, REMOTE

STAYS: Final = "stays"
TAKEN: Final = "taken"
SAME: Final = "same"
LOSES: Final = "loses"  # theirs is delivered, and not kept: nobody may miss it


def merge(
    here: bytes | None, there: bytes | None, both: bytes | None, goes_out: bool, conflict: str, newer_there: bool | None
) -> str:
    """What becomes of the other side's message. The first three are digests, None where there is nothing;
    `newer_there` is None where nobody can tell.
    """
    if here == there:
        return SAME
    if there == both:
        return STAYS
    if not goes_out or here == both:
        return TAKEN
    if there is None:
        return STAYS
    if here is None:
        return TAKEN
    if conflict == REMOTE or (conflict != LOCAL and newer_there):
        return TAKEN
    return LOSES
