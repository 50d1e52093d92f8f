from holdfast.broker.message import topic_field
from holdfast.broker.retained import BLOCK, Tombstones

EVERYTHING = [b"#"]


def filled(count: int, most: int) -> Tombstones:
    tombstones = Tombstones()
    for number in range(1, count + 1):
        tombstones.add(topic_field(f"t/{number}".encode()), number, most)
    return tombstones


def test_last_deletion_of_each_topic_is_found_across_blocks() -> None:
    tombstones = filled(3 * BLOCK, 100_000)
    tombstones.add(topic_field(b"t/7"), 9000, 100_000)
    found = tombstones.since(2 * BLOCK, EVERYTHING)
    assert found[topic_field(b"t/7")] == 9000
    assert len(found) == BLOCK + 1


def test_only_matching_topics_are_found() -> None:
    tombstones = filled(20, 100)
    tombstones.add(topic_field(b"other"), 21, 100)
    assert set(tombstones.since(0, [b"other"])) == {topic_field(b"other")}


def test_a_small_limit_is_kept_exactly() -> None:
    tombstones = filled(10, 3)
    assert tombstones.known_since == 7
    assert list(tombstones.since(7, EVERYTHING).values()) == [8, 9, 10]


def test_a_large_limit_forgets_whole_blocks() -> None:
    tombstones = filled(4 * BLOCK, 2 * BLOCK)
    assert tombstones.count <= 2 * BLOCK
    assert tombstones.known_since % BLOCK == 0
    found = tombstones.since(tombstones.known_since, EVERYTHING)
    assert sorted(found.values()) == list(range(tombstones.known_since + 1, 4 * BLOCK + 1))


def test_with_no_room_nothing_is_known_of_the_past() -> None:
    tombstones = filled(5, 0)
    assert tombstones.known_since == 5
    assert tombstones.since(0, EVERYTHING) == {}
