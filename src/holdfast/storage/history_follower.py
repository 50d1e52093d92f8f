"""The process that keeps the history table behind the journal, and fit.

Run as `python -m holdfast.storage.history_follower DATA_FOLDER OPTIONS`, the options being a JSON object with
`flush_interval_s`, `retention_s` and `retention_bytes`.

The libraries it needs are large. They are loaded once there is something to write, so a broker that nobody uses yet
costs little.
"""

import json
import sys

from holdfast.journal.watermark import Watermark
from holdfast.storage.folder import DataFolder
from holdfast.storage.follower import folder_from_arguments, prepare, run, wait

LOOK_EVERY_S = 0.5


def has_work(folder: DataFolder) -> bool:
    """Wait until there is a table to look after or a record to take in; False when the broker ended before that."""
    watermark = Watermark(folder.journal)
    while not folder.has_history() and watermark.get() == 0:
        if not wait(LOOK_EVERY_S):
            return watermark.get() > 0
    return True


def main() -> int:
    prepare()
    folder = folder_from_arguments()
    options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    if not has_work(folder):
        return 0
    from holdfast.history.upkeep import Limits
    from holdfast.storage.history_keeper import HistoryKeeper

    limits = Limits(int(options.get("retention_s", 0)), int(options.get("retention_bytes", 0)))
    return run(HistoryKeeper(folder, float(options.get("flush_interval_s", 1.0)), limits))


if __name__ == "__main__":
    sys.exit(main())
