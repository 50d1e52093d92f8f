"""Tables of the pipeline in an object store, without Hadoop: Python's workers read and write their files.

Spark's own Parquet reader reaches a store only with jars that no Python package brings. Arrow reaches it as the library
of the tables does, with the same credentials.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileInfo, FileSelector, FileSystem, LocalFileSystem, PyFileSystem
from pyspark.sql import DataFrame, SparkSession

from holdfast.history.storage_options import is_remote, storage_options


def filesystem_of(location: str) -> FileSystem:
    """What opens the files of a table by their whole paths or addresses."""
    return PyFileSystem(StoreHandler(location.rstrip("/"))) if is_remote(location) else LocalFileSystem()


class StoreHandler(DeltaStorageHandler):
    """The files of a table in a store. The library knows them by their names within the table."""

    def __init__(self, root: str) -> None:
        super().__init__(root, storage_options(root))
        self.root = root

    def within(self, path: str) -> str:
        return path.removeprefix(self.root).lstrip("/")

    def normalize_path(self, path: str) -> str:
        return self.within(path)

    def delete_file(self, path: str) -> None:
        super().delete_file(self.within(path))

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        return super().get_file_info([self.within(path) for path in paths])

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        inside = FileSelector(self.within(selector.base_dir), selector.allow_not_found, selector.recursive)
        return super().get_file_info_selector(inside)

    def open_input_file(self, path: str) -> pa.PythonFile:
        return super().open_input_file(self.within(path))

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return super().open_input_stream(self.within(path))

    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
        return super().open_output_stream(self.within(path), metadata)


def parquet_frame(spark: SparkSession, root: str, paths: Sequence[str], ddl: str, schema: pa.Schema) -> DataFrame:
    """The rows of Parquet files of a table at `root`: through Spark's own reader where they lie in a folder."""
    if not is_remote(root):
        return spark.read.schema(ddl).parquet(*paths)
    listed = spark.createDataFrame([(path,) for path in paths], "path string").repartition(len(paths))
    return listed.mapInArrow(_Files(root, schema), ddl)


class _Files:
    """Runs in an executor: takes addresses of files, gives their rows."""

    def __init__(self, root: str, schema: pa.Schema) -> None:
        self.root, self.schema = root, schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem = filesystem_of(self.root)
        for batch in batches:
            for path in batch.column("path").to_pylist():
                with pq.ParquetFile(path, filesystem=filesystem) as file:
                    for rows in file.iter_batches(8192, use_threads=False):
                        table = pa.Table.from_batches([rows]).select(self.schema.names).cast(self.schema)
                        yield from table.to_batches()
