"""Whether LMDB files can be trusted, asked of a process of its own: reading a damaged page may end the one that does.

Run as `python -m holdfast.state.check FOLDER`; prints what is wrong, one line each, and ends with FOUND if anything is.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import lmdb

import holdfast
from holdfast.errors import StoreError
from holdfast.state.environment import Environment
from holdfast.state.tables import unseal

TIMEOUT_S = 600
WAITING_S = 0.5
FOUND = 3
VALUES, READONLY = "--values", "--readonly"


def problems(
    folder: Path, values: bool = False, waiting: Callable[[], None] = lambda: None, readonly: bool = False
) -> list[str]:
    """Returns what is wrong with the state in a folder; with `values`, values are compared with their checksums too.

    `waiting` is called now and then until that is known. With `readonly` no byte of the folder changes, and nobody may
    write it meanwhile.
    """
    if not (folder / "data.mdb").exists():
        return []
    command = [sys.executable, "-m", "holdfast.state.check", str(folder)]
    command += [flag for flag, wanted in ((VALUES, values), (READONLY, readonly)) if wanted]
    code, output, diagnostics = run(command, waiting)
    if code == FOUND:
        return output.splitlines()
    if code < 0:
        return [f"state in {folder} cannot be read: checking it ended with signal {-code}"]
    if code:  # says nothing about the state
        raise StoreError(f"state in {folder} could not be checked: {diagnostics.strip()[-200:]}")
    return []


def run(command: list[str], waiting: Callable[[], None]) -> tuple[int, str, str]:
    """The exit code of a command and what it printed on both streams."""
    pipe = subprocess.PIPE
    deadline = monotonic() + TIMEOUT_S
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=child_environment()) as process:
        while True:
            try:
                output, diagnostics = process.communicate(timeout=WAITING_S)
            except subprocess.TimeoutExpired:
                waiting()
                if monotonic() > deadline:
                    process.kill()
            else:
                return process.returncode, output, diagnostics


def child_environment() -> dict[str, str]:
    """For a process that must find this package where we did."""
    source = str(Path(holdfast.__file__).parent.parent)
    known = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{known}" if known else source}


def walk(folder: Path, values: bool, readonly: bool) -> list[str]:
    """Visits every entry and returns what is wrong. May crash the process."""
    found: list[str] = []
    try:
        environment = Environment(folder, readonly=readonly, locked=not readonly)
    except StoreError as error:
        return [str(error)]
    with environment.env.begin() as txn:
        for name, db in environment.db.items():
            count = damaged = 0
            previous = b""
            try:
                with txn.cursor(db) as cursor:
                    for key, stored in cursor.iternext():
                        count += 1
                        if count > 1 and key <= previous:
                            raise StoreError(f"keys out of order after {previous[:40]!r}")
                        previous = key
                        damaged += values and not sound(key, stored)
            except (lmdb.Error, StoreError) as error:
                found.append(f"table {name} cannot be read: {error}")
                continue
            wanted = txn.stat(db)["entries"]
            if count != wanted:
                found.append(f"table {name} has {count} entries, expected {wanted}")
            if damaged:
                found.append(f"table {name} has {damaged} values that fail their checksum")
    environment.close()
    return found


def sound(key: bytes, stored: bytes) -> bool:
    try:
        unseal(key, stored)
    except StoreError:
        return False
    return True


def main() -> int:
    found = walk(Path(sys.argv[1]), VALUES in sys.argv[2:], READONLY in sys.argv[2:])
    if not found:
        return 0
    print("\n".join(found))
    return FOUND


if __name__ == "__main__":
    sys.exit(main())
