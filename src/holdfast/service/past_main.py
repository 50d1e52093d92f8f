"""A process that answers questions to the past, so that no broker has to load the libraries of the history.

Run as `python -m holdfast.service.past_main TABLE STORAGE_FILE ERASURES`: where the table is, what its store is told,
and the folder of what operators have asked to be erased; each of the last two may be empty. Questions come in on the
standard input as frames: (number, method of `Past`, positional and named arguments); answers leave on the standard
output as (number, whether it could be answered, the answer or why not), in the order in which they are found. When the
input ends, so does the process.
"""

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

from holdfast.errors import StoreError
from holdfast.history.libraries import load_arrow_alone
from holdfast.history.place import Place
from holdfast.service.past import Past, answered
from holdfast.storage.follower_main import give_way, prepare_process

MODULE = "holdfast.service.past_main"
SIZE_BYTES = 8
AT_ONCE = 2  # so that a quick question need not wait for a slow one

Question = tuple[int, Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def frame(value: object) -> bytes:
    data = pickle.dumps(value)
    return len(data).to_bytes(SIZE_BYTES, "big") + data


def read_frame(stream: BinaryIO) -> Any:
    """The next value, None at the end."""
    head = stream.read(SIZE_BYTES)
    data = stream.read(int.from_bytes(head, "big"))
    return pickle.loads(data) if len(head) == SIZE_BYTES and data else None


def first_line_of(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]


class Answers:
    def __init__(self, past: Past, out: BinaryIO) -> None:
        self.past = past
        self.out = out
        self.writing = Lock()

    def answer(self, number: int, question: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> None:
        try:
            answer = frame((number, True, answered(self.past, question, *given, **named)))
        except StoreError as error:
            answer = frame((number, False, str(error)))
        except (OSError, ValueError) as error:  # what a file of the table says is not so, or not there
            answer = frame((number, False, f"the history cannot be read: {first_line_of(error)}"))
        except Exception as error:
            traceback.print_exc()
            answer = frame((number, False, f"the history cannot be read: {type(error).__name__}: {error}"))
        with self.writing:
            self.out.write(answer)
            self.out.flush()


def main() -> None:
    prepare_process()
    give_way()
    load_arrow_alone()
    table, storage_file, requests = sys.argv[1:]
    past = Past(Place(table, storage_file), requests=Path(requests) if requests else None)
    answers = Answers(past, sys.stdout.buffer)
    pool = ThreadPoolExecutor(AT_ONCE)
    while (asked := read_frame(sys.stdin.buffer)) is not None:
        pool.submit(answers.answer, *asked)
    os._exit(0)  # nobody waits any more; Arrow's threads would abort a process that takes itself apart


if __name__ == "__main__":
    main()
