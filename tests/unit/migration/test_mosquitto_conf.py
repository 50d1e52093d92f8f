"""`mosquitto.conf`, password, access and dynamic security files: what they become, and what is named instead."""

import base64
import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from command_line import holdfast
from holdfast.access.mosquitto_file import parse_access
from holdfast.config import load
from holdfast.errors import UsageError
from holdfast.from_settings import access_rules
from holdfast.identity.passwords import PasswordFile, hash_argon2id, hash_pbkdf2
from holdfast.migration.dynamic_security import add_dynamic_security
from holdfast.migration.mosquitto_conf import read_conf
from holdfast.migration.mosquitto_users import add_access, add_users
from holdfast.migration.settings_files import NEW, OTHER, SAME, FoundSettings, files_of, put_file

ALICE = hash_pbkdf2(b"wonderland", b"saltsaltsalt")
BOB = hash_pbkdf2(b"builder", b"saltsaltsalt")


def conf(tmp_path: Path, text: str, **others: str) -> FoundSettings:
    for name, content in others.items():
        (tmp_path / name).write_text(content)
    path = tmp_path / "mosquitto.conf"
    path.write_text(text)
    return read_conf(path)


def written(found: FoundSettings, tmp_path: Path) -> Path:
    """The configuration, written with all that belongs to it."""
    config = tmp_path / "new" / "holdfast.toml"
    for file in files_of(found, config):
        assert put_file(file, False, False) == NEW
    return config


def test_a_usual_configuration_becomes_one_that_the_broker_takes(tmp_path: Path) -> None:
    found = conf(
        tmp_path,
        "# Debian's, more or less\n"
        "per_listener_settings false\npersistence true\npersistence_location /var/lib/mosquitto/\n"
        "log_dest file /var/log/mosquitto/mosquitto.log\nlog_type error\nlog_type notice\n"
        "listener 1883\nlistener 9001 127.0.0.1\nprotocol websockets\nmax_connections 50\n"
        "allow_anonymous false\npassword_file passwd\nacl_file acl\n"
        "max_inflight_messages 40\nmax_queued_messages 0\nmax_packet_size 2000000\npersistent_client_expiration 14d\n"
        "max_keepalive 600\nsys_interval 30\nautosave_interval 1800\n",
        passwd=f"alice:{ALICE}\n",
        acl="user alice\ntopic readwrite home/#\npattern read %u/#\n",
    )
    assert found.values == {
        "listen": ["tcp://0.0.0.0:1883", "ws://127.0.0.1:9001?max_connections=50", "http://127.0.0.1:18083"],
        "auth.allow_anonymous": False,
        "limits.max_inflight": 40,
        "limits.max_queued_messages": 0,
        "limits.max_packet_size": 2_000_000,
        "limits.session_expiry_max": 14 * 86400,
        "limits.keep_alive_max": 600,
        "sys.interval": 30,
        "log.level": "info",
    }
    assert [(left.where, left.text) for left in found.left] == [
        ("mosquitto.conf, line 5", "log_dest file /var/log/mosquitto/mosquitto.log")
    ]
    assert any("/var/lib/mosquitto/mosquitto.db" in note for note in found.notes)
    config = written(found, tmp_path)
    settings = load(config, environ={}).settings
    assert settings.limits.max_inflight == 40
    assert settings.auth.password_file is not None
    assert PasswordFile(settings.auth.password_file).check("alice", b"wonderland")
    access = access_rules(settings)
    assert access is not None
    assert access.may(1, "alice", "c", [b"home", b"x"])
    assert not access.may(1, "bob", "c", [b"home", b"x"])


def test_listeners_with_certificates_keep_them(tmp_path: Path) -> None:
    found = conf(
        tmp_path,
        "persistence true\nlistener 8883 ::1\ncafile /etc/ca.pem\ncertfile /etc/my cert.pem\nkeyfile /etc/key.pem\n"
        "crlfile revoked.pem\nrequire_certificate true\nuse_identity_as_username true\ntls_version tlsv1.3\n",
    )
    [url, _] = found.values["listen"]
    assert url == (
        f"tls://[::1]:8883?ca=/etc/ca.pem&cert=/etc/my%20cert.pem&key=/etc/key.pem&crl={tmp_path}/revoked.pem"
        "&require_client_certificate=true"
    )
    assert found.values["tls.min_version"] == "1.3"
    assert found.left == []


def test_each_listener_keeps_its_own_anonymity(tmp_path: Path) -> None:
    found = conf(
        tmp_path,
        "persistence true\nper_listener_settings true\nlistener 1883 127.0.0.1\nallow_anonymous true\n"
        "listener 1884 127.0.0.1\nallow_anonymous false\n",
    )
    assert found.values["listen"][:2] == [
        "tcp://127.0.0.1:1883?allow_anonymous=true",
        "tcp://127.0.0.1:1884?allow_anonymous=false",
    ]


def test_without_listeners_it_answers_on_this_machine_only(tmp_path: Path) -> None:
    assert conf(tmp_path, "persistence true\n").values["listen"][0] == "tcp://127.0.0.1:1883"


def test_files_of_the_included_folder_are_read_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "b.conf").write_text("max_inflight_messages 2\n")
    (folder / "a.conf").write_text("max_inflight_messages 1\nno_such_key yes\n")
    (folder / "ignored.txt").write_text("max_inflight_messages 3\n")
    found = conf(tmp_path, "include_dir conf.d\npersistence true\n")
    assert found.values["limits.max_inflight"] == 2
    assert [(left.where, left.text) for left in found.left] == [("a.conf, line 2", "no_such_key yes")]


def test_lines_without_a_counterpart_are_named_with_what_to_do_and_without_secrets(tmp_path: Path) -> None:
    found = conf(
        tmp_path,
        "persistence true\nuser mosquitto\nremote_password hunter2\nconnection cloud\naddress example.org\n"
        "topic # sideways 1\ntopic # both 1\nbridge_psk 0123\nplugin /usr/lib/other.so\nplugin_opt_x 1\n"
        "max_packet_size big\nlistener 0 /run/mosquitto.sock\n",
    )
    assert [left.text for left in found.left] == [
        "user mosquitto",
        "remote_password ...",
        "topic # sideways 1",
        "bridge_psk ...",
        "plugin /usr/lib/other.so",
        "plugin_opt_x 1",
        "max_packet_size big",
        "listener 0 /run/mosquitto.sock",
    ]
    assert all(left.reason for left in found.left)
    assert "hunter2" not in "\n".join(line for file in files_of(found, tmp_path / "x.toml") for line in file.lines)


def test_connections_become_bridges_and_their_passwords_files_of_their_own(tmp_path: Path) -> None:
    found = conf(
        tmp_path,
        "persistence true\nconnection cloud 1\naddress broker.example:8883 spare.example\n"
        'topic sensors/# out 1 "" site7/\ntopic commands/# in\nremote_clientid site7\nremote_username u\n'
        "remote_password hunter2\nbridge_cafile ca.pem\ncleansession true\nstart_type lazy\nthreshold 5\n"
        "restart_timeout 10 60\ntry_private false\nbridge_protocol_version mqttv50\nkeepalive_interval 30\n"
        "connection empty\naddress nowhere\n",
    )
    (tmp_path / "ca.pem").write_text("")
    config = written(found, tmp_path)
    assert "hunter2" not in config.read_text()
    (bridge,) = load(config, environ={}).settings.bridge
    assert bridge.password_file is not None
    assert bridge.password_file.read_text() == "hunter2\n"
    assert bridge.password_file.stat().st_mode & 0o077 == 0
    assert bridge.model_dump(exclude_unset=True, exclude={"password_file"}) == {
        "name": "cloud-1",
        "address": ["mqtts://broker.example:8883", "mqtts://spare.example:1883"],
        "topic": ['sensors/# out 1 "" site7/', "commands/# in 0"],
        "protocol": "5",
        "client_id": "site7",
        "username": "u",
        "ca": tmp_path / "ca.pem",
        "clean_session": True,
        "start": "lazy",
        "threshold": 5,
        "retry": 10,
        "retry_max": 60,
        "private": False,
        "keep_alive": 30,
    }
    assert any("empty" in note for note in found.notes)


BRIDGES = (
    "persistence true\nconnection cloud\naddress example.org\ntopic sensors/# out 1\ntopic shared/# both 1 site/ x/\n"
)


def test_rules_hold_no_bridge_back_as_they_hold_none_back_in_mosquitto(tmp_path: Path) -> None:
    found = conf(
        tmp_path,
        f"acl_file acl\npassword_file passwd\n{BRIDGES}connection known\naddress example.org\ntopic # in\n"
        "local_username alice\n",
        acl="user alice\ntopic readwrite home/#\n",
        passwd=f"alice:{ALICE}\nbridge-cloud:{BOB}\n",
    )
    settings = load(written(found, tmp_path), environ={}).settings
    cloud, known = settings.bridge
    assert cloud.local_username == "bridge-cloud-"  # the rights are for nobody who has a password
    access = access_rules(settings)
    assert access is not None
    may = {
        topic: (
            access.may_receive(cloud.local_username, "b", topic.encode().split(b"/"), False),
            access.may_keep(cloud.local_username, "b", topic.encode().split(b"/")),
        )
        for topic in ("sensors/a", "site/shared/a", "home/a")
    }
    assert may == {"sensors/a": (True, False), "site/shared/a": (True, True), "home/a": (False, False)}
    assert known.local_username == "alice"
    assert [note for note in found.notes if "its user alice" in note]


def test_bridges_have_no_user_where_there_are_no_rules(tmp_path: Path) -> None:
    (bridge,) = conf(tmp_path, BRIDGES).tables["bridge"]
    assert "local_username" not in bridge


def test_the_file_with_the_messages_is_named_as_it_is_called(tmp_path: Path) -> None:
    found = conf(tmp_path, "persistence true\npersistence_location /srv/mq\npersistence_file old.db\n")
    assert found.left == []
    assert "its messages and sessions: holdfast import /srv/mq/old.db --data data" in found.notes


def test_the_password_of_a_bridge_is_one(tmp_path: Path) -> None:
    (tmp_path / "mosquitto.conf").write_text(f"{BRIDGES}remote_username u\nremote_password hunter2\n")
    done = holdfast("import", str(tmp_path / "mosquitto.conf"), "--output", str(tmp_path / "holdfast.toml"))
    assert done.returncode == 0, done.stderr
    assert "1 password of a bridge" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def test_a_file_of_rights_that_is_missing_ends_the_import(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="acl_file"):
        conf(tmp_path, "acl_file nowhere\n")


def test_a_file_with_a_null_character_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mosquitto\.conf is no text: line 2 has a null character"):
        conf(tmp_path, "listener 1883\nacl_file \0\n")


def test_hashes_are_kept_and_clear_passwords_are_not_repeated() -> None:
    found = FoundSettings("passwd")
    argon = hash_argon2id(b"x")
    add_users(found, f"# users\nalice:{ALICE}\nbob:{argon}\ncarol:secret-in-clear\nnonsense\n", "passwd")
    assert found.users == {"alice": ALICE, "bob": argon}
    assert [left.where for left in found.left] == ["passwd, line 4", "passwd, line 5"]
    assert "secret-in-clear" not in str(found.left)


def test_access_rules_come_as_they_are_and_unreadable_grants_are_named() -> None:
    text = "topic read public/#\n\nuser alice\ntopic home/#\ntopic write home/%u/x\npattern read %c/#\n"
    found = FoundSettings("acl")
    add_access(found, text, "acl")
    assert found.access is not None
    assert len(parse_access(found.access, "acl")) == found.rules == 3
    assert [left.text for left in found.left] == ["topic write home/%u/x"]


@pytest.mark.parametrize("line", ["topic deny home/#/x", "user"])
def test_a_denial_that_cannot_be_read_ends_the_import(line: str) -> None:
    with pytest.raises(UsageError, match="grant more"):
        add_access(FoundSettings("acl"), f"topic read a\n{line}\n", "acl")


def dynsec(**changes: Any) -> dict[str, Any]:
    digest = hashlib.pbkdf2_hmac("sha512", b"wonderland", b"twelve bytes", 101)
    given: dict[str, Any] = {
        "clients": [
            {
                "username": "alice",
                "password": base64.b64encode(digest).decode(),
                "salt": base64.b64encode(b"twelve bytes").decode(),
                "iterations": 101,
                "roles": [{"rolename": "low", "priority": 1}, {"rolename": "high", "priority": 5}],
                "groups": [{"groupname": "staff"}],
            },
            {"username": "old", "encoded_password": ALICE, "disabled": True, "clientid": "only-this"},
            {"username": "nopass"},
        ],
        "groups": [{"groupname": "staff", "roles": [{"rolename": "reader"}], "clients": [{"username": "alice"}]}],
        "roles": [
            {"rolename": "low", "acls": [{"acltype": "publishClientSend", "topic": "home/#", "allow": True}]},
            {
                "rolename": "high",
                "acls": [
                    {"acltype": "publishClientSend", "topic": "home/%u/#", "allow": True, "priority": 9},
                    {"acltype": "publishClientSend", "topic": "home/safe", "allow": False, "priority": 10},
                    {"acltype": "unsubscribePattern", "topic": "#", "allow": True},
                ],
            },
            {"rolename": "reader", "acls": [{"acltype": "subscribePattern", "topic": "home/#", "allow": True}]},
        ],
        "defaultACLAccess": {"publishClientSend": False, "publishClientReceive": True, "subscribe": False},
    }
    return given | changes


def test_dynamic_security_becomes_users_and_rules_that_decide_alike(tmp_path: Path) -> None:
    found = FoundSettings("dynsec")
    add_dynamic_security(found, dynsec(), "dynsec.json")
    settings = load(written(found, tmp_path), environ={}).settings
    assert settings.auth.password_file is not None
    passwords = PasswordFile(settings.auth.password_file)
    assert passwords.check("alice", b"wonderland")
    assert not passwords.check("alice", b"other")
    assert settings.bans.users == ["old"]
    access = access_rules(settings)
    assert access is not None
    publish, subscribe = 1, 2
    assert access.may(publish, "alice", "c", [b"home", b"x"])
    assert not access.may(publish, "alice", "c", [b"home", b"safe"])
    assert not access.may(publish, "alice", "c", [b"garden"])
    assert not access.may(publish, "old", "c", [b"home", b"x"])
    assert access.may(subscribe, "alice", "c", [b"home", b"#"])
    assert not access.may(subscribe, "alice", "c", [b"#"])
    assert access.may_receive("alice", "c", [b"home", b"x"], False)
    assert [left.text for left in found.left] == ["clientid only-this", "password"]


@pytest.mark.parametrize(
    "plugin",
    ["plugin /x/mosquitto_dynamic_security.so", "plugin_load d /x/mosquitto_dynamic_security.so\nplugin_use d"],
)
def test_dynamic_security_is_found_through_the_configuration(plugin: str, tmp_path: Path) -> None:
    found = conf(
        tmp_path,
        f"persistence true\n{plugin}\nplugin_opt_config_file dynsec\n",
        dynsec=json.dumps(dynsec()),
    )
    assert found.users is not None
    assert set(found.users) == {"alice", "old"}


def test_a_role_that_denies_what_has_no_counterpart_ends_the_import() -> None:
    roles = [{"rolename": "r", "acls": [{"acltype": "invented", "topic": "#", "allow": False}]}]
    clients = [{"username": "alice", "encoded_password": ALICE, "roles": [{"rolename": "r"}]}]
    with pytest.raises(UsageError, match="denies"):
        add_dynamic_security(FoundSettings("dynsec"), dynsec(roles=roles, clients=clients), "dynsec.json")


def test_files_are_written_once_and_never_over_others(tmp_path: Path) -> None:
    found = conf(tmp_path, "persistence true\npassword_file passwd\n", passwd=f"alice:{ALICE}\n")
    config = tmp_path / "out.toml"
    files = files_of(found, config)
    assert [put_file(file, False, True) for file in files] == [NEW, NEW]
    assert not config.exists()
    assert [put_file(file, False, False) for file in files] == [NEW, NEW]
    assert [put_file(file, False, False) for file in files] == [SAME, SAME]
    config.write_text("mine = true\n")
    assert put_file(files[0], False, False) == OTHER
    assert config.read_text() == "mine = true\n"
    assert put_file(files[0], True, False) == NEW
    assert (tmp_path / "passwords").stat().st_mode & 0o077 == 0


def test_any_text_survives_the_way_into_the_file(tmp_path: Path) -> None:
    odd = 'quote " backslash \\ tab \t DEL \x7f €𝄞'
    found = FoundSettings("x\ny")
    found.values["auth.client_id"] = odd
    found.leave("here", "a\nb", "c\rd")
    config = files_of(found, tmp_path / "x.toml")[0]
    assert tomllib.loads("\n".join(config.lines))["auth"]["client_id"] == odd


def test_users_are_added_to_those_that_are_there(tmp_path: Path) -> None:
    config, passwords = tmp_path / "holdfast.toml", tmp_path / "passwords"
    config.write_text("durability = 'ack'\n")
    passwords.write_text(f"bob:{BOB}\nalice:{BOB}\n")
    source = tmp_path / "passwd"
    source.write_text(f"alice:{ALICE}\ncarol:{ALICE}\n")
    done = holdfast("import", str(source), "--output", str(config))
    assert done.returncode == 1, "alice has another password there"
    assert "user alice" in done.stdout
    assert passwords.read_text() == f"bob:{BOB}\nalice:{BOB}\ncarol:{ALICE}\n"
    assert holdfast("import", str(source), "-o", str(config), "--replace").returncode == 0
    assert passwords.read_text() == f"bob:{BOB}\nalice:{ALICE}\ncarol:{ALICE}\n"
    again = holdfast("import", str(source), "-o", str(config))
    assert (again.returncode, "nothing was changed" in again.stdout) == (0, True)
    assert config.read_text() == "durability = 'ack'\n"


def test_settings_that_are_there_are_not_written_over(tmp_path: Path) -> None:
    source, config = tmp_path / "mosquitto.conf", tmp_path / "holdfast.toml"
    source.write_text("persistence true\npassword_file passwd\n")
    (tmp_path / "passwd").write_text(f"alice:{ALICE}\n")
    config.write_text("mine = true\n")
    done = holdfast("import", str(source), "--output", str(config))
    assert done.returncode == 1
    assert "stays (--replace)" in done.stdout
    assert config.read_text() == "mine = true\n"
    assert not (tmp_path / "passwords").exists(), "all or nothing"
