from pathlib import Path

import pytest

from holdfast.access.mosquitto_file import parse_access, read_access_file
from holdfast.broker.access import PUBLISH, RECEIVE, RETAIN, SUBSCRIBE, Access
from holdfast.errors import ConfigError

FILE = """\
# what mosquitto's own manual shows, and more

topic read public/#
user alice
topic readwrite home/#
topic deny home/safe/#
topic home two/ with spaces
user bob smith
topic write in/+
pattern write sensors/%u/#
pattern read client/%c/in
"""


@pytest.fixture(scope="module")
def access() -> Access:
    return Access(parse_access(FILE.replace("topic home two/", "topic readwrite home two/"), "acl"), False, True)


CASES = [
    ("", "c", RECEIVE, "public/x", True),
    ("", "c", PUBLISH, "public/x", False),
    ("", "c", RECEIVE, "home/x", False),
    ("alice", "c", RECEIVE, "public/x", False),
    ("alice", "c", RECEIVE, "home/x", True),
    ("alice", "c", PUBLISH, "home/x", True),
    ("alice", "c", RETAIN, "home/x", True),
    ("alice", "c", PUBLISH, "home/safe", False),
    ("alice", "c", RECEIVE, "home/safe/x", False),
    ("alice", "c", PUBLISH, "home two/ with spaces", True),
    ("bob smith", "c", PUBLISH, "in/x", True),
    ("bob smith", "c", RECEIVE, "in/x", False),
    ("bob", "c", PUBLISH, "in/x", False),
    ("carol", "c", PUBLISH, "sensors/carol/1", True),
    ("carol", "c", PUBLISH, "sensors/dave/1", False),
    ("carol", "c", RECEIVE, "sensors/carol/1", False),
    ("", "c7", RECEIVE, "client/c7/in", True),
    ("", "c7", RECEIVE, "client/c8/in", False),
    ("", "+", RECEIVE, "client/c8/in", False),
    ("#", "c", PUBLISH, "sensors/x/1", False),
    ("alice", "c", RECEIVE, "$SYS/broker/version", False),
]


@pytest.mark.parametrize(("user", "client_id", "action", "topic", "allowed"), CASES)
def test_a_file_means_what_it_means_to_mosquitto(
    access: Access, user: str, client_id: str, action: int, topic: str, allowed: bool
) -> None:
    assert access.may(action, user, client_id, topic.encode().split(b"/")) is allowed


def test_subscribing_is_free_and_delivery_is_not(access: Access) -> None:
    assert access.may(SUBSCRIBE, "alice", "c", [b"#"])
    assert access.may_receive("alice", "c", [b"home", b"x"], False)
    assert not access.may_receive("alice", "c", [b"other"], False)


def test_a_denial_wins_wherever_it_stands() -> None:
    for lines in ("topic readwrite a/#\ntopic deny a/b", "topic deny a/b\ntopic readwrite a/#"):
        access = Access(parse_access(f"user u\n{lines}\n", "acl"), False)
        assert not access.may(PUBLISH, "u", "c", [b"a", b"b"])
        assert access.may(PUBLISH, "u", "c", [b"a", b"c"])


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "user alice\n"])
def test_a_file_that_grants_nothing_grants_nothing(text: str) -> None:
    access = Access(parse_access(text, "acl"), False, True)
    for user in ("", "alice"):
        assert not access.may(PUBLISH, user, "c", [b"a"])
        assert not access.may_receive(user, "c", [b"a"], False)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("topics read a", "expected `user`, `topic` or `pattern`"),
        ("Topic read a", "expected `user`, `topic` or `pattern`"),
        ("user", "expected a user name"),
        ("topic", "expected a topic filter"),
        ("topic reed a", "expected read, write, readwrite or deny"),
        ("topic read a/#/b", "expected a topic filter"),
        ("topic read a+", "expected a topic filter"),
        ("topic write sensors/%u", "in `pattern` lines only"),
        ("\x00", "expected `user`, `topic` or `pattern`"),
        ("\ufefftopic read a", "expected `user`, `topic` or `pattern`"),
    ],
)
def test_a_line_that_cannot_be_read_is_an_error_that_names_it(line: str, problem: str) -> None:
    with pytest.raises(ConfigError, match="acl, line 2") as caught:
        parse_access(f"# first\n{line}\n", "acl")
    assert problem in str(caught.value)


def test_a_missing_or_binary_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("nowhere", "binary"):
        with pytest.raises(ConfigError, match="cannot read the access file"):
            read_access_file(tmp_path / name)
