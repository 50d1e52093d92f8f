"""Asking for a stream: only its leader's word counts, and a server without a quorum has a word too."""

import asyncio
import json
from typing import Any, cast

import pytest

from holdfast.cluster.connection import Connection
from holdfast.cluster.options import StreamOptions
from holdfast.cluster.stream import ask_leader, is_cut, message_count
from holdfast.errors import NoAnswer

OPTIONS = StreamOptions()
STATE = {"first_seq": 5, "last_seq": 9}
LED = {"state": STATE, "cluster": {"leader": "log-1", "replicas": []}}
LEADERLESS = {"state": STATE, "cluster": {"replicas": [{"name": "log-2", "offline": True}]}}
ALONE = {"state": STATE}  # a server that is no part of a cluster
UNKNOWN = {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}
UNAVAILABLE = {"error": {"code": 503, "err_code": 10008, "description": "JetStream system temporarily unavailable"}}


class Answers:
    """A connection on which these come one after another."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)

    async def request(self, subject: str, body: bytes = b"", timeout_s: float = 0.0) -> bytes:
        assert subject == f"$JS.API.STREAM.INFO.{OPTIONS.stream}"
        return json.dumps(self.answers.pop(0)).encode()


def ask(answer: dict[str, Any]) -> dict[str, Any] | None:
    return asyncio.run(ask_leader(cast("Connection", Answers(answer)), OPTIONS.stream))


@pytest.mark.parametrize("answer", [LED, ALONE], ids=["led", "alone"])
def test_what_the_leader_or_the_only_server_says_is_the_answer(answer: dict[str, Any]) -> None:
    assert ask(answer) == answer


def test_there_may_be_no_such_stream() -> None:
    assert ask(UNKNOWN) is None


@pytest.mark.parametrize("answer", [LEADERLESS, UNAVAILABLE], ids=["leaderless", "unavailable"])
def test_who_has_no_quorum_has_not_answered(answer: dict[str, Any]) -> None:
    with pytest.raises(NoAnswer):
        ask(answer)


def test_how_long_a_log_is_is_asked_until_a_leader_says_it() -> None:
    connection = cast("Connection", Answers(UNAVAILABLE, LEADERLESS, LED))
    assert asyncio.run(message_count(connection, OPTIONS)) == 9


@pytest.mark.parametrize(
    ("answer", "next_one", "expected"),
    [(LED, 4, True), (LED, 5, False), (UNKNOWN, 1, False), (UNAVAILABLE, 1, False), (LEADERLESS, 1, False)],
    ids=["cut", "not cut", "no log", "unavailable", "leaderless"],
)
def test_a_log_is_cut_where_its_leader_says_that_it_begins_later(
    answer: dict[str, Any], next_one: int, expected: bool
) -> None:
    assert asyncio.run(is_cut(cast("Connection", Answers(answer)), OPTIONS, next_one)) is expected
