"""How a table of 2.0 exchanges is written down."""

import pytest

CONNECT = "0C 01 01 00 01 02 00 3C 00 00 63 31 -> 06 02 00 00 01 00"  # clean start, 60 s, "c1"
KEPT = "10 01 09 00 01 02 00 3C 00 00 00 00 0E 10 63 31"  # clean start, session expiry 3600 s
RESUMED = "10 01 08 00 01 02 00 3C 00 00 00 00 0E 10 63 31"
WILL = "18 01 03 17 00 01 02 00 3C 00 00 00 03 77 2F 31 00 04 64 65 61 64 63 31 -> 06 02 00 00 01 00"  # w/1, retained


def clause(*ids: str) -> pytest.MarkDecorator:
    return pytest.mark.clause("SN2.0", *(f"MQTT-SN-{number}" for number in ids))


def rows(*table: tuple[str, str, str]) -> pytest.MarkDecorator:
    """Rows of name, clauses and script, each a test of its own that names its clauses."""
    return pytest.mark.parametrize(
        "script",
        [pytest.param(script, id=name, marks=clause(*numbers.split())) for name, numbers, script in table],
    )
