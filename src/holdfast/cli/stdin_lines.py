"""Standard input as chunks of bytes for asyncio, whatever it is: a pipe, a file or a terminal.

A thread of its own reads, because a regular file cannot be waited for by the event loop, and it is a daemon, because a
read from a terminal that nobody types on must not keep the program alive.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator
from typing import Final

CHUNK: Final = 1 << 16
AHEAD: Final = 4  # chunks read before somebody wants them


async def chunks(descriptor: int = 0) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue(AHEAD)

    def read() -> None:
        # A closed loop means that nobody wants the rest.
        with contextlib.suppress(RuntimeError):
            while True:
                data = os.read(descriptor, CHUNK)
                asyncio.run_coroutine_threadsafe(queue.put(data), loop).result()
                if not data:
                    return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while data := await queue.get():
        yield data


async def lines(descriptor: int = 0) -> AsyncIterator[bytes]:
    """Each line without its end; the last one also without one."""
    rest = b""
    async for data in chunks(descriptor):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line
    if rest:
        yield rest
