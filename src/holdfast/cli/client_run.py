"""Running a client command to its exit code: what went wrong is one line on stderr."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Final, NoReturn

import typer

from holdfast.errors import ConnectionFailed, ConnectionLost

# mosquitto's codes: its libraries' numbers where the network fails, the broker's reason code where it refuses.
FAILED: Final = 1
LOST: Final = 7
TIMED_OUT: Final = 27
INTERRUPTED: Final = 130


def complain(message: str, quiet: bool) -> None:
    if not quiet:
        print(f"holdfast: {message}", file=sys.stderr)


def run(work: Coroutine[None, None, int], quiet: bool) -> NoReturn:
    try:
        code = asyncio.run(work)
    except ConnectionFailed as error:
        complain(str(error), quiet)
        code = error.reason or (LOST if isinstance(error, ConnectionLost) else FAILED)
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise typer.Exit(code)
