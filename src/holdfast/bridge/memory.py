"""What a bridge has to know after a restart: for each topic, what both sides had when they last agreed.

A row is the digest of a retained message that was sent or received. With it three questions have an answer: has it
changed here, has it changed there, and is something gone. The table is bounded; topics beyond the bound are bridged all
the same, but a deletion while the link is down does not cross.

A row is written before, or together with, the acknowledgement of what it is about: what is lost in a crash is sent
again, and nothing worse.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.errors import StoreError

PORTION: Final = 1000
DOUBTED: Final = b""  # something was there, and nobody knows whether it still is

SCHEMA: Final = """
create table if not exists topic (name blob primary key, digest blob not null, seen integer not null) without rowid;
create table if not exists fact (name text primary key, value text not null) without rowid;
"""


class Memory:
    """`path` is None where nothing outlives the process. Names are those of topics here."""

    def __init__(self, path: Path | None, most: int = 0) -> None:
        self.path = path
        self.most = most
        self.left_out = 0
        self.generation = 0
        try:
            if path is not None:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.database = sqlite3.connect(path or ":memory:", isolation_level=None)
            self.database.execute("pragma journal_mode = wal")
            self.database.execute("pragma synchronous = normal")
            self.database.executescript(SCHEMA)
            self.count: int = self.database.execute("select count(*) from topic").fetchone()[0]
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"what a bridge has sent cannot be read from {path}: {error}") from error
        self.generation = int(self.fact("generation") or 0)
        self.changing = False

    def get(self, topic: bytes) -> bytes | None:
        row = self.database.execute("select digest from topic where name = ?", (topic,)).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, topic: bytes, digest: bytes | None) -> None:
        """Both sides have this now; None: nothing."""
        if digest is None:
            self.begin()
            self.count -= self.database.execute("delete from topic where name = ?", (topic,)).rowcount
            return
        self.begin()
        changed = self.database.execute(
            "update topic set digest = ?, seen = ? where name = ?", (digest, self.generation, topic)
        ).rowcount
        if changed:
            return
        if 0 < self.most <= self.count:
            self.left_out += 1
            return
        self.database.execute("insert into topic values (?, ?, ?)", (topic, digest, self.generation))
        self.count += 1

    def see(self, topic: bytes) -> bool:
        """The topic is there in this generation; returns whether that is news."""
        self.begin()
        found = self.database.execute(
            "update topic set seen = ? where name = ? and seen < ?", (self.generation, topic, self.generation)
        )
        return found.rowcount > 0

    def is_seen(self, topic: bytes) -> bool:
        """Whether it is known what became of the topic in this generation."""
        row = self.database.execute("select seen from topic where name = ?", (topic,)).fetchone()
        return row is not None and int(row[0]) >= self.generation

    def next_generation(self) -> None:
        self.generation += 1
        self.set_fact("generation", str(self.generation))

    def topics(self, seen_before: int | None = None) -> Iterator[list[bytes]]:
        """All names, or those last seen before a generation, in portions; the table may change in between."""
        after = b""
        bound = self.generation + 1 if seen_before is None else seen_before
        while True:
            rows = self.database.execute(
                "select name from topic where name > ? and seen < ? order by name limit ?", (after, bound, PORTION)
            ).fetchall()
            if not rows:
                return
            after = rows[-1][0]
            yield [row[0] for row in rows]

    def doubt(self, topic: bytes) -> None:
        self.begin()
        self.database.execute("update topic set digest = ? where name = ?", (DOUBTED, topic))

    def fact(self, name: str) -> str | None:
        row = self.database.execute("select value from fact where name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def set_fact(self, name: str, value: str) -> None:
        self.begin()
        self.database.execute("insert or replace into fact values (?, ?)", (name, value))

    def forget_facts(self, start: str) -> None:
        """Those whose name begins so."""
        self.begin()
        self.database.execute("delete from fact where substr(name, 1, ?) = ?", (len(start), start))

    def begin(self) -> None:
        if not self.changing:
            self.database.execute("begin")
            self.changing = True

    def flush(self) -> None:
        """What was noted is in the file."""
        if self.changing:
            self.changing = False
            self.database.execute("commit")

    def close(self) -> None:
        self.flush()
        self.database.close()

    def remove(self) -> None:
        """Forget everything: the bridge is no more."""
        self.close()
        if self.path is not None:
            for suffix in ("", "-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
