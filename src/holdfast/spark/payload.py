"""What a payload says: as text, as JSON, as a number. Null where it says no such thing; nothing here raises."""

from pyspark.sql import Column
from pyspark.sql import functions as F


def text(payload: Column) -> Column:
    """The payload as text, null when its bytes are not UTF-8."""
    return F.try_validate_utf8(payload.cast("string"))


def json(payload: Column) -> Column:
    """The payload as a VARIANT, null when it is not JSON."""
    return F.try_parse_json(text(payload))


def number(payload: Column) -> Column:
    """The payload as a double: a plain number, or a JSON number. Null for everything else, `NaN` and `inf` included."""
    found = text(payload).try_cast("double")
    return F.when(F.isnan(found) | F.abs(found).eqNullSafe(F.lit(float("inf"))), F.lit(None)).otherwise(found)
