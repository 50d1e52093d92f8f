"""An Iceberg view that may fail: the Delta table is the truth and goes on, and the view catches up when it can.

PyIceberg is large, so it is loaded where a view is opened and not before.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import StoreError
from holdfast.history.place import At

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from holdfast.history.iceberg import IcebergView


class LenientView:
    """The view of a table, by its name. `data` is the folder where the catalog lies. `tell` is given one sentence when
    something fails, and the next one not before that has worked again.

    A view that has failed is opened anew: what it knew of its own files may not be so.
    """

    def __init__(
        self,
        at: At,
        data: Path,
        tell: Callable[[str], None],
        table: str = "history",
        schema: "pa.Schema | None" = None,
    ) -> None:
        self.at, self.data, self.tell, self.table, self.schema = at, data, tell, table, schema
        self._view: IcebergView | None = None
        self._failing: set[str] = set()

    def follow(self, delta: "DeltaTable", *, erased: bool = False) -> None:
        """Makes the view what the table is; after an erasure anew, so that no older version tells of what has gone."""
        with self._leniently("follow"):
            view = self._opened()
            if erased:
                view.begin_anew(delta)
            else:
                view.follow(delta)

    def clean(self, keep_s: float) -> None:
        """Deletes metadata of versions older than so many seconds; not while the view cannot be opened."""
        if self._view is not None:
            with self._leniently("clean"):
                self._view.clean(keep_s)

    def close(self) -> None:
        if self._view is not None:
            with suppress(Exception):  # what failed has been told
                self._view.close()
            self._view = None

    def _opened(self) -> "IcebergView":
        if self._view is None:
            from holdfast.history.iceberg import IcebergView

            self.data.mkdir(parents=True, exist_ok=True)
            self._view = IcebergView(self.at, self.data, self.table, self.schema)
        return self._view

    @contextmanager
    def _leniently(self, what: str) -> Iterator[None]:
        try:
            yield
        except ImportError as error:
            needs = "`pip install 'holdfast-mqtt[iceberg]'`"
            self._fail(what, f"no Iceberg view of {self.table} is kept: {needs} ({error})")
        except (StoreError, OSError) as error:
            self.close()
            self._fail(what, f"{error}; the table itself is kept, and the view is tried again until it has caught up")
        else:
            self._failing.discard(what)

    def _fail(self, what: str, sentence: str) -> None:
        if what not in self._failing:
            self.tell(sentence)
        self._failing.add(what)
