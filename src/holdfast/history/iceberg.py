"""The same files as an Iceberg table, for readers who know only that.

No row is written twice: Iceberg's metadata names the Parquet files of the Delta table, and follows it a few seconds
later, compaction and retention included. Columns are found by name, as the files have no field ids. The catalog is a
small SQLite file in the data folder; who wants none reads `_iceberg/metadata/version-hint.text`, which names the newest
metadata file. What was erased is in no older version either: the metadata begins anew then.
"""

import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as fs
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from holdfast.errors import StoreError
from holdfast.history.place import At, place_of
from holdfast.history.schema import ICEBERG_FOLDER as FOLDER
from holdfast.history.schema import arrow_schema
from holdfast.history.table import first_line

HINT: Final = f"{FOLDER}/metadata/version-hint.text"
CATALOG_NAME: Final = "iceberg.db"
NAMESPACE: Final = "holdfast"
DEFAULT_NAME_MAPPING: Final = "schema.name-mapping.default"
PROPERTIES: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "5",
}
# What the library of the Delta table calls these, and what this one does.
STORE_OPTIONS: Final = {
    "aws_access_key_id": "s3.access-key-id",
    "aws_secret_access_key": "s3.secret-access-key",
    "aws_session_token": "s3.session-token",
    "aws_region": "s3.region",
    "aws_endpoint_url": "s3.endpoint",
    "azure_storage_account_name": "adls.account-name",
    "azure_storage_account_key": "adls.account-key",
    "azure_storage_sas_token": "adls.sas-token",
    "google_service_account": "gcs.service-account-file",
}


class IcebergView:
    """The view of a table, by its name. `data` is the folder where the catalog lies. All of these raise StoreError."""

    def __init__(self, at: At, data: Path, table: str = "history", schema: pa.Schema | None = None) -> None:
        self.place, self.schema = place_of(at), arrow_schema() if schema is None else schema
        self.name, self.what = f"{NAMESPACE}.{table}", f"the Iceberg view of {table}"
        self.root = self.place.uri if self.place.folder is None else f"file://{self.place.folder.absolute()}"
        options = self.place.options or {}
        told = {STORE_OPTIONS[name]: value for name, value in options.items() if name in STORE_OPTIONS}
        uri = f"sqlite:///{(data / CATALOG_NAME).absolute()}"
        try:
            self.catalog = SqlCatalog("holdfast", uri=uri, warehouse=f"{self.root}/{FOLDER}", **told)
            self.catalog.create_namespace_if_not_exists(NAMESPACE)
            self.table = self.opened()
            self.said = ""
            self.known: dict[str, DataFile] = {
                task.file.file_path: task.file for task in self.table.scan().plan_files()
            }
        except Exception as error:
            raise StoreError(f"{self.what} cannot be opened: {first_line(error)}") from error

    def opened(self) -> Table:
        """The table, made anew where there is none, where it is about another place, or where its metadata is gone."""
        location = f"{self.root}/{FOLDER}"
        try:
            table = self.catalog.load_table(self.name)
            if table.location() == location:
                return table
            self.catalog.drop_table(self.name)
        except NoSuchTableError:
            pass
        except Exception:  # metadata that is gone or damaged can be had again
            self.catalog.drop_table(self.name)
        table = self.catalog.create_table(self.name, self.schema, location=location, properties=dict(PROPERTIES))
        with table.transaction() as change:
            change.set_properties({DEFAULT_NAME_MAPPING: table.schema().name_mapping.model_dump_json()})
        return table

    def follow(self, delta: DeltaTable) -> bool:
        """Makes the view what the table is, in one commit, and returns whether it was not already."""
        wanted = set(delta.file_uris())
        new, gone = wanted - self.known.keys(), self.known.keys() - wanted
        try:
            if new or gone:
                self.replace(new, gone)
            self.say_newest()
        except Exception as error:
            raise StoreError(f"{self.what} cannot be written: {first_line(error)}") from error
        return bool(new or gone)

    def replace(self, new: set[str], gone: set[str]) -> None:
        added = {}
        with self.table.transaction() as change, change.update_snapshot().overwrite() as snapshot:
            for path in gone:
                snapshot.delete_data_file(self.known[path])
            for file in parquet_files_to_data_files(self.table.io, change.table_metadata, iter(sorted(new))):
                file.spec_id = self.table.spec().spec_id  # as one that was read has it
                snapshot.append_data_file(file)
                added[file.file_path] = file
        self.known = {path: file for path, file in self.known.items() if path not in gone} | added

    def say_newest(self) -> None:
        """Once for each version; also where the view that made it could not."""
        newest = self.table.metadata_location
        if newest == self.said:
            return
        with self.table.io.new_output(f"{self.root}/{HINT}").create(overwrite=True) as hint:
            hint.write(newest.rpartition("/")[2].removesuffix(".metadata.json").encode())
        self.said = newest

    def clean(self, keep_s: float, now_s: float | None = None) -> int:
        """Deletes metadata of versions older than so many seconds, and returns how many files that were."""
        now_s = time.time() if now_s is None else now_s
        try:
            old = [one for one in self.table.metadata.snapshots if one.timestamp_ms < (now_s - keep_s) * 1000]
            current = self.table.metadata.current_snapshot_id
            expired = [one.snapshot_id for one in old if one.snapshot_id != current]
            if expired:
                self.table.maintenance.expire_snapshots().by_ids(expired).commit()
                self.say_newest()
            files = self.place.filesystem()
            needed = self.needed()
            found = files.get_file_info(fs.FileSelector(f"{FOLDER}/metadata", allow_not_found=True))
            dead = [
                one.path for one in found if one.is_file and one.base_name not in needed and is_old(one, now_s - keep_s)
            ]
            for path in dead:
                files.delete_file(path)
            return len(dead)
        except Exception as error:
            raise StoreError(f"{self.what} cannot be written: {first_line(error)}") from error

    def needed(self) -> set[str]:
        """The names of the files that the newest metadata refers to."""
        metadata = self.table.metadata
        needed = {HINT, self.table.metadata_location, *(one.metadata_file for one in metadata.metadata_log)}
        for snapshot in metadata.snapshots:
            needed.add(snapshot.manifest_list)
            needed.update(manifest.manifest_path for manifest in snapshot.manifests(self.table.io))
        return {path.rpartition("/")[2] for path in needed}

    def begin_anew(self, delta: DeltaTable) -> None:
        """Forgets every version and what its metadata says of rows that are gone: the lowest and the highest topic,
        client and user of each file there was.
        """
        try:
            self.catalog.drop_table(self.name)
            files = self.place.filesystem()
            for info in files.get_file_info(fs.FileSelector(FOLDER, recursive=True, allow_not_found=True)):
                if info.is_file:
                    files.delete_file(info.path)
            self.table = self.opened()
            self.known = {}
        except Exception as error:
            raise StoreError(f"{self.what} cannot be written: {first_line(error)}") from error
        self.follow(delta)

    def close(self) -> None:
        self.catalog.close()


def is_old(info: Any, before_s: float) -> bool:
    return info.mtime is not None and info.mtime.timestamp() <= before_s
