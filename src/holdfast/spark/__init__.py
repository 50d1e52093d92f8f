"""Spark over history: sources, sink, fold, tables and jobs. Imports of ours: `history.schema` and `errors` only.

Without the packages it needs, importing anything of this room says which extra brings them.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.spark.mqtt.sink import by_topic as by_topic
    from holdfast.spark.scan import read_history as read_history
    from holdfast.spark.session import start_session as start_session

for _package in ("pyspark", "pyarrow", "deltalake"):
    if find_spec(_package) is None:
        raise UsageError(
            f"{_package} is not installed: `pip install 'holdfast-mqtt[spark]'` brings what the pipeline needs"
        )

# Loaded when asked for: an executor that reads history has no use for a sink.
_NAMES = {
    "by_topic": "holdfast.spark.mqtt.sink",
    "read_history": "holdfast.spark.scan",
    "start_session": "holdfast.spark.session",
}
__all__ = ["by_topic", "read_history", "start_session"]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_NAMES[name]), name)
