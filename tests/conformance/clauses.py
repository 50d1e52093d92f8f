"""Every normative statement that concerns a server, and the few that no test from outside can show.

A test names the clauses it proves with `@pytest.mark.clause("3.1.1", "MQTT-3.3.1-9")`. `test_clauses.py` fails when a
clause has neither a test nor a reason here. Always give the version: the two standards use the same numbers for
different rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from conformance import clauses_sn, clauses_v5, clauses_v311

V311 = "3.1.1"
V5 = "5.0"
SN12 = "SN1.2"
SN2 = "SN2.0"
VERSIONS = (V311, V5, SN12, SN2)

Key = tuple[str, str]


@dataclass(frozen=True)
class Clause:
    version: str
    id: str
    role: str
    rule: str

    @property
    def key(self) -> Key:
        return self.version, self.id


def _read(version: str, table: str, prefix: str = "MQTT-") -> list[Clause]:
    rows = (line.split(" ", 2) for line in table.splitlines() if line)
    return [Clause(version, f"{prefix}{number}", role, rule) for number, role, rule in rows]


CLAUSES: list[Clause] = (
    _read(V311, clauses_v311.TABLE)
    + _read(V5, clauses_v5.TABLE)
    + _read(SN12, clauses_sn.TABLE_12, "")
    + _read(SN2, clauses_sn.TABLE_2, "MQTT-SN-")
)
BY_KEY: dict[Key, Clause] = {clause.key: clause for clause in CLAUSES}

UNTESTABLE: dict[Key, str] = {
    (V311, "MQTT-3.8.3-2"): "binds servers without wildcard subscriptions; this one has them",
    (V311, "MQTT-4.8.0-2"): "needs a passing fault inside the server, which no packet from outside can cause",
    (V311, "MQTT-7.0.0-1"): "binds servers that connect to other servers; this one opens no MQTT connections",
    (V5, "MQTT-3.15.2-2"): "this server's AUTH never has a reason string",
    (V5, "MQTT-3.15.2-3"): "this server's AUTH never has user properties",
    **{(SN2, f"MQTT-SN-{number}"): reason for number, reason in clauses_sn.UNTESTABLE_2.items()},
}
