"""Files are known by what they begin with, and by their lines."""

import json
import sqlite3
from pathlib import Path

import pytest

from emqx_files import archive
from holdfast.errors import UsageError
from holdfast.migration.formats import (
    ACCESS,
    DYNAMIC_SECURITY,
    EMQX_ARCHIVE,
    MOSQUITTO_CONF,
    MOSQUITTO_DB,
    MOSQUITTO_SQLITE,
    PASSWORDS,
    format_of,
)
from mosquitto_files import DbWriter


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (DbWriter(6).data(), MOSQUITTO_DB),
        (bytes(1000), MOSQUITTO_DB),
        (archive(b""), EMQX_ARCHIVE),
        (json.dumps({"clients": [], "roles": []}).encode(), DYNAMIC_SECURITY),
        (b"# users\nalice:$7$101$c2FsdA==$aGFzaA==\n", PASSWORDS),
        (b"user alice\ntopic read a/#\npattern write %u/#\n", ACCESS),
        (b"listener 1883\nallow_anonymous true\n", MOSQUITTO_CONF),
    ],
)
def test_a_file_is_known_by_its_content(data: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    assert format_of(path) == expected


def test_a_database_of_sqlite_is_known(tmp_path: Path) -> None:
    path = tmp_path / "mosquitto.sqlite3"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE base_msgs (store_id INT64)")
    connection.close()
    assert format_of(path) == MOSQUITTO_SQLITE


def test_a_folder_is_answered_with_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "mosquitto.db").write_bytes(b"")
    with pytest.raises(UsageError, match=r"mosquitto\.db"):
        format_of(tmp_path)


@pytest.mark.parametrize("data", [b"", b"# nothing\n", b'{"songs": []}', b"\xff\xfe text"])
def test_what_looks_like_nothing_known_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(UsageError):
        format_of(path)
