"""The history table's columns, and what those who write and read Delta tables agree on. Nothing else: executors import
this.

Only plain values are needed here, so that a reader can know the table before it loads Arrow. The types are written as
Spark and Delta spell them; `arrow_schema` says the same to Arrow.
"""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final[tuple[tuple[str, str], ...]] = (
    ("offset", "long"),
    ("timestamp", "timestamp"),
    ("topic", "string"),
    ("payload", "binary"),
    ("qos", "byte"),
    ("retain", "boolean"),
    ("client_id", "string"),
    ("username", "string"),
    ("protocol", "string"),
    ("expires_at", "timestamp"),
    ("content_type", "string"),
    ("response_topic", "string"),
    ("correlation_data", "binary"),
    ("payload_format", "byte"),
    ("user_properties", "array<struct<key:string,value:string>>"),
    ("outcome", "string"),
)

OUTCOME_LIVE: Final = "live"
OUTCOME_SET: Final = "set"
OUTCOME_CLEARED: Final = "cleared"
REFUSALS: Final = ("refused_size", "refused_count", "refused_budget", "refused_policy")
OUTCOMES: Final = (OUTCOME_LIVE, OUTCOME_SET, OUTCOME_CLEARED, *REFUSALS)

# Delta application transactions. The writer's carries the last offset in the table, so that a crash between journal and
# table neither doubles nor loses a row; retention's carries the first offset that is still complete, so that a reader
# can tell rows that were dropped from offsets that never had a row (`history.filter` leaves gaps).
WRITER_APP_ID: Final = "holdfast-history"
RETENTION_APP_ID: Final = "holdfast-retention"

# From which offset on publishes without RETAIN are rows too; 0 while they are not. A table that does not say has them
# from its beginning: it was made when there was no choice, or by a broker that has always recorded all.
LIVE_APP_ID: Final = "holdfast-live"

# What an erasure leaves behind: rows without payload, known by a protocol that no client can have. One of them says
# what was erased, under a topic that only the broker may write to where its place is free. The transaction counts the
# erasures that are finished.
ERASED_PROTOCOL: Final = "erased"
ERASED_TOPIC: Final = "$holdfast/erased"
ERASED_APP_ID: Final = "holdfast-erased"

# Whose table it is, where it does not lie in a data folder: a number that the broker's data folder has too.
OWNER_APP_ID: Final = "holdfast-owner"

# Of several nodes that write to one table, the one that wrote last.
HOLDER_APP_ID: Final = "holdfast-holder"

# What the last compaction gained: the files and bytes that went in and came out, and when, a number each.
COMPACTION_APP_ID: Final = "holdfast-compaction"

# Where the metadata of the Iceberg view lies within the table. What deletes files that the Delta table does not know
# passes over names that begin with an underscore.
ICEBERG_FOLDER: Final = "_iceberg"

# Also an application transaction (Delta refuses table properties it does not know). A reader refuses a table whose
# number is above the one it knows; a table without one is of version 1.
FORMAT_APP_ID: Final = "holdfast-format"
FORMAT_VERSION: Final = 1


def arrow_schema() -> "pa.Schema":
    import pyarrow as pa

    types = {
        "long": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "string": pa.string(),
        "binary": pa.binary(),
        "byte": pa.int8(),
        "boolean": pa.bool_(),
        "array<struct<key:string,value:string>>": pa.list_(
            pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())])
        ),
    }
    return pa.schema([pa.field(name, types[kind]) for name, kind in COLUMNS])


def log_bound(value: Any, up: bool) -> Any:
    """Return the lowest or highest value of a column as the log of a Delta table has it: that keeps milliseconds, and a
    bound must not be rounded inwards.
    """
    if not isinstance(value, datetime):
        return value
    value = value.astimezone(UTC)
    odd = value.microsecond % 1000
    value += timedelta(microseconds=(1000 - odd) if odd and up else -odd)
    return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
