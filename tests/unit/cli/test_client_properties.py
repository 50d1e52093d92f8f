import pytest

from holdfast.cli.client_properties import COMMANDS, IDENTIFIERS, SEPARATOR, pack_properties, parse_properties
from holdfast.errors import UsageError
from holdfast.protocol.mqtt.properties import Properties, encode_properties

ALL = tuple(COMMANDS)
VALUES = {"-m", "-t", "--topic", "-D", "--property"}


def parse(*words: str) -> dict[str, Properties]:
    return parse_properties(
        [word for word in pack_properties(list(words), VALUES) if SEPARATOR in word],
        ALL,
    )


@pytest.mark.parametrize(
    ("words", "packed"),
    [
        (["-D", "publish", "content-type", "x", "-r"], ["-D", "publish\0content-type\0x", "-r"]),
        (["-D", "will", "user-property", "k", "-v", "-r"], ["-D", "will\0user-property\0k\0-v", "-r"]),
        (["--property", "connect", "receive-maximum", "5"], ["--property", "connect\0receive-maximum\x005"]),
        (["-m", "-D", "-t", "a"], ["-m", "-D", "-t", "a"]),
        (["--topic=a", "--", "-D", "x"], ["--topic=a", "--", "-D", "x"]),
    ],
)
def test_words_behind_each_property_become_one(words: list[str], packed: list[str]) -> None:
    assert pack_properties(words, VALUES) == packed


@pytest.mark.parametrize(
    ("words", "form"),
    [
        (["-D", "publish"], "COMMAND IDENTIFIER VALUE"),
        (["-D", "publish", "user-property", "k"], "COMMAND user-property NAME VALUE"),
    ],
)
def test_missing_words_are_named(words: list[str], form: str) -> None:
    with pytest.raises(UsageError, match=form):
        pack_properties(words, VALUES)


def test_every_identifier_sets_the_field_that_is_written() -> None:
    sample = {"user-property": ("k", "v"), "response-topic": ("r",), "content-type": ("c",)}
    for command, identifiers in COMMANDS.items():
        for identifier in identifiers:
            values = sample.get(identifier, ("1",))
            properties = parse("-D", command, identifier, *values)[command]
            assert len(encode_properties(properties)) > 2, identifier
    assert set().union(*COMMANDS.values()) == set(IDENTIFIERS)


def test_properties_are_gathered_by_command() -> None:
    found = parse(
        *("-D", "PUBLISH", "user-property", "a", "1"),
        *("-D", "publish", "user-property", "a", "2"),
        *("-D", "publish", "message-expiry-interval", "60"),
        *("-D", "subscribe", "subscription-identifier", "7"),
    )
    assert found["publish"].user_properties == [("a", "1"), ("a", "2")]
    assert found["publish"].message_expiry == 60
    assert found["subscribe"].subscription_ids == [7]
    assert isinstance(found["publish"], Properties)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-D", "fly", "user-property", "a", "b"], "-D fly: expected one of connect, publish"),
        (["-D", "publish", "colour", "red"], "-D publish colour: no such property"),
        (["-D", "publish", "will-delay-interval", "1"], "publish has no such property"),
        (["-D", "publish", "topic-alias", "70000"], "value is '70000', expected 0 to 65535"),
        (["-D", "publish", "topic-alias", "many"], "value is 'many', expected 0 to 65535"),
        (["-D", "publish", "payload-format-indicator", "2"], "expected 0 to 1"),
        (["-D", "publish", "content-type", "a", "-D", "publish", "content-type", "b"], "given twice"),
    ],
)
def test_unusable_property_says_why(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(*words)
