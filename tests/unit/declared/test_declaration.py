"""What a pipeline.toml may say, and that everything wrong with one is said at once."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.spark.declared import declare, read_declarations
from holdfast.spark.declared.declaration import Column

GOOD: dict[str, Any] = {
    "name": "speeds",
    "template": "site/{site}/{device}/drive",
    "decoder": "json",
    "columns": {"site": "string", "speed": "double"},
}


def problems(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "pipeline.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_declarations(file, reserved=["retained"])
    return str(error.value).replace(f" (file {file})", "").splitlines()


def wrong(**changes: Any) -> list[str]:
    with pytest.raises(ConfigError) as error:
        declare(**GOOD | changes)
    return str(error.value).splitlines()


def test_a_file_and_python_declare_the_same_table(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(
        """
        [[table]]
        name = "speeds"
        template = "site/{site}/{device}/drive"
        decoder = "json"
        columns.site = "string"
        columns.speed = "double"
        """
    )
    assert read_declarations(file) == [declare(**GOOD)]


def test_the_filter_follows_from_the_template() -> None:
    assert declare(**GOOD).filter == "site/+/+/drive"


def test_a_column_named_like_a_level_comes_from_there_and_others_from_the_payload() -> None:
    table = declare(**GOOD | {"columns": {"site": {}, "speed": {"type": "double", "from": "drive.speed"}}})
    assert table.columns == (Column("site", "string", "{site}"), Column("speed", "double", "drive.speed"))


def test_all_problems_of_a_file_are_said_at_once_with_key_expected_and_got(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """
        tables = 1
        [[table]]
        name = "Speeds"
        decoder = "jsn"
        [[table]]
        name = "retained"
        template = "site/{site}/#"
        decoder = "json"
        knd = "latest"
        columns = { site = "string", speed = "dubble", at = { type = "timestamp", unit = "h" } }
        """,
    )
    assert found == [
        "tables: unknown key (value 1); nearest known key: table",
        'table[0].name: expected lower-case letters, digits and _, got "Speeds"',
        'table[0].decoder: expected one of json, number, text, raw, cbor, protobuf, sparkplug, got "jsn"',
        "table[0].filter: expected a topic filter here, or a template, got none",
        "table[0].columns: expected at least one column, got none",
        'table[1].knd: unknown key (value "latest"); nearest known key: kind',
        "table[1].columns.speed.type: expected one of string, double, long, int, boolean, timestamp, binary, "
        'got "dubble"; nearest: double',
        'table[1].columns.at.unit: expected one of s, ms, us, ns, of a timestamp, got "h"',
        'table[1].name: "retained" is taken, expected a name of its own',
    ]


def test_a_file_that_is_not_there_or_no_toml_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the declaration: no such file or directory"):
        read_declarations(tmp_path / "pipeline.toml")
    assert problems(tmp_path, "[[table]")[0].startswith("not a TOML file: ")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"template": "site/+/drive"}, "table.template: expected a topic template with a name in braces"),
        ({"filter": "a/#/b"}, "table.filter: expected `+` alone in its level and `#` alone and last, got 'a/#/b'"),
        ({"columns": {"timestamp": "double"}}, "table.columns.timestamp: expected another name: every such table"),
        ({"columns": {"payload": "string"}}, 'table.columns.payload: expected another name, or from = "@payload"'),
        ({"columns": {"a": "long", "A": "long"}}, "table.columns.A: expected another name: it is there already"),
        ({"columns": {"x": {"type": "long", "from": "{line}"}}}, "table.columns.x.from: expected a name of the temp"),
        ({"columns": {"x": {"type": "long", "from": "@ofset"}}}, "table.columns.x.from: expected a column of history"),
        ({"columns": {"x": {"type": "long", "from": "a..b"}}}, "table.columns.x.from: expected a place in the payl"),
        ({"columns": {"x": {"from": "@qos", "type": "double"}}}, "table.columns.x.type: expected int, as in history"),
        ({"columns": {"x": 5}}, "table.columns.x: expected a type, or { type = …, from = … }, got 5"),
        ({"decoder": "number", "columns": {"x": {"type": "double", "from": "a"}}}, "table.columns.x.from: expected $:"),
        ({"decoder": "text", "columns": {"x": "long"}}, "table.columns.x.type: expected string, which text gives, got"),
        ({"key": ["site"]}, "table.key: expected none: a history has every row"),
        ({"window": "1m"}, "table.window: expected none in a table of kind history"),
        ({"kind": "latest", "key": ["speed"]}, "table.key: expected at least one of site, topic, which are known"),
        ({"kind": "latest", "key": ["sped"]}, "table.key: expected names of columns (topic, site, speed), each once"),
        ({"message": "x"}, "table.message: expected none: only protobuf has one"),
        ({"decoder": "protobuf"}, "table.message: expected a text, got none"),
        ({"decoder": "protobuf", "message": "M", "descriptor_set": "no.bin"}, "table.descriptor_set: cannot read no"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], problem: str) -> None:
    assert wrong(**changes)[0].startswith(problem)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, "table.window: expected a duration that divides a day, such as 1m, 15m, 1h or 1d, got none"),
        ({"window": "7m"}, 'table.window: expected a duration that divides a day, such as 1m, 15m, 1h or 1d, got "7m"'),
        (
            {"window": "1m", "columns": {"speed": {"aggregate": "median", "type": "double"}}},
            "table.columns.speed.aggregate: expected one of count, sum, avg, min, max, first, last, in a table of kind",
        ),
        (
            {"window": "1m", "key": [], "columns": {"site": "string"}},
            "table.columns.site.aggregate: expected count, sum, avg, min, max, first, last, got none",
        ),
        (
            {"window": "1m", "columns": {"n": {"aggregate": "count", "type": "double"}}},
            'table.columns.n.type: expected long, which count gives, got "double"',
        ),
        (
            {"window": "1m", "columns": {"n": {"aggregate": "sum", "type": "int"}}},
            'table.columns.n.type: expected long or double, to sum, got "int"',
        ),
    ],
)
def test_an_aggregate_needs_a_window_and_what_to_do_with_each_column(changes: dict[str, Any], problem: str) -> None:
    columns = {"site": "string", "speed": {"aggregate": "avg"}}
    assert wrong(**{"kind": "aggregate", "columns": columns} | changes)[0].startswith(problem)


def test_a_sparkplug_table_needs_nothing_but_a_name_and_refuses_to_miss_births() -> None:
    assert declare(name="metrics", decoder="sparkplug").filter == "spBv1.0/#"
    assert declare(name="metrics", decoder="sparkplug", filter="spBv1.0/Plant/#").filter == "spBv1.0/Plant/#"
    with pytest.raises(ConfigError, match="births and deaths included, got"):
        declare(name="metrics", decoder="sparkplug", filter="spBv1.0/+/DDATA/#")
    with pytest.raises(ConfigError, match="a Sparkplug table has columns of its own"):
        declare(name="metrics", decoder="sparkplug", columns={"a": "long"})
