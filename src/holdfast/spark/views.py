"""Tables of the pipeline as Iceberg tables too, for readers who know only that: no row is written twice."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.errors import UsageError
from holdfast.history.lenient_view import LenientView
from holdfast.history.place import Place
from holdfast.spark.delta import Table

CLEAN_EVERY_S = 60.0


class Views:
    """The views of the tables with these names, and the folder where their catalog lies.

    The tables go on without a view that fails: `tell` is given a sentence about it, and it is tried again.
    """

    def __init__(
        self,
        names: Sequence[str] = (),
        catalog: Path = Path(),
        tell: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        self.names, self.catalog, self.tell = names, catalog, tell
        self._views: list[tuple[Table, LenientView]] = []
        self._clean_at = time.monotonic() + CLEAN_EVERY_S

    def open(self, tables: Mapping[str, Table]) -> None:
        unknown = [name for name in self.names if name not in tables]
        if unknown:
            raise UsageError(f"pipeline.iceberg: expected names out of {', '.join(tables)}, got {', '.join(unknown)}")
        if not self.names:
            return
        try:
            import holdfast.history.iceberg  # noqa: F401
        except ImportError as error:
            raise UsageError(f"pipeline.iceberg needs more: `pip install 'holdfast-mqtt[iceberg]'` ({error})") from None
        for name in self.names:
            table = tables[name]
            view = LenientView(Place(table.root), self.catalog, self.tell, name, table.value.schema)
            self._views.append((table, view))
            view.follow(table.delta)

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
            view.follow(table.delta, erased=True)

    def close(self) -> None:
        for _, view in self._views:
            view.close()
