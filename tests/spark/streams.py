"""Streams on a machine that is busy with something else."""

from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

from spark.brokers import wait_for

ATTEMPTS = 10
TOO_SLOW = "Python worker failed to connect back"


def start_stream(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query that has come as far as its first batch, or has failed by itself.

    Spark gives the process behind a source in Python ten seconds to start, whatever is set. Where that was not enough,
    the query is started again.
    """
    for _ in range(ATTEMPTS):
        query = start()
        _wait_for_first_batch(query)
        if TOO_SLOW not in str(query.exception()):
            break
    return query


def _wait_for_first_batch(query: StreamingQuery) -> None:
    wait_for(lambda: query.lastProgress is not None or not query.isActive, "the stream to start")
