"""A table of the pipeline as a value: its name, what its rows look like, and how a batch of history changes them.

    DerivedTable(name, schema, key, step)

The engine (`keeper`) knows nothing else of a table. It cuts history into batches and gives each row of it to each table
once: it brings the rows of a batch together with what the table holds, calls `step` for every range of keys, and
commits what comes back, with the offset that the batch ends at, in one transaction. Adding a table is adding a value.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, cast

import pyarrow as pa

from holdfast.errors import UsageError
from holdfast.history.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DDL = {
    pa.int64(): "long",
    pa.int32(): "int",
    pa.int8(): "byte",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.date32(): "date",
}


class Batch(NamedTuple):
    """Rows of history with `start <= offset < end`, about so many; `at_us`: the broker's clock at the last of them."""

    start: int
    end: int
    rows: int
    at_us: int = 0


# (held, rows, batch) -> the rows that take the place of `held`; see DerivedTable.
ArrowStep = Callable[[pa.Table, pa.Table, Batch], pa.Table]
# (table, now) -> all rows; see DerivedTable.of.
FrameStep = Callable[["DataFrame", datetime], "DataFrame"]


@dataclass(frozen=True)
class DerivedTable:
    """One table of the pipeline.

    `schema`: the columns, in Arrow's types (those in `DDL`, and lists, maps and structs of them).

    `key`: the columns that name a row. Files are sorted and cut by the first of them, and by it rows are brought
    together: whatever the batch and the table have of one value of `key[0]` is in one call of `step`. An empty key
    means that rows are only ever added: `held` is always empty, and what `step` returns is appended.

    `step(held, rows, batch)`: a plain function of Arrow tables, called in an executor for a range of `key[0]`, and
    pickled to get there (a function, or an object with `__call__` that holds plain values). `held` is what the table
    has in that range, in `schema`, keys that the batch does not name included. `rows` is the batch's part of the
    range, at least one row, in no particular order, with the columns of `takes`; columns that `schema` has too come in
    its types. It returns, in `schema` and in any order, the rows that take the place of `held`: those of keys that the
    batch does not name must be among them. How history is cut into batches must not change what comes out in the end.

    `takes`: what of a row of history the step is given, each column as an SQL expression over history's columns. It
    must name `key[0]`; rows in which that is null are left out. The default is all of history's columns as they are.
    `where` is an SQL condition: which rows.

    `groups`: aggregates as SQL. With them, `rows` has one row for each group of equal `takes`, aggregated by Spark
    before anything is moved: for counts and sums, which then cost no more than their result.

    `ended`: the column that says at which offset a row ended, null while it has not; there must be a column `offset`
    for where it began. Rows that have ended never come back as `held`; they are laid away in files of their own.

    `eager`: updated at every look at history rather than with the statistics: somebody waits for it.

    `rule`: the setting that its rows follow, if one chooses them: a table made by another rule is refused, not mixed.

    `of`: the name of another table of which this one is a summary, made anew with the statistics, because time changes
    it even when nobody publishes. `step` then is `step(table, now)`: a function of DataFrames, from all rows of that
    table to all rows of this one.

    Erasures follow by what columns there are: rows that an erasure selects by `topic`, `client_id` or `username` go.
    In a table with `offset` those after the erasure stay, and with `expires_at` also those still in force.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...]
    step: ArrowStep | FrameStep
    takes: Mapping[str, str] = field(default_factory=lambda: {name: f"`{name}`" for name, _ in COLUMNS})
    where: str = ""
    groups: Mapping[str, str] = field(default_factory=dict)
    ended: str = ""
    eager: bool = False
    rule: str = ""
    of: str = ""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise UsageError(f"expected a table's name to be spelt like an identifier, got {self.name!r}")
        for column in (*self.key, *((self.ended, "offset") if self.ended else ())):
            if column not in self.schema.names:
                raise UsageError(f"table {self.name}: expected a column {column!r}, got {self.schema.names}")
        if self.key and not self.of and self.key[0] not in self.takes:
            raise UsageError(
                f"table {self.name}: expected `takes` to name {self.key[0]!r}, by which rows are brought together, "
                f"got {sorted(self.takes)}"
            )

    @property
    def sorted_by(self) -> str:
        return self.key[0] if self.key else self.schema.names[0]

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{field.name}` {ddl_of(field.type)}" for field in self.schema)

    def follow(self, held: pa.Table, rows: pa.Table, batch: Batch) -> pa.Table:
        return cast(ArrowStep, self.step)(held, rows, batch)

    def summarise(self, table: "DataFrame", now: datetime) -> "DataFrame":
        return cast(FrameStep, self.step)(table, now)


def ddl_of(kind: pa.DataType) -> str:
    """An Arrow type as Spark and Delta spell it."""
    if pa.types.is_list(kind):
        return f"array<{ddl_of(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl_of(kind.key_type)},{ddl_of(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{part.name}:{ddl_of(part.type)}' for part in kind)}>"
    if kind not in DDL:
        raise UsageError(f"expected one of {', '.join(map(str, DDL))}, or lists, maps and structs of them, got {kind}")
    return DDL[kind]
