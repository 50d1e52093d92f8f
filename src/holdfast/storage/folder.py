"""The data folder: what lies where.

lock           held while a broker runs
journal/       segments, and the page that says how far they are durable
state/         LMDB
history/       the Delta table; history.lock beside it
erasures/      what operators have asked to be erased from the history
quarantine/    bytes that could not be read, kept for an operator who wants to look
"""

from dataclasses import dataclass
from pathlib import Path

from holdfast.journal.disk import Disk
from holdfast.journal.segment import segment_names

NO_OFFSET = 1 << 63


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
    def erasures(self) -> Path:
        return self.root / "erasures"

    @property
    def quarantine(self) -> Path:
        return self.root / "quarantine"

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
        return (self.history / "_delta_log").is_dir()
