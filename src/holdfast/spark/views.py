"""Tables of the pipeline as Iceberg tables too, for readers who know only that: no row is written twice."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import UsageError
from holdfast.history.place import Place
from holdfast.spark.delta import Table

if TYPE_CHECKING:
    from holdfast.history.iceberg import IcebergView

CLEAN_EVERY_S = 60.0


class Views:
    """The views of the tables with these names, and the folder where their catalog lies."""

    def __init__(self, names: Sequence[str] = (), catalog: Path = Path()) -> None:
        self.names, self.catalog = names, catalog
        self._views: list[tuple[Table, IcebergView]] = []
        self._clean_at = time.monotonic() + CLEAN_EVERY_S

    def open(self, tables: Mapping[str, Table]) -> None:
        unknown = [name for name in self.names if name not in tables]
        if unknown:
            raise UsageError(f"pipeline.iceberg: expected names out of {', '.join(tables)}, got {', '.join(unknown)}")
        if not self.names:
            return
        try:
            from holdfast.history.iceberg import IcebergView
        except ImportError as error:
            raise UsageError(f"pipeline.iceberg needs more: `pip install 'holdfast-mqtt[iceberg]'` ({error})") from None
        self.catalog.mkdir(parents=True, exist_ok=True)
        for name in self.names:
            table = tables[name]
            self._views.append((table, IcebergView(Place(table.root), self.catalog, name, table.value.schema)))

    def follow(self, keep_s: float) -> None:
        """Makes the views what the tables are, and now and then deletes metadata of versions older than that."""
        for table, view in self._views:
            with table.lock:
                view.follow(table.delta)
        if time.monotonic() >= self._clean_at:
            for _, view in self._views:
                view.clean(keep_s)
            self._clean_at = time.monotonic() + CLEAN_EVERY_S

    def begin_anew(self) -> None:
        """After an erasure: no older version tells of what has gone."""
        for table, view in self._views:
            view.begin_anew(table.delta)

    def close(self) -> None:
        for _, view in self._views:
            view.close()
