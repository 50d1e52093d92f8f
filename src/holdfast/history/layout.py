"""How a table lies there: rows, files, sizes, and what the last compaction gained, which the table says itself."""

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs
from deltalake import DeltaTable, Transaction

from holdfast.history.place import At, place_of
from holdfast.history.schema import COMPACTION_APP_ID
from holdfast.history.table import load


@dataclass(frozen=True)
class Gain:
    """What a compaction made of how many files and bytes, and when."""

    files: int
    bytes: int
    files_after: int
    bytes_after: int
    at_ms: int

    def transactions(self) -> list[Transaction]:
        numbers = {
            "files": self.files,
            "bytes": self.bytes,
            "files-after": self.files_after,
            "bytes-after": self.bytes_after,
            "at-ms": self.at_ms,
        }
        return [Transaction(f"{COMPACTION_APP_ID}-{name}", number, None) for name, number in numbers.items()]


def last_gain(table: DeltaTable) -> Gain | None:
    """What the last compaction of a table gained, if there was one."""
    names = ("files", "bytes", "files-after", "bytes-after", "at-ms")
    found = [table.transaction_version(f"{COMPACTION_APP_ID}-{name}") for name in names]
    return None if None in found else Gain(*(number or 0 for number in found))


def layout(at: At) -> dict[str, Any]:
    """How the history lies there, see `layout_of`. Raises StoreError when it cannot be read."""
    return layout_of(load(at), at)


def layout_of(table: DeltaTable, at: At) -> dict[str, Any]:
    """How a table lies there: its rows and files, those that others have replaced and that are not deleted yet, and
    what the last compaction gained. No file is opened: `rows` is None where the log does not say how many they are.
    """
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    files = {action["path"]: action["size_bytes"] for action in actions}
    rows = [action.get("num_records") for action in actions]
    found = place_of(at).filesystem().get_file_info(fs.FileSelector("", allow_not_found=True))
    left = [one.size for one in found if one.base_name.endswith(".parquet") and one.base_name not in files]
    gain = last_gain(table)
    return {
        "rows": None if None in rows else sum(filter(None, rows)),
        "files": len(files),
        "bytes": sum(files.values()),
        "smallest": min(files.values(), default=0),
        "largest": max(files.values(), default=0),
        "replaced_files": len(left),
        "replaced_bytes": sum(left),
        "last_compaction": None if gain is None else asdict(gain),
    }
