"""History through Spark's own Parquet reader, with the options of `spark.read.format("holdfast")`.

Rows of a Python data source go from Python to the JVM one batch after the other. Where the session that asks can see
the table's files itself, Spark need only be told which ones: it reads them as fast as any Parquet, leaves out columns
that nobody asks for, and skips what a condition rules out. The price: the files are those of the moment at which it was
asked, so a query over a table that is compacted and vacuumed meanwhile may find one gone.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.history.schema import COLUMNS
from holdfast.spark.failure import check_whole
from holdfast.spark.options import Options
from holdfast.spark.ranges import History
from holdfast.spark.source import OPTIONS, HoldfastSource, Plan

# What says how a stream or a Python source goes about it has no meaning here.
BATCH_OPTIONS = tuple(name for name in OPTIONS if name not in ("maxOffsetsPerTrigger", "rowsPerPartition"))


def read_history(spark: SparkSession, path: str, **options: str | int | bool) -> DataFrame:
    """The rows that `spark.read.format("holdfast").options(**options).load(path)` has now."""
    given = {"path": path, **{name: str(value) for name, value in options.items()}}
    plan = Plan(Options(given, BATCH_OPTIONS, HoldfastSource.name()), [name for name, _ in COLUMNS])
    history = History(plan.address)
    start, end = plan.bounds(history)
    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
    files = history.between(start, end)
    if not files:
        return spark.createDataFrame([], schema)
    check_whole(history, start, end)
    rows = spark.read.schema(schema).parquet(*(file.path for file in files))
    if any(file.first < start or file.last >= end for file in files):
        rows = rows.where((F.col("offset") >= start) & (F.col("offset") < end))
    return rows if plan.filter is None else rows.where(plan.filter.column(F.col("topic")))
