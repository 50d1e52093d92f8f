"""What operators have asked to be erased from the history: a small file each, which the history's writer looks for.

Whoever asks writes one and waits; the writer carries it out and says in it how far it has come. A file stays for as
long as the journal has rows that it is about: a table that had to be made anew from the journal is erased from again.
"""

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from holdfast.errors import StoreError
from holdfast.journal.watermark import last_durable
from holdfast.storage.folder import DataFolder

ASKED, RUNNING, DONE = "asked", "running", "done"


@dataclass(frozen=True)
class Request:
    """Rows that a selector (`kind`, `value`) finds among those that were in the journal when it was asked for, up to
    offset `upto`, and all that have come until it is carried out. `files` of so many are done; `rows` have gone.
    """

    name: str
    kind: str
    value: str
    at_ms: int
    upto: int
    state: str = ASKED
    files: int = 0
    of: int = 0
    rows: int = 0

    @property
    def is_done(self) -> bool:
        return self.state == DONE


def ask(folder: DataFolder, kind: str, value: str, now_ms: int) -> Request:
    name = f"erase-{now_ms:013d}-{os.urandom(3).hex()}"
    request = Request(name, kind, value, now_ms, last_durable(folder.journal))
    save(folder, request)
    return request


def save(folder: DataFolder, request: Request) -> None:
    """Puts a request into the folder, durably: there whole or not at all."""
    path = path_of(folder, request.name)
    part = path.with_suffix(".part")
    try:
        folder.erasures.mkdir(mode=0o700, exist_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(json.dumps(asdict(request)))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        sync_folder(folder.erasures)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from None


def sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read(folder: DataFolder, name: str) -> Request | None:
    """The request of that name; None where there is none, or nothing that was asked for by `ask`."""
    try:
        return Request(**json.loads(path_of(folder, name).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def requests(folder: DataFolder) -> list[Request]:
    """All of them, the oldest first."""
    try:
        names = sorted(path.stem for path in folder.erasures.iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return []
    return [request for request in (read(folder, name) for name in names) if request is not None]


def first_due(folder: DataFolder) -> Request | None:
    return next((request for request in requests(folder) if not request.is_done), None)


def ask_again(folder: DataFolder, last: int) -> None:
    """Has what was done done again where the table ends before it: it was made anew, or lost its end."""
    for request in requests(folder):
        if request.is_done and request.upto > last:
            save(folder, replace(request, state=ASKED))


def forget(folder: DataFolder) -> None:
    """Removes what was done and what no journal can bring back."""
    first = folder.journal_keeps_from()
    for request in requests(folder):
        if request.is_done and request.upto < first:
            path_of(folder, request.name).unlink(missing_ok=True)


def path_of(folder: DataFolder, name: str) -> Path:
    return folder.erasures / f"{name}.json"
