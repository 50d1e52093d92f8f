"""Copies of a node's state, which nodes that come later begin with, so that the log need not reach back for ever."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from holdfast import __version__
from holdfast.cluster.transfer import Stored, Transfer

CHUNK = 1 << 20
KEPT_COPIES = 2


async def store_state(save_state: Callable[[], Path], transfer: Transfer) -> int:
    """Put a copy of a node's state where others find it; returns the message of the log that it has come to."""
    loop = asyncio.get_running_loop()
    path = await loop.run_in_executor(None, save_state)
    try:
        about = await loop.run_in_executor(None, describe_state, path)
        await transfer.put(f"state-{about['sequence']}", chunks_of(path), about)
        await transfer.keep_newest(KEPT_COPIES)
        return int(about["sequence"])
    finally:
        drop_copy(path)


def describe_state(path: Path) -> dict[str, str]:
    """What a copy of the state says of itself."""
    from holdfast.state.store import StateStore

    store = StateStore(path.parent, readonly=True)
    try:
        found = store.sessions.cluster()
        position = found.position
        return {
            "sequence": str(position.sequence if position is not None else 0),
            "offset": str(store.applied),
            "version": __version__,
        }
    finally:
        store.close()


def drop_copy(path: Path) -> None:
    """Remove a copy and the folder that it was made in."""
    for each in path.parent.iterdir():
        each.unlink()
    path.parent.rmdir()


async def chunks_of(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk


async def fetch_state(transfer: Transfer, stored: Stored, to: Path, progress: Callable[[int, int], None]) -> None:
    """Bring a state from the object store to a file; it is there when it is whole."""
    partial = to.with_name(to.name + ".partial")
    with partial.open("wb") as file:
        async for chunk in transfer.get(stored, progress):
            await asyncio.to_thread(file.write, chunk)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(to)
