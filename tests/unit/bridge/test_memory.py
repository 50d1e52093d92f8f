"""What a bridge remembers of each topic."""

from pathlib import Path

from holdfast.bridge.echoes import LIFETIME_S, MOST, Echoes
from holdfast.bridge.memory import DOUBTED, Memory
from holdfast.bridge.plan import digest
from holdfast.protocol.mqtt.properties import Properties
from holdfast.service.messages import encode_forwarded


def test_it_is_there_after_a_restart(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "b" / "x.sqlite3")
    memory.put(b"a", b"1")
    memory.put(b"b", b"2")
    memory.put(b"b", None)
    memory.set_fact("since #", "7")
    memory.close()
    again = Memory(tmp_path / "b" / "x.sqlite3")
    assert (again.get(b"a"), again.get(b"b"), again.count, again.fact("since #")) == (b"1", None, 1, "7")
    again.remove()
    assert list((tmp_path / "b").iterdir()) == []


def test_beyond_the_bound_topics_are_counted_and_those_known_go_on() -> None:
    memory = Memory(None, most=2)
    for topic in (b"a", b"b", b"c"):
        memory.put(topic, b"1")
    memory.put(b"a", b"2")
    assert (memory.get(b"a"), memory.get(b"c"), memory.count, memory.left_out) == (b"2", None, 2, 1)
    memory.put(b"a", None)
    memory.put(b"c", b"3")
    assert memory.get(b"c") == b"3"
    memory.close()


def test_what_was_not_seen_in_a_generation_is_listed() -> None:
    memory = Memory(None)
    for number in range(3000):
        memory.put(b"%05d" % number, b"1")
    memory.next_generation()
    assert memory.see(b"00001")
    assert not memory.see(b"00001")
    assert not memory.see(b"unknown")
    memory.put(b"00002", b"2")
    found = [topic for portion in memory.topics(memory.generation) for topic in portion]
    assert len(found) == 2998
    assert b"00001" not in found
    assert b"00002" not in found
    assert sum(map(len, memory.topics())) == 3000
    memory.doubt(b"00003")
    assert memory.get(b"00003") == DOUBTED
    memory.close()


def test_as_many_echoes_are_expected_as_were_sent_and_not_for_ever() -> None:
    echoes = Echoes()
    echoes.expect(b"a", b"1", 0.0)
    echoes.expect(b"a", b"1", 1.0)
    assert not echoes.is_echo(b"a", b"2", 1.0)
    assert [echoes.is_echo(b"a", b"1", 2.0) for _ in range(3)] == [True, True, False]
    echoes.expect(b"a", b"1", 2.0)
    assert not echoes.is_echo(b"a", b"1", 2.0 + LIFETIME_S)
    for number in range(MOST + 5):
        echoes.expect(b"%d" % number, b"1", 3.0)
    assert len(echoes.expected) == MOST


def test_mqtt_3_1_1_holds_payloads_only_and_the_way_is_no_content() -> None:

    given = Properties()
    given.user_properties = [("unit", "C"), ("holdfast-via", "x")]
    same = Properties()
    same.user_properties = [("unit", "C")]
    assert digest(b"1", encode_forwarded(given), 5) == digest(b"1", encode_forwarded(same), 5) != digest(b"1", b"", 5)
    assert digest(b"1", encode_forwarded(given), 4) == digest(b"1", b"", 4)
