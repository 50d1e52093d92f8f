"""Which tables there are in a place, whoever declared them, and how they lie there. Starts no Spark."""

from typing import Any

from deltalake.exceptions import DeltaError
from pyarrow.fs import FileSelector, FileType

from holdfast.errors import StoreError
from holdfast.history.layout import layout_of
from holdfast.history.place import Place, open_again
from holdfast.history.storage_options import redacted
from holdfast.spark.delta import absolute, is_table
from holdfast.spark.tables import TABLES


def layouts(root: str) -> dict[str, dict[str, Any]]:
    """How each table in a folder or at an address lies there, by name: the pipeline's own first, in their order. None
    where there is no such place. Raises StoreError where one cannot be read.
    """
    own = list(TABLES)
    names = sorted(_names(root), key=lambda name: (own.index(name) if name in own else len(own), name))
    return {name: _layout(f"{absolute(root)}/{name}") for name in names}


def _names(root: str) -> list[str]:
    try:
        found = Place(absolute(root)).filesystem().get_file_info(FileSelector("", allow_not_found=True))
    except (DeltaError, OSError) as error:
        raise StoreError(f"the tables at {root} cannot be listed: {redacted(str(error))}") from None
    folders = [one.base_name for one in found if one.type == FileType.Directory]
    return [name for name in folders if name.isidentifier() and is_table(f"{absolute(root)}/{name}")]


def _layout(root: str) -> dict[str, Any]:
    place = Place(root)
    try:
        return layout_of(open_again(place), place)
    except (DeltaError, OSError) as error:
        raise StoreError(f"the table at {root} cannot be opened: {redacted(str(error))}") from None
