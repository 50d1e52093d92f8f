"""Sending again until it has come back, on a told clock and with the network in the hands of the test."""

from __future__ import annotations

import json

from holdfast.cluster.connection import Message
from holdfast.cluster.sender import PAUSE_S, PROGRESS_S, Sender


class Network:
    def __init__(self, in_flight: int = 3) -> None:
        self.time = 100.0
        self.there = True
        self.sent: list[tuple[bytes, str]] = []
        self.sender = Sender(self.publish, "inbox", in_flight, lambda: self.time)

    def publish(self, payload: bytes, reply: str) -> bool:
        if self.there:
            self.sent.append((payload, reply))
        return self.there

    def took(self) -> list[bytes]:
        """What was sent since the last look."""
        taken = [payload for payload, _ in self.sent]
        self.replies = [reply for _, reply in self.sent]
        self.sent.clear()
        return taken

    def send(self, *counters: int) -> None:
        for counter in counters:
            self.sender.send(counter, b"%d" % counter)

    def answer(self, reply: str, **said: object) -> None:
        self.sender.on_answer(Message(reply, "", b"", json.dumps(said).encode()))

    def later(self, seconds: float) -> None:
        self.time += seconds
        self.sender.tick()


def test_no_more_than_the_window_is_sent_until_something_comes_back() -> None:
    network = Network()
    network.send(1, 2, 3, 4, 5)
    assert network.took() == [b"1", b"2", b"3"]
    network.sender.returned(2)
    assert network.took() == [b"4", b"5"]
    network.sender.returned(5)
    assert (network.sender.waiting, network.sender.waiting_bytes) == (0, 0)


def test_what_came_back_before_is_of_no_consequence() -> None:
    network = Network()
    network.send(5, 6)
    network.sender.returned(4)
    assert network.sender.waiting == 2


def test_when_nobody_leads_one_is_tried_after_a_pause_and_all_when_it_comes_back() -> None:
    network = Network()
    network.send(1, 2, 3)
    network.took()
    for reply in network.replies:
        network.sender.on_answer(Message(reply, "", b"NATS/1.0 503\r\n\r\n", b""))
    assert "has no leader" in network.sender.trouble
    assert network.took() == []
    network.later(PAUSE_S[0])
    assert network.took() == [b"1"]
    network.sender.returned(1)
    assert network.took() == [b"2", b"3"]
    assert network.sender.trouble == ""


def test_answers_to_what_was_sent_before_count_for_nothing() -> None:
    network = Network()
    network.send(1)
    network.took()
    old = network.replies[0]
    network.sender.on_connected()
    assert network.took() == [b"1"]
    network.answer(old, error={"err_code": 10077, "description": "maximum bytes exceeded"})
    assert network.sender.trouble == ""


def test_a_full_log_is_tried_again_and_again() -> None:
    network = Network()
    network.send(1, 2)
    for _ in range(5):
        network.took()
        network.answer(network.replies[0], error={"err_code": 10077, "description": "maximum bytes exceeded"})
        assert network.sender.trouble.startswith("the log is full (maximum bytes exceeded)")
        network.later(PAUSE_S[1])
        assert network.took() == [b"1"]
        network.sender.on_connected()


def test_all_is_sent_again_when_nothing_is_heard() -> None:
    network = Network()
    network.send(1, 2)
    network.took()
    network.later(PROGRESS_S / 2)
    assert network.took() == []
    network.later(PROGRESS_S / 2)
    assert network.took() == [b"1"], "one, to find out"
    assert network.sender.trouble.startswith("the log has not answered")


def test_what_is_stored_and_only_not_read_yet_is_not_sent_again() -> None:
    network = Network()
    network.send(1)
    network.took()
    network.answer(network.replies[0], stream="HF_holdfast", seq=9)
    network.later(PROGRESS_S * 10)
    assert network.took() == []
    network.sender.position = 9  # it was read, and was not ours to take: something before it is missing
    network.later(0)
    assert network.took() == [b"1"]


def test_a_gap_calls_for_one_more_round_and_not_for_many() -> None:
    network = Network(in_flight=4)
    network.send(1, 2, 3, 4)
    network.took()
    network.answer(network.replies[1], seq=10)  # the first was lost
    for position in (10, 11, 12):
        network.sender.position = position
        network.sender.resend()
    assert network.took() == [b"1", b"2", b"3", b"4"]
    network.answer(network.replies[0], seq=13)
    network.sender.position = 13
    network.sender.returned(1)
    assert network.sender.sent_again == 4


def test_what_is_given_without_a_connection_is_sent_when_there_is_one() -> None:
    network = Network()
    network.there = False
    network.sender.on_lost("gone")
    network.send(1, 2)
    assert network.took() == []
    network.there = True
    network.sender.on_connected()
    assert network.took() == [b"1"]
    network.sender.returned(1)
    assert network.took() == [b"2"]


def test_a_connection_that_is_back_is_no_trouble_where_nothing_waits() -> None:
    network = Network()
    network.sender.on_lost("gone")
    network.sender.on_connected()
    assert network.sender.trouble == ""
