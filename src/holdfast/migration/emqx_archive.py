"""What `emqx ctl data export` writes: a `.tar.gz` with Mnesia's tables as backup logs, retained messages among them.

Sessions are not in it. Users and rules of EMQX are kept in ways of their own, and are only named.
"""

import gzip
import tarfile
import zlib
from pathlib import Path
from typing import IO, Any, Final

from holdfast.errors import UsageError
from holdfast.migration.erlang_terms import Atom, TermProblem, read_log
from holdfast.migration.inventory import DAMAGED, RETAINED, SETTINGS, FoundMessage, Inventory, is_topic
from holdfast.migration.mosquitto_db import name_of
from holdfast.protocol.mqtt.properties import Properties
from holdfast.service.messages import encode_forwarded

GZIP: Final = b"\x1f\x8b"
TABLE: Final = "emqx_retainer_message"
NAMES: Final = (TABLE, "retained_message")
MESSAGE_PARTS: Final = 9  # id, qos, from, flags, headers, topic, payload, timestamp, behind the name; extra is newer
LAST_MS: Final = 1 << 50

# Tables and files of an export that have no counterpart, and where their meaning lives here.
ELSEWHERE: Final = {
    "emqx_authn_mnesia": "users of its built-in database: make them with holdfast passwd",
    "emqx_authn_scram_mnesia": "users for SCRAM: make them with holdfast passwd --hash scram",
    "emqx_acl": "its access rules: write them as [[access]]",
    "emqx_banned": "bans: write them as bans.addresses, bans.users and bans.client_ids",
    "cluster.hocon": "its configuration: see docs/guides/migrating.md",
}


def read_file(path: Path, now_ms: int) -> Inventory:
    """Read an archive. Raises UsageError where there is nothing to read at all."""
    found = Inventory(f"EMQX's export {path.name}")
    seen = False
    try:
        with gzip.open(path) as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as archive:
            for member in archive:
                name = Path(member.name).name
                if name in ELSEWHERE and member.isfile():
                    found.leave(SETTINGS, ELSEWHERE[name])
                if name != TABLE or not member.isfile():
                    continue
                seen = True
                file = archive.extractfile(member)
                if file is not None:
                    read_table(file, found, now_ms)
    except (OSError, tarfile.TarError, EOFError, zlib.error, ValueError) as error:
        if not seen:
            raise UsageError(f"{path} cannot be read as an archive of EMQX's: {error}") from None
        found.damage.append(f"the archive cannot be read to its end: {error}")
    if not seen:
        raise UsageError(f"{path} has no table {TABLE}: nothing was retained, or it is no export of EMQX's")
    found.notes.append("sessions, subscriptions and queued messages are not in an export of EMQX's")
    return found


def read_table(file: IO[bytes], found: Inventory, now_ms: int) -> None:
    try:
        for term in read_log(file):
            for row in term if isinstance(term, list) else [term]:
                if isinstance(row, tuple) and len(row) == 4 and row[0] in NAMES:
                    add_row(row, found, now_ms)
    except TermProblem as problem:
        found.damage.append(f"table {TABLE}: {problem}")
    except (OSError, EOFError, zlib.error) as error:
        found.damage.append(f"table {TABLE} cannot be read to its end: {error}")


def add_row(row: tuple[Any, ...], found: Inventory, now_ms: int) -> None:
    _, _, message, expires_at_ms = row
    if not isinstance(message, tuple) or len(message) < MESSAGE_PARTS or message[0] != "message":
        found.leave(RETAINED, DAMAGED)
        return
    qos, sender, headers, topic, payload = message[2], message[3], message[5], message[6], message[7]
    if qos not in (0, 1, 2) or not isinstance(topic, bytes) or not isinstance(payload, bytes):
        found.leave(RETAINED, DAMAGED)
        return
    if not isinstance(headers, dict):
        headers = {}
    given = headers.get("properties")
    properties = b""
    if isinstance(given, dict):
        try:
            properties = encode_forwarded(properties_from(given))
        except (ValueError, UsageError) as problem:
            found.notes.append(f"{topic.decode(errors='replace')!r} comes without its properties: {problem}")
    username = headers.get("username")
    expires = expires_at_ms if isinstance(expires_at_ms, int) and 0 < expires_at_ms < LAST_MS else 0
    found.add_retained(
        FoundMessage(
            topic,
            payload,
            qos,
            properties,
            expires,
            name_of(sender) if isinstance(sender, bytes) else "",
            name_of(username) if isinstance(username, bytes) else "",
            True,
        ),
        now_ms,
    )


def properties_from(given: dict[Any, Any]) -> Properties:
    """Properties by EMQX's names for them. Raises ValueError for what no packet can hold."""
    properties = Properties()
    for name, value in given.items():
        if not isinstance(name, Atom):
            continue
        if name == "Content-Type":
            properties.content_type = text_of(value)
        elif name == "Response-Topic":
            properties.response_topic = text_of(value).encode()
            if not is_topic(properties.response_topic):
                raise ValueError("its response topic is none")
        elif name == "Correlation-Data":
            properties.correlation_data = bytes_of(value)
        elif name == "Payload-Format-Indicator":
            if not isinstance(value, int) or value not in (0, 1):
                raise ValueError("its payload format is neither 0 nor 1")
            properties.payload_format = value
        elif name == "User-Property":
            properties.user_properties = pairs_of(value)
    return properties


def pairs_of(value: Any) -> list[tuple[str, str]] | None:
    if not isinstance(value, list) or not all(isinstance(one, tuple) and len(one) == 2 for one in value):
        raise ValueError("its user properties are no pairs")
    return [(text_of(key), text_of(text)) for key, text in value] or None


def bytes_of(value: Any) -> bytes:
    if not isinstance(value, bytes) or len(value) > 65535:
        raise ValueError("a property is no data of up to 65535 bytes")
    return value


def text_of(value: Any) -> str:
    data = bytes_of(value)
    if data and not name_of(data):
        raise ValueError("a property is no text")
    return data.decode()
