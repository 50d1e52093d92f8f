"""Few large files instead of many small ones: executors read files as they are and write them as one.

Rows are neither compared nor moved between tasks, so Spark only shares out the work.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from deltalake.transaction import AddAction
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast.spark.delta import CLOSED, DataFile, Shape, Table
from holdfast.spark.files import REPORT_SCHEMA, add_action, read_file, write_file


def gather(spark: SparkSession, table: Table, files: Sequence[DataFile], size: int) -> list[AddAction]:
    """Files of ended rows, in order, as files of about so many bytes."""
    groups: list[list[str]] = [[]]
    gathered = 0
    for file in files:
        if gathered and gathered + file.size > size:
            groups.append([])
            gathered = 0
        groups[-1].append(file.path)
        gathered += file.size
    task = _Task(table.root, table.shape, groups)
    numbers = spark.range(len(groups)).select(F.col("id").cast("int").alias("group"))
    reports = numbers.repartitionById(len(groups), "group").mapInArrow(task, REPORT_SCHEMA).collect()
    return [add_action(report) for report in reports]


class _Task:
    """Runs in an executor: takes numbers of groups, leaves a file for each, reports them."""

    def __init__(self, root: str, shape: Shape, groups: list[list[str]]) -> None:
        self.root, self.shape, self.groups = root, shape, groups

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("group").to_pylist():
                found = [read_file(self.root, name, self.shape) for name in self.groups[number]]
                yield write_file(pa.concat_tables(found), self.root, self.shape, CLOSED)
