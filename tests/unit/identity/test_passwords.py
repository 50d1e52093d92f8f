import os
import stat
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.identity.passwords import (
    PasswordFile,
    change_user,
    hash_argon2id,
    hash_pbkdf2,
    hash_scram,
    is_known,
    read_users,
    verify,
)

HASHES = {
    "argon2id": hash_argon2id(b"right"),
    "pbkdf2": hash_pbkdf2(b"right", b"twelve bytes"),
    "scram": hash_scram(b"right"),
}


@pytest.mark.parametrize("kind", ["argon2id", "pbkdf2", "scram"])
def test_only_the_right_password_is_right(kind: str) -> None:
    assert verify(HASHES[kind], b"right")
    for wrong in (b"", b"wrong", b"right ", b"Right", b"rightt"):
        assert not verify(HASHES[kind], wrong)


def test_old_sha512_hashes_of_mosquitto_are_read(tmp_path: Path) -> None:
    """The digest is over password and salt, in that order, as mosquitto 1.x has it."""
    import base64
    import hashlib

    salt = b"twelve bytes"
    digest = hashlib.sha512(b"right" + salt).digest()
    stored = f"$6${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"
    (tmp_path / "users").write_text(f"old:{stored}\n")
    users = PasswordFile(tmp_path / "users")
    assert users.check("old", b"right")
    assert not users.check("old", b"wrong")


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "secret",
        "$7$",
        "$7$101$$",
        "$7$0$c2FsdA==$aGFzaA==",
        "$7$101$c2FsdA==$",
        "$7$101$!!$aGFzaA==",
        "$7$99999999999$c2FsdA==$aGFzaA==",
        "$6$c2FsdA==$",
        "$6$$aGFzaA==",
        "$5$c2FsdA==$aGFzaA==",
        "$argon2id$v=19$nonsense",
        "SCRAM-SHA-256$0:c2FsdA==$a:b",
        "SCRAM-SHA-256$4096:c2FsdA==$aGFzaA==:aGFzaA==",
    ],
)
def test_a_hash_that_cannot_be_checked_is_an_error_when_the_file_is_read(stored: str, tmp_path: Path) -> None:
    assert not is_known(stored)
    path = tmp_path / "users"
    path.write_text(f"alice:{stored}\n")
    with pytest.raises(ConfigError, match="line 1") as caught:
        PasswordFile(path)
    if len(stored) > 3:
        assert stored not in str(caught.value)


@pytest.mark.parametrize("text", ["alice\n", ":$7$\n", "alice $7$101$c2FsdA==$aGFzaA==\n"])
def test_a_line_without_name_and_hash_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "users").write_text(text)
    with pytest.raises(ConfigError, match="line 1: expected USER:HASH"):
        read_users(tmp_path / "users")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the password file"):
        PasswordFile(tmp_path / "nowhere")


def test_an_empty_file_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("# nobody yet\n\n")
    users = PasswordFile(tmp_path / "users")
    assert not users.check("alice", b"")
    assert not users.check("", b"")
    assert not users.check(None, None)


def test_there_is_a_decoy_for_each_cost_in_the_file(tmp_path: Path) -> None:
    lines = [f"{kind}:{stored}\n{kind}2:{stored}\n" for kind, stored in HASHES.items()]
    (tmp_path / "users").write_text("".join(lines) + f"slow:{hash_pbkdf2(b'x', b'y' * 12, 500)}\n")
    costs = set(PasswordFile(tmp_path / "users").decoys)
    assert {cost for cost in costs if cost[:3] != "$ar"} == {"$7$101", "$7$500", "SCRAM-SHA-256$4096"}
    assert len(costs) == 4


def test_a_password_that_fits_a_decoy_lets_nobody_in(tmp_path: Path) -> None:
    for kind, stored in HASHES.items():
        (tmp_path / kind).write_text(f"real:{stored}\n")
        users = PasswordFile(tmp_path / kind)
        assert users.check("real", b"right")
        assert not users.check("other", b"right")


def test_the_file_is_replaced_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "users"
    change_user(path, "a", HASHES["pbkdf2"])
    first = path.stat()
    assert stat.S_IMODE(first.st_mode) == 0o600
    path.chmod(0o646)
    change_user(path, "b", HASHES["scram"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_ino != first.st_ino
    assert list(read_users(path)) == ["a", "b"]
    assert os.listdir(tmp_path) == ["users"]


COMMENTED = f"""# the pumps
pump:{HASHES["pbkdf2"]}
#pump:off

# twice, the second counts
gate:{HASHES["pbkdf2"]}
valve:{HASHES["scram"]}
gate:{HASHES["scram"]}"""


def test_a_change_leaves_every_other_line_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(COMMENTED)
    change_user(path, "pump", HASHES["argon2id"])
    assert path.read_text() == COMMENTED.replace(f"\npump:{HASHES['pbkdf2']}", f"\npump:{HASHES['argon2id']}") + "\n"
    change_user(path, "new", HASHES["scram"])
    assert path.read_text().splitlines()[-1] == f"new:{HASHES['scram']}"
    change_user(path, "gate", HASHES["argon2id"])
    lines = path.read_text().splitlines()
    assert lines[5] == f"gate:{HASHES['argon2id']}"
    assert read_users(path)["gate"] == HASHES["argon2id"]
    change_user(path, "gate", None)
    assert list(read_users(path)) == ["pump", "valve", "new"]
    assert "# twice, the second counts" in path.read_text()
