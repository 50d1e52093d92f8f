"""Spark over history: sources, sink, fold, tables and jobs. Imports of ours: `history.schema` and `errors` only.

Without the packages it needs, importing anything of this room says which extra brings them.
"""

from importlib.util import find_spec

from holdfast.errors import UsageError

for _package in ("pyspark", "pyarrow", "deltalake"):
    if find_spec(_package) is None:
        raise UsageError(f"{_package} is not installed: `pip install 'holdfast[spark]'` brings what the pipeline needs")
