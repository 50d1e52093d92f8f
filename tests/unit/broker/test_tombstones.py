"""Deletions that are remembered, for who asks what has changed."""

from holdfast.broker.message import topic_field
from holdfast.broker.retained import BLOCK, Tombstones


def read_all(tombstones: Tombstones, after: int) -> dict[bytes, int]:
    """The last deletion of each topic after an offset, and that no portion is larger than a block."""
    found: dict[bytes, int] = {}
    while deletions := tombstones.read(after):
        assert len(deletions) <= BLOCK
        for deletion in deletions:
            found[deletion.topic_field] = deletion.offset
            after = deletion.offset
    return found


def filled(count: int, most: int) -> Tombstones:
    tombstones = Tombstones()
    for number in range(1, count + 1):
        tombstones.add(topic_field(f"t/{number}".encode()), number, most)
    return tombstones


def test_last_deletion_of_each_topic_is_found_across_blocks() -> None:
    tombstones = filled(3 * BLOCK, 100_000)
    tombstones.add(topic_field(b"t/7"), 9000, 100_000)
    found = read_all(tombstones, 2 * BLOCK)
    assert found[topic_field(b"t/7")] == 9000
    assert len(found) == BLOCK + 1


def test_a_small_limit_is_kept_exactly() -> None:
    tombstones = filled(10, 3)
    assert tombstones.known_since == 7
    assert list(read_all(tombstones, 7).values()) == [8, 9, 10]


def test_a_large_limit_forgets_whole_blocks() -> None:
    tombstones = filled(4 * BLOCK, 2 * BLOCK)
    assert tombstones.count <= 2 * BLOCK
    assert tombstones.known_since % BLOCK == 0
    found = read_all(tombstones, tombstones.known_since)
    assert sorted(found.values()) == list(range(tombstones.known_since + 1, 4 * BLOCK + 1))


def test_with_no_room_nothing_is_known_of_the_past() -> None:
    tombstones = filled(5, 0)
    assert tombstones.known_since == 5
    assert read_all(tombstones, 5) == {}
