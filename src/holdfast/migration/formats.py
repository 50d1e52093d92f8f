"""Which format a file has, told by what it begins with, and by its lines where that is text."""

from pathlib import Path
from typing import Final

from holdfast.errors import UsageError
from holdfast.migration import emqx_archive, mosquitto_db, mosquitto_sqlite
from holdfast.migration.dynamic_security import is_dynamic_security, parse
from holdfast.migration.mosquitto_users import read_text

MOSQUITTO_DB: Final = "mosquitto-db"
MOSQUITTO_SQLITE: Final = "mosquitto-sqlite"
MOSQUITTO_CONF: Final = "mosquitto-conf"
PASSWORDS: Final = "mosquitto-passwords"
ACCESS: Final = "mosquitto-acl"
DYNAMIC_SECURITY: Final = "mosquitto-dynsec"
EMQX_ARCHIVE: Final = "emqx-archive"
FORMATS: Final = (
    MOSQUITTO_DB,
    MOSQUITTO_SQLITE,
    MOSQUITTO_CONF,
    PASSWORDS,
    ACCESS,
    DYNAMIC_SECURITY,
    EMQX_ARCHIVE,
)

WITH_MESSAGES: Final = (MOSQUITTO_DB, MOSQUITTO_SQLITE, EMQX_ARCHIVE)

ACCESS_WORDS: Final = ("user", "topic", "pattern")


def format_of(path: Path) -> str:
    """Raises UsageError where the file cannot be read or looks like nothing that is known."""
    if path.is_dir():
        known = sorted(one.name for one in path.iterdir() if one.suffix in (".db", ".sqlite3", ".conf"))
        hint = f"; there are {', '.join(known)}" if known else ""
        raise UsageError(f"{path} is a folder, expected a file{hint}")
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    if start.startswith(mosquitto_db.MAGIC) or path.suffix == ".db" or (start and not start.strip(b"\0")):
        return MOSQUITTO_DB
    if start.startswith(mosquitto_sqlite.MAGIC):
        return MOSQUITTO_SQLITE
    if start.startswith(emqx_archive.GZIP):
        return EMQX_ARCHIVE
    if start.lstrip().startswith(b"{"):
        if is_dynamic_security(parse(read_text(path), str(path))):
            return DYNAMIC_SECURITY
        raise UsageError(f"{path} is JSON, but not mosquitto's dynamic security: it has no clients and roles")
    return format_of_text(path)


def format_of_text(path: Path) -> str:
    lines = [line.strip() for line in read_text(path).splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if path.suffix == ".conf":
        return MOSQUITTO_CONF
    if lines and all(line.split()[0] in ACCESS_WORDS for line in lines):
        return ACCESS
    if lines and all(":" in line and " " not in line.partition(":")[0] for line in lines):
        return PASSWORDS
    if lines:
        return MOSQUITTO_CONF
    raise UsageError(f"{path} has no lines, expected a format that is known; --as names it ({', '.join(FORMATS)})")
