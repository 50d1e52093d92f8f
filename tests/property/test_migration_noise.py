"""Bytes from anywhere: a reader of another broker's files gives rows or a named problem, and nothing else."""

import contextlib
import io
import struct
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from emqx_files import archive, log_of, retained_row
from holdfast.errors import HoldfastError
from holdfast.migration import emqx_archive, mosquitto_db, mosquitto_sqlite
from holdfast.migration.dynamic_security import add_dynamic_security, parse
from holdfast.migration.erlang_terms import TermProblem, decode_term, read_log
from holdfast.migration.formats import format_of
from holdfast.migration.inventory import Inventory
from holdfast.migration.mosquitto_conf import read_conf
from holdfast.migration.mosquitto_users import add_access, add_users
from holdfast.migration.settings_files import FoundSettings
from mosquitto_files import MAGIC, DbWriter

NOW_MS = 1_700_000_000_000
versions = st.integers(2, 6)


def answered(read: Callable[[Path], Any], data: bytes) -> Any:
    """What a reader says to a file; None for a refusal, which has to say something."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(data)
        try:
            return read(path)
        except HoldfastError as error:
            said = str(error)
    assert said
    return None


def check_rows(found: Inventory | None, data: bytes) -> None:
    """Whatever comes can be kept here, and takes no more than the file had."""
    if found is None:
        return
    for topic, message in found.retained.items():
        assert topic == message.topic
        assert topic.decode()
        assert message.qos in (0, 1, 2)
        assert len(message.payload) <= len(data)
    for session in found.sessions.values():
        session.client_id.encode()
        assert all(one.qos in (1, 2) for one in session.queue)


def whole_db(version: int) -> bytes:
    writer = DbWriter(version)
    writer.message(1, "home/a", b"21", 1, retain=True, username="bob")
    writer.client("c", "alice")
    writer.client_message("c", 1, 1, identifier=3)
    writer.subscription("c", "q/#", 2)
    writer.retained(1)
    return writer.data()


@given(version=versions, body=st.binary(max_size=300))
def test_noise_behind_a_header_is_rows_or_damage(version: int, body: bytes) -> None:
    data = MAGIC + struct.pack("!II", 0, version) + body
    check_rows(answered(lambda path: mosquitto_db.read_file(path, "", NOW_MS), data), data)


@given(version=versions, data=st.data())
def test_changed_bytes_of_a_database_are_rows_or_damage(version: int, data: st.DataObject) -> None:
    changed = mutated(whole_db(version), data)
    check_rows(answered(lambda path: mosquitto_db.read_file(path, "", NOW_MS), changed), changed)


@given(data=st.binary(max_size=400))
def test_noise_is_a_term_or_a_problem(data: bytes) -> None:
    for given_bytes in (data, b"\x83" + data):
        with contextlib.suppress(TermProblem):
            decode_term(given_bytes)


@given(data=st.data())
def test_changed_bytes_of_a_log_are_terms_or_a_problem(data: st.DataObject) -> None:
    changed = mutated(log_of(retained_row(b"a/b", b"x", 1, {"properties": {}}, 0)), data)
    with contextlib.suppress(TermProblem):
        list(read_log(io.BytesIO(changed)))


@given(data=st.data())
def test_changed_bytes_of_an_archive_are_rows_or_a_refusal(data: st.DataObject) -> None:
    changed = mutated(archive(log_of(retained_row(b"a/b", b"x", 1, {}, 0))), data)
    found = answered(lambda path: emqx_archive.read_file(path, NOW_MS), changed)
    check_rows(found, changed + bytes(1000))


@given(table=st.binary(max_size=300))
def test_noise_as_a_table_of_an_archive_is_rows_or_damage(table: bytes) -> None:
    found = answered(lambda path: emqx_archive.read_file(path, NOW_MS), archive(table))
    assert found is not None
    assert found.damage


@given(data=st.binary(max_size=300))
def test_noise_as_a_database_of_sqlite_is_refused(data: bytes) -> None:
    for start in (b"", mosquitto_sqlite.MAGIC):
        assert answered(lambda path: mosquitto_sqlite.read_file(path, "", NOW_MS), start + data) is None


KEYS = (
    "listener",
    "port",
    "protocol",
    "max_packet_size",
    "acl_file",
    "include_dir",
    "max_qos",
    "log_type",
    "connection",
    "persistent_client_expiration",
    "bridge_cafile",
    "plugin",
    "allow_anonymous",
    "user",
    "topic",
    "pattern",
    "a:$7$1$",
    "bind_address",
    "require_certificate",
    "max_inflight_messages",
)

lines = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.builds(
            "{} {}".format,
            st.sampled_from(KEYS),
            st.text(max_size=20),
        ),
    ),
    max_size=12,
).map("\n".join)


@given(text=lines)
@example(text="acl_file \0")
def test_any_text_is_settings_users_rules_or_a_refusal(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    answered(read_conf, data)
    answered(format_of, data)
    for add in (add_users, add_access):
        found = FoundSettings("noise")
        answered(lambda path, add=add, found=found: add(found, text, "noise"), b"")  # type: ignore[misc]


FIELDS = (
    "username",
    "password",
    "salt",
    "iterations",
    "roles",
    "rolename",
    "acls",
    "acltype",
    "topic",
    "allow",
    "groups",
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("admin") | st.just("#"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(FIELDS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(clients=json_values, roles=json_values, groups=json_values)
@example(clients=[{"username": "a", "roles": [{"rolename": []}]}], roles=[{"rolename": []}], groups=[{"groupname": {}}])
@example(clients=[{"username": "a", "groups": [{"groupname": []}]}], roles=[], groups=[])
@example(
    clients=[{"username": "a", "roles": [{"rolename": "r"}]}],
    roles=[{"rolename": "r", "acls": [{"acltype": []}]}],
    groups=[],
)
def test_any_json_is_dynamic_security_or_a_refusal(clients: Any, roles: Any, groups: Any) -> None:
    given_json = {"clients": clients, "roles": roles, "groups": groups, "defaultACLAccess": {}}
    answered(lambda path: add_dynamic_security(FoundSettings("noise"), given_json, "noise"), b"")


@given(text=st.text(max_size=60))
def test_any_text_is_json_or_a_refusal(text: str) -> None:
    answered(lambda path: parse(text, "noise"), b"")


def mutated(data: bytes, draw: st.DataObject) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(changed) - 1))
        changed[at] = draw.draw(st.integers(0, 255))
    return bytes(changed[: draw.draw(st.integers(1, len(changed)))])


def test_a_table_that_unpacks_to_more_than_its_bound_is_refused() -> None:
    """A few bytes that claim to be a term of gigabytes."""
    item = struct.pack(">I", 2**31) + b"\x62\x57\x4c\x41"
    found = answered(
        lambda path: emqx_archive.read_file(path, NOW_MS), archive(b"\x01\x02\x03\x04\x06\x07\x08\x09" + item)
    )
    assert found is not None
    assert "expected no more than" in found.damage[0]
    assert tarfile.is_tarfile(io.BytesIO(archive(b"")))
