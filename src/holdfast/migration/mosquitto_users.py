"""mosquitto's password and access files. Both are read as they are here, so they are checked line by line and copied.

Hashes stay what they are: nobody needs a new password. A line that grants something and cannot be read is left out and
named. One that denies something and cannot be read ends the import, since without it the others would grant too much.
"""

from pathlib import Path

from holdfast.access.mosquitto_file import parse_access
from holdfast.errors import ConfigError, UsageError
from holdfast.identity.passwords import is_known
from holdfast.migration.settings_files import FoundSettings

TEXT_MOST = 64 << 20


def read_text(path: Path) -> str:
    """Raises UsageError."""
    try:
        if path.stat().st_size > TEXT_MOST:
            raise UsageError(f"{path} has more than {TEXT_MOST} bytes, expected a text file")
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text in UTF-8") from None
    before, null, _ = text.partition("\0")
    if null:  # a name with one in it is no file's
        raise UsageError(f"{path} is no text: line {before.count(chr(10)) + 1} has a null character")
    return text


def add_users(found: FoundSettings, text: str, name: str) -> None:
    """Take the users of a password file."""
    users = found.users if found.users is not None else {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found.lines += 1
        user, colon, stored = line.partition(":")
        where = f"{name}, line {number}"
        if not colon or not user:
            found.leave(where, "a line", "expected USER:HASH")
        elif not is_known(stored.strip()):
            # What stands there is not repeated: it may well be a password in clear.
            found.leave(
                where, f"user {user}", "its password is no hash that is known here: holdfast passwd sets a new one"
            )
        else:
            users[user] = stored.strip()
    found.users = users


def add_access(found: FoundSettings, text: str, name: str) -> None:
    """Take the rules of an access file. Raises UsageError for a denial that cannot be read."""
    kept: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            kept.append(line.strip())
            continue
        found.lines += 1
        try:
            parse_access(line, "the line")
        except ConfigError as error:
            where = f"{name}, line {number}"
            reason = str(error).partition(": ")[2]
            if words[0] == "user" or words[1:2] == ["deny"]:
                raise UsageError(
                    f"{where}: {reason}; without this line the others would grant more than they should, so change it "
                    "there first"
                ) from None
            found.leave(where, line.strip(), reason)
            continue
        kept.append(line.strip())
        found.rules += words[0] != "user"
    found.access = "\n".join(kept).strip("\n")
