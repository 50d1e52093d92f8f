"""The data folder: what lies where.

lock           held while a broker runs
journal/       segments, and the page that says how far they are durable
state/         LMDB
history/       the Delta table; history.lock beside it. Where it lies elsewhere, history.place says where
heard.json     when state topics of discovery configurations were last published to
bridges/       what bridges remember of the other side, and those that were made through the API
erasures/      what operators have asked to be erased from the history
quarantine/    bytes that could not be read, kept for an operator who wants to look
"""

import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.errors import StoreError
from holdfast.history.place import Place
from holdfast.journal.disk import Disk
from holdfast.journal.segment import segment_names

NO_OFFSET = 1 << 63
PLACE_NAME = "history.place"


@dataclass(frozen=True)
class DataFolder:
    root: Path

    @property
    def journal(self) -> Path:
        return self.root / "journal"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def history(self) -> Path:
        return self.root / "history"

    @property
    def table(self) -> Place:
        """Where the history is: in its folder here, or where `put_history` has said."""
        try:
            return Place(**json.loads((self.root / PLACE_NAME).read_text()))
        except FileNotFoundError:
            return Place(str(self.history))
        except (ValueError, TypeError):
            raise StoreError(
                f"{self.root / PLACE_NAME} does not say where the history is: remove it and start the broker, which "
                "writes it anew from history.path"
            ) from None

    def put_history(self, uri: str, storage_file: str = "", owner: int = 0) -> None:
        """Notes where the history is from now on, for all who are given this folder alone; empty is here. `owner` is
        told where several folders write to one table.
        """
        path = self.root / PLACE_NAME
        if not uri:
            path.unlink(missing_ok=True)
            return
        known = self.table if path.exists() else None
        if not owner:
            owner = known.owner if known is not None and known.uri == uri else int.from_bytes(os.urandom(8)) >> 2
        place = Place(uri, storage_file, owner)
        if place == known:
            return
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(place)))
        os.replace(part, path)

    @property
    def erasures(self) -> Path:
        return self.root / "erasures"

    @property
    def bridges(self) -> Path:
        return self.root / "bridges"

    @property
    def heard(self) -> Path:
        return self.root / "heard.json"

    @property
    def quarantine(self) -> Path:
        return self.root / "quarantine"

    def refuse_links(self) -> None:
        """Raises StoreError when a symbolic link stands where files of the folder stand: what is written, cut or read
        through it might be anybody's. The operator's own links to whole folders are good, such as `history` on another
        disk.
        """
        mine = (0, os.geteuid())
        table = (self.history, self.history / "_delta_log")
        for path in (self.root, self.journal, self.state, *table, self.bridges, self.erasures, self.quarantine):
            if not path.is_dir():
                continue
            with os.scandir(path) as entries:
                for entry in entries:
                    if not entry.is_symlink():
                        continue
                    if entry.is_dir() and entry.stat(follow_symlinks=False).st_uid in mine:
                        continue
                    raise StoreError(
                        f"{entry.path} is a symbolic link to {os.readlink(entry.path)}, expected a file of the "
                        "broker's own: find out who has put it there, and remove it"
                    )

    def is_open_to_all(self) -> bool:
        """Whether everybody on the machine can put files into the folder."""
        return bool(self.root.stat().st_mode & stat.S_IWOTH)

    def move_to_quarantine(self, path: Path) -> Path:
        """Moves a file or folder into the quarantine, and returns its place there, under a name that was free."""
        self.quarantine.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = 1
        while (target := self.quarantine / f"{path.name}.{number}").exists():
            number += 1
        path.rename(target)
        return target

    def first_in_journal(self) -> int:
        """Returns the offset from which on the journal reaches; 0 when there is no journal."""
        names = segment_names(Disk(), self.journal)
        return names[0].first if names else 0

    def journal_keeps_from(self) -> int:
        """Returns the lowest offset that can still be read from the journal; above all offsets when there is no
        journal.
        """
        return self.first_in_journal() or NO_OFFSET

    def has_history(self) -> bool:
        """Whether there is a table, or a place for one elsewhere."""
        folder = self.table.folder
        return folder is None or (folder / "_delta_log").is_dir()
