"""Where a table lies: a folder of this machine, or the address of an object store.

The library of the table and Arrow both reach a store through one implementation, so that both are given one set of
credentials. A broker knows of places without loading either: that happens where one is opened.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.history.storage_options import is_remote, storage_options

if TYPE_CHECKING:
    import pyarrow.fs as fs
    from deltalake import DeltaTable


@dataclass(frozen=True)
class Place:
    """`uri` is a folder, or an address such as `s3://bucket/history`; `storage_file` has what the store is told.
    `owner` is the number of the only data folder whose broker may write there; 0 where its lock is enough.
    """

    uri: str
    storage_file: str = ""
    owner: int = 0

    @property
    def folder(self) -> Path | None:
        """The folder, where it is one."""
        return None if is_remote(self.uri) else Path(self.uri.removeprefix("file://"))

    @property
    def options(self) -> dict[str, str] | None:
        return storage_options(self.uri, self.storage_file)

    def open(self) -> "DeltaTable":
        from deltalake import DeltaTable

        return DeltaTable(self.uri, storage_options=self.options)

    def exists(self) -> bool:
        from deltalake import DeltaTable

        return bool(DeltaTable.is_deltatable(self.uri, self.options))

    def filesystem(self) -> "fs.FileSystem":
        """The files of the table, by the names that its log has for them."""
        import pyarrow.fs as fs
        from deltalake.fs import DeltaStorageHandler

        folder = self.folder
        if folder is not None:
            return fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
        return fs.PyFileSystem(DeltaStorageHandler(self.uri, self.options))

    def __str__(self) -> str:
        return self.uri


At = Path | Place


def place_of(at: At) -> Place:
    return at if isinstance(at, Place) else Place(str(at))


def open_again(at: At) -> "DeltaTable":
    """Opens the table, twice where an erasure has just taken away the part of the log that was being read."""
    try:
        return place_of(at).open()
    except Exception:
        return place_of(at).open()
