"""The publishing side over a real socket pair: windows, writes cut short, and what may stand between frames."""

import socket
from collections.abc import Iterator

import pytest

from holdfast_bench.codec import PublishFrame, ReceiveParser
from holdfast_bench.connection import LoadConnection
from holdfast_bench.publisher import FlatOutSender, PacedSender
from wire_packets import puback, publish, pubrec, pubrel


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    ours.setblocking(False)
    theirs.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def connection(sock: socket.socket) -> LoadConnection:
    return LoadConnection(sock, "pub", ReceiveParser(4))


def read_all(sock: socket.socket) -> bytes:
    got = b""
    while True:
        try:
            got += sock.recv(1 << 20)
        except BlockingIOError:
            return got


def test_window_is_filled_and_not_exceeded(pair: tuple[socket.socket, socket.socket]) -> None:
    flow = FlatOutSender(connection(pair[0]), PublishFrame(b"t", b"x", 1, False, 4), 5, 0)
    flow.pump(0)
    assert read_all(pair[1]) == b"".join(publish("t", b"x", qos=1, packet_id=i) for i in range(1, 6))
    flow.pump(0)
    assert read_all(pair[1]) == b""
    flow.connection.received.feed(puback(1) + puback(2), 0)
    flow.pump(0)
    assert read_all(pair[1]) == b"".join(publish("t", b"x", qos=1, packet_id=i) for i in (6, 7))


def test_window_is_no_larger_than_the_broker_allows(pair: tuple[socket.socket, socket.socket]) -> None:
    connected = LoadConnection(pair[0], "pub", ReceiveParser(5))
    connected.received.feed(bytes.fromhex("20 06 00 00 03 21 00 02"), 0)
    flow = FlatOutSender(connected, PublishFrame(b"t", b"x", 1, False, 5), 5, 0)
    flow.pump(0)
    assert flow.sent == 2


def test_limit_is_sent_exactly_and_finished_when_acknowledged(pair: tuple[socket.socket, socket.socket]) -> None:
    flow = FlatOutSender(connection(pair[0]), PublishFrame(b"t", b"x", 1, False, 4), 5, 3)
    flow.pump(0)
    assert flow.sent == 3
    assert not flow.finished
    flow.connection.received.feed(puback(1) + puback(2) + puback(3), 0)
    assert flow.finished


def test_stopping_completes_the_frame_that_was_cut_short(pair: tuple[socket.socket, socket.socket]) -> None:
    frame = PublishFrame(b"t", b"x" * 5000, 0, False, 4)
    flow = FlatOutSender(connection(pair[0]), frame, 1, 0)
    flow.pump(0)
    assert flow.blocked
    assert flow.sent_bytes % frame.size, "the socket took whole frames only: the case is not exercised"
    flow.stop()
    got = read_all(pair[1])
    while not flow.finished:
        flow.pump(0)
        got += read_all(pair[1])
    assert got == frame.block(flow.sent)


def test_pubrel_waits_for_the_end_of_a_frame(pair: tuple[socket.socket, socket.socket]) -> None:
    frame = PublishFrame(b"t", b"x" * 5000, 2, False, 4)
    flow = FlatOutSender(connection(pair[0]), frame, 100, 20)
    flow.pump(0)
    assert flow.sent_bytes % frame.size, "the socket took whole frames only: the case is not exercised"
    flow.owed += flow.connection.received.feed(pubrec(1), 0)
    got = b""
    while flow.sent < 20 or flow.owed:
        got += read_all(pair[1])
        flow.pump(0)
    got += read_all(pair[1])
    received = ReceiveParser(4)
    received.feed(got, 0)
    assert received.messages == 20
    assert got.replace(pubrel(1), b"", 1) == frame.block(20)


def test_paced_sends_what_is_due_and_no_more(pair: tuple[socket.socket, socket.socket]) -> None:
    flow = PacedSender(
        connection(pair[0]), PublishFrame(b"t", bytes(8), 0, False, 4), 1, 0, interval_ns=100, first_ns=1000
    )
    flow.pump(999)
    assert flow.sent == 0
    flow.pump(1000)
    assert flow.sent == 1
    flow.pump(1350)
    assert flow.sent == 4
    assert flow.next_due_ns == 1400
    stamps = [1000, 1350, 1350, 1350]
    assert read_all(pair[1]) == b"".join(publish("t", stamp.to_bytes(8, "big")) for stamp in stamps)


def test_paced_counts_waiting_for_the_window_as_latency(pair: tuple[socket.socket, socket.socket]) -> None:
    flow = PacedSender(
        connection(pair[0]), PublishFrame(b"t", bytes(8), 1, False, 4), 1, 0, interval_ns=100, first_ns=0
    )
    flow.pump(0)
    flow.pump(100)
    assert flow.sent == 1
    flow.connection.received.feed(puback(1), 0)
    flow.pump(150)
    assert read_all(pair[1]) == b"".join(
        publish("t", stamp.to_bytes(8, "big"), qos=1, packet_id=i) for i, stamp in ((1, 0), (2, 100))
    )
