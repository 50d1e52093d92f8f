"""A write to the journal that a kill cuts short, wherever it may be cut: a QoS 2 message stays one message."""

import shutil
import struct
from pathlib import Path

import pytest
from deltalake import DeltaTable

from broker_process import start_holdfast
from crash_actors import QueueWriter, Subscriber, connect_lasting
from http_api import until
from wire import PubRec, WireClient, publish

SEGMENT_HEAD = 24
FRAME_HEAD = struct.Struct("<2sII")
RECORD_HEAD = 10
LENGTH = struct.Struct("<I")
BATCH = 4
PAYLOAD = b"writer:1"
ALL = {"history.record": "all"}


def newest_segment(data: Path) -> Path:
    return max((data / "journal").glob("*.hfj"))


def ends_of_records(content: bytes) -> list[int]:
    """Where the records of a segment end, those that share a frame included."""
    ends = [SEGMENT_HEAD]
    while content[ends[-1] : ends[-1] + 2] == b"\xf5H":
        record = ends[-1] + FRAME_HEAD.size
        end = record + FRAME_HEAD.unpack_from(content, ends[-1])[1]
        at = record + RECORD_HEAD
        while content[record + 1] == BATCH and at < end:
            at += LENGTH.size + LENGTH.unpack_from(content, at)[0]
            ends.append(at)
        if ends[-1] != end:
            ends.append(end)
    return ends


def settled(data: Path) -> None:
    """A writer and a subscriber with sessions that last, and a broker that ended in peace."""
    broker = start_holdfast(data, ALL)
    for actor in (Subscriber("reader", "q", 2, 5), QueueWriter("writer", "q", 2, 5)):
        actor.stop.set()
        with WireClient(broker.port, 5) as client:
            actor.session(client)
            client.disconnect()
    assert broker.stop() == 0, broker.output


def published_once(data: Path) -> tuple[bytes, list[int]]:
    """Publish, and kill the broker as soon as it has answered; the segment, and where that write can be cut in it."""
    broker = start_holdfast(data, ALL)
    with WireClient(broker.port, 5) as client:
        assert connect_lasting(client, "writer", 5)
        client.ping()
        before = ends_of_records(newest_segment(data).read_bytes())
        client.send(publish("q", PAYLOAD, qos=2, packet_id=1, version=5))
        client.expect(PubRec, packet_id=1)
        broker.kill()
    content = newest_segment(data).read_bytes()
    return content, ends_of_records(content)[len(before) - 1 :]


def finish(data: Path) -> list[bytes]:
    """The writer, who was never answered, sends it again; what the subscriber gets of it."""
    broker = start_holdfast(data, {**ALL, "history.flush_interval": "100ms"})
    writer = QueueWriter("writer", "q", 2, 5, under_way={1: 1}, started=True)
    writer.stop.set()
    with WireClient(broker.port, 5) as client:
        writer.session(client)
    reader = Subscriber("reader", "q", 2, 5, started=True)
    with WireClient(broker.port, 5) as client:
        reader.drain(client, lambda: bool(reader.received))
    until(lambda: payloads_in_history(data), bool)
    assert broker.stop() == 0, broker.output
    return reader.received


def payloads_in_history(data: Path) -> list[bytes]:
    if not DeltaTable.is_deltatable(str(data / "history")):
        return []
    return list(DeltaTable(str(data / "history")).to_pyarrow_table()["payload"].to_pylist())


@pytest.mark.timeout(600)
def test_a_message_whose_write_was_cut_short_is_neither_lost_nor_doubled(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settled(data)
    before = tmp_path / "before"
    shutil.copytree(data, before)
    content, cuts = published_once(data)
    assert len(cuts) > 3, "publish, its waiting, its packet id"
    for cut in cuts:
        # What followed the journal is put back to where it was: as if the write had been the last thing that happened.
        again = tmp_path / f"cut-{cut}"
        shutil.copytree(before, again)
        shutil.rmtree(again / "journal")
        shutil.copytree(data / "journal", again / "journal")
        newest_segment(again).write_bytes(content[:cut])
        where = f"cut at byte {cut - cuts[0]} of {cuts[-1] - cuts[0]}"
        assert finish(again) == [PAYLOAD], where
        assert payloads_in_history(again) == [PAYLOAD], where
