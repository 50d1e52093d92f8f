"""Deleting all versions of a Delta table but the newest, from disk or store too."""

import pyarrow.fs as fs
from deltalake import CommitProperties, DeltaTable, Transaction

from holdfast.history.place import At, place_of
from holdfast.history.repair import LOG, sync_files
from holdfast.history.schema import ICEBERG_FOLDER


def forget_versions(table: DeltaTable, at: At, last_words: list[Transaction]) -> None:
    """Deletes every file that the newest version does not need, and all that the log says about older ones: it names
    the lowest and the highest topic, client and user of each file there ever was. A commit without files comes last
    and stays, with these transactions. Whoever has the table open has to open it anew.

    Nothing goes before what takes its place is durable: a commit that a power cut tears is taken back, to files that
    must be there.
    """
    sync_files(at, 0.0)
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    said = CommitProperties(app_transactions=last_words)
    table.create_write_transaction([], "append", table.schema(), commit_properties=said)
    table.update_incremental()
    table.create_checkpoint()
    version = table.version()
    sync_files(at, 0.0)
    files = place_of(at).filesystem()
    # It has such bounds too, also where nobody keeps it any more; who does makes it anew.
    for info in files.get_file_info(fs.FileSelector(ICEBERG_FOLDER, recursive=True, allow_not_found=True)):
        if info.is_file:
            files.delete_file(info.path)
    for info in files.get_file_info(fs.FileSelector(LOG)):
        if info.base_name[:20].isdigit() and int(info.base_name[:20]) < version:
            files.delete_file(info.path)
    sync_files(at, 0.0)
