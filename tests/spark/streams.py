"""Streams on a machine that is busy with something else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from holdfast.spark.failure import SLOW_START
from spark.brokers import wait_for

ATTEMPTS = 10


def start_stream(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query that has come as far as its first batch, or has failed by itself. One is started again whose source
    Spark did not wait for.
    """
    for _ in range(ATTEMPTS):
        query = start()
        _wait_for_first_batch(query)
        if SLOW_START not in str(query.exception()):
            break
    return query


@contextmanager
def patient_streams() -> Iterator[None]:
    """Starts the queries of code that is not a test's own as `start_stream` does."""
    start = DataStreamWriter.start

    def start_patiently(writer: DataStreamWriter, *words: Any, **flags: Any) -> StreamingQuery:
        return start_stream(lambda: start(writer, *words, **flags))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataStreamWriter, "start", start_patiently)
        yield


def _wait_for_first_batch(query: StreamingQuery) -> None:
    wait_for(lambda: query.lastProgress is not None or not query.isActive, "the stream to start")
