"""What the nodes have written down, when all is healed and quiet: are the rows of their histories the same, and does
Spark make of each what its node sends to a new subscriber?
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyarrow import compute

from holdfast.history.schema import arrow_schema
from jepsen.history import Recorded

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

BEHIND_S = 120.0  # history is written behind the log


@cache
def session() -> SparkSession:
    """One for all rounds of a process."""
    from holdfast.spark.session import start_session

    return start_session("local[2]", name="holdfast-jepsen")


def recorded(nodes: Mapping[str, tuple[Path, int]], at: float) -> list[Recorded]:
    """The histories of nodes, of which each has a data folder and a port. A node that has taken the state of another
    has no rows of what was before: they are compared from where all have them.
    """
    tables = level({name: folder / "history" for name, (folder, _) in nodes.items()})
    begins = max(first_offset(table) for table in tables.values())
    return [
        Recorded(
            name,
            at,
            table.num_rows,
            digest(table.filter(compute.greater_equal(table["offset"], begins))),
            audited(folder, port) if shutil.which("java") else [],
        )
        for name, (folder, port) in nodes.items()
        for table in (tables[name],)
    ]


def level(places: Mapping[str, Path]) -> dict[str, pa.Table]:
    """The rows of all, as soon as the newest of each is the same, or after a while as they are."""
    deadline = time.monotonic() + BEHIND_S
    while True:
        tables = {name: rows_of(place) for name, place in places.items()}
        newest = {table["offset"][-1].as_py() if table.num_rows else 0 for table in tables.values()}
        if len(newest) == 1 or time.monotonic() > deadline:
            return tables
        time.sleep(0.2)


def rows_of(place: Path) -> pa.Table:
    try:
        return DeltaTable(place).to_pyarrow_table().sort_by("offset")
    except TableNotFoundError:
        return arrow_schema().empty_table()


def first_offset(table: pa.Table) -> int:
    return int(table["offset"][0].as_py()) if table.num_rows else 0


def digest(table: pa.Table) -> str:
    found = hashlib.sha256()
    for row in table.to_pylist():
        found.update(repr(sorted(row.items())).encode())
    return f"{table.num_rows} rows {found.hexdigest()[:16]}"


def audited(folder: Path, port: int) -> list[str]:
    """What `holdfast pipeline audit --live` finds on one node."""
    from holdfast.spark.jobs.audit import audit_live
    from holdfast.spark.ranges import History
    from spark.brokers import link_options

    result = audit_live(session(), History(str(folder / "history")), link_options(port), "r/#", BEHIND_S)
    return [f"{row.topic}: {row.problem}: {row.expected} and {row.got}" for row in result.differences.collect()]
