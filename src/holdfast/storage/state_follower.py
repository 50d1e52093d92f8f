"""Keeps LMDB behind the journal. Run as `python -m holdfast.storage.state_follower DATA_FOLDER`."""

import sys
import time

from holdfast.state.store import StateStore
from holdfast.storage.follower import Follower, folder_from_arguments, prepare, run

PURGE_EVERY_S = 10.0


class StateFollower(Follower):
    interval_s = 0.25
    store: StateStore
    purged_at = 0.0

    def open(self) -> int:
        self.store = StateStore(self.folder.state)
        return self.store.applied

    def take(self, records: list[bytes], upto: int) -> None:
        self.store.apply(records, upto)

    def passed(self) -> int:
        return self.store.applied

    def idle(self) -> None:
        if time.monotonic() - self.purged_at > PURGE_EVERY_S:
            self.purged_at = time.monotonic()
            self.store.retained.purge(int(time.time() * 1000))

    def close(self) -> None:
        self.store.close()


def main() -> int:
    prepare()
    return run(StateFollower(folder_from_arguments()))


if __name__ == "__main__":
    sys.exit(main())
