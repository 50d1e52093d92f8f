"""`holdfast passwd`: create, change and delete the users of a password file."""

import getpass
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from holdfast.errors import UsageError


def passwd(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The password file; `-c` creates it.")],
    username: Annotated[str, typer.Argument(metavar="USER", help="The user name.")],
    create: Annotated[bool, typer.Option("--create", "-c", help="Create the file; an existing one is kept.")] = False,
    delete: Annotated[bool, typer.Option("--delete", "-D", help="Remove the user.")] = False,
    verify_only: Annotated[
        bool, typer.Option("--verify", help="Only check the password: exit code 0 if it is correct, otherwise 1.")
    ] = False,
    scheme: Annotated[
        Literal["argon2id", "pbkdf2", "scram"],
        typer.Option(
            "--hash",
            "-H",
            help="`argon2id`; `pbkdf2` if mosquitto has to read the file too; `scram` for clients that log in with "
            "SCRAM-SHA-256 (or with the password).",
        ),
    ] = "argon2id",
) -> None:
    """
    Create, change or delete a user in a password file.

    Prompts for the password, or reads one line from standard input if that is not a terminal. It is never taken from
    the command line, where other users of the machine could see it. The file is replaced atomically, other lines and
    comments are left unchanged, and only its owner can read it. A running broker picks up the change on SIGHUP.

    Examples:

        holdfast passwd -c users alice

        holdfast passwd users alice < new-password

        holdfast passwd users alice --delete
    """
    from holdfast.identity import passwords

    if not username or ":" in username or username.startswith("#") or any(ord(c) < 32 for c in username):
        raise UsageError(f"expected a user name without colons, control characters or a leading #, got {username!r}")
    if create and delete:
        raise UsageError("expected --create or --delete, got both")
    exists = file.exists()
    if not exists and not create:
        raise UsageError(f"there is no password file {file}; --create creates it")
    users = passwords.read_users(file) if exists else {}
    if delete:
        if username not in users:
            raise UsageError(f"{file} has no user {username!r}")
        save(file, username, None)
        return
    if verify_only:
        known = users.get(username)
        good = known is not None and passwords.verify(known, ask(False))
        print("the password is correct" if good else "the user or the password is wrong")
        raise typer.Exit(0 if good else 1)
    password = ask(True)
    if scheme == "argon2id":
        stored = passwords.hash_argon2id(password)
    elif scheme == "scram":
        stored = passwords.hash_scram(password)
    else:
        import secrets

        stored = passwords.hash_pbkdf2(password, secrets.token_bytes(12))
    save(file, username, stored)


def ask(twice: bool) -> bytes:
    if not sys.stdin.isatty():
        line = sys.stdin.buffer.readline()
        password = line.removesuffix(b"\n").removesuffix(b"\r")
    else:
        password = getpass.getpass("Password: ").encode()
        if twice and getpass.getpass("Again: ").encode() != password:
            raise UsageError("the two passwords differ")
    if not password:
        raise UsageError("expected a password, got nothing")
    return password


def save(file: Path, username: str, stored: str | None) -> None:
    from holdfast.identity import passwords

    try:
        passwords.change_user(file, username, stored)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {(error.strerror or str(error)).lower()}") from None
