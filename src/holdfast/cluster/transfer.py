"""The state of a node, handed to another through JetStream's object store.

An object is a run of chunks under a subject of its own and, last of all, a note that says how many they are and what
they add up to (SHA-256): an object without its note is not there. The layout is that of NATS' own tools, so `nats
object ls` shows them.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import random
from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.cluster.connection import Connection, Message
from holdfast.cluster.reader import position_of
from holdfast.errors import HoldfastError, NoAnswer, StoreError

CHUNK: Final = 512 << 10
WINDOW: Final = 16  # chunks on their way at once
ANSWER_S: Final = 20.0
ROLLUP: Final = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"
NOT_FOUND: Final = (10037, 10059)  # no message, no stream
NEXT_S: Final = 3.0
PAUSE_S: Final = 0.5
ATTEMPTS: Final = 20  # without a chunk between them: longer than it takes to elect leaders

Progress = Callable[[int, int], None]  # bytes so far, and of how many; 0 when that is not known


def _ignore(done: int, size: int) -> None:
    pass


@dataclass(frozen=True)
class Stored:
    """What is in the store: its name, its size, and what was said about it."""

    name: str
    nuid: str
    size: int
    chunks: int
    digest: str
    about: dict[str, str]
    stored_at: str


class Transfer:
    def __init__(self, connection: Connection, cluster: str, replicas: int) -> None:
        self.connection = connection
        self.replicas = replicas
        self.bucket = f"HF_{cluster}_state"
        self.stream = f"OBJ_{self.bucket}"

    async def put(
        self, name: str, source: AsyncIterable[bytes], about: dict[str, str], on_progress: Progress = _ignore
    ) -> Stored:
        """Store what `source` yields under `name`. One that is there under that name stays until this one is whole."""
        await self._make()
        before = await self._note(name)
        nuid = random.randbytes(11).hex()
        subject = f"$O.{self.bucket}.C.{nuid}"
        digest = hashlib.sha256()
        size = chunks = 0
        window = _Window(self.connection)
        try:
            async for chunk in _chunks(source, min(CHUNK, self.connection.max_payload)):
                digest.update(chunk)
                await window.publish(subject, chunk)
                size += len(chunk)
                chunks += 1
                on_progress(size, 0)
            await window.wait_for_all()
            encoded = "SHA-256=" + base64.urlsafe_b64encode(digest.digest()).decode()
            now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
            stored = Stored(name, nuid, size, chunks, encoded, dict(about), now)
            note = {"name": name, "bucket": self.bucket, "nuid": nuid, "size": size, "mtime": now, "chunks": chunks}
            note |= {"digest": encoded, "metadata": about, "options": {"max_chunk_size": CHUNK}}
            await window.publish(self._subject(name), json.dumps(note).encode(), ROLLUP)
            await window.wait_for_all()
        except BaseException:
            with contextlib.suppress(HoldfastError):
                await window.wait_for_all()  # what is under way would come after the purge
            with contextlib.suppress(HoldfastError):
                await self._purge(subject)
            raise
        finally:
            window.close()
        if before is not None:
            await self._purge(f"$O.{self.bucket}.C.{before.nuid}")
        return stored

    async def find(self) -> list[Stored]:
        """All that are whole, the newest first."""
        try:
            body = {"subjects_filter": f"$O.{self.bucket}.M.>"}
            info = await self._ask(f"STREAM.INFO.{self.stream}", body)
        except _Absent:
            return []
        found = []
        for subject in info["state"].get("subjects") or ():
            stored = await self._note_at(subject)
            if stored is not None:
                found.append(stored)
        return sorted(found, key=lambda stored: stored.stored_at, reverse=True)

    async def get(self, stored: Stored, on_progress: Progress = _ignore) -> AsyncIterator[bytes]:
        """Its chunks. They are to be relied on when this has ended without an error: the digest is looked at last."""
        digest = hashlib.sha256()
        size = 0
        async for chunk in self._read(f"$O.{self.bucket}.C.{stored.nuid}", stored.chunks):
            digest.update(chunk)
            size += len(chunk)
            on_progress(size, stored.size)
            yield chunk
        encoded = "SHA-256=" + base64.urlsafe_b64encode(digest.digest()).decode()
        if (size, encoded) != (stored.size, stored.digest):
            raise StoreError(
                f"the state {stored.name!r} came out of the object store damaged: expected {stored.size} bytes with "
                f"{stored.digest}, got {size} with {encoded}"
            )

    async def remove(self, stored: Stored) -> None:
        await self._purge(self._subject(stored.name))
        await self._purge(f"$O.{self.bucket}.C.{stored.nuid}")

    async def keep_newest(self, count: int) -> None:
        for stored in (await self.find())[count:]:
            await self.remove(stored)

    async def _read(self, subject: str, count: int) -> AsyncIterator[bytes]:
        """Chunks by asking for a few at a time, so that whoever stores them sets the pace."""
        after = got = failures = 0
        while got < count:
            why = ""
            try:
                pull = _Pull(self.connection, self.stream, await self._consumer(subject, after))
            except NoAnswer as e:
                why = str(e)
                await asyncio.sleep(PAUSE_S)
            else:
                try:
                    async for sequence, chunk in pull.read(count - got):
                        after, failures = sequence, 0
                        got += 1
                        yield chunk
                finally:
                    pull.close()
                why = pull.why
            failures += 1
            if got < count and failures > ATTEMPTS:
                raise StoreError(f"chunk {got + 1} of {count} does not come: {why}")

    async def _consumer(self, subject: str, after: int) -> str:
        config = {"filter_subject": subject, "deliver_policy": "by_start_sequence", "opt_start_seq": after + 1}
        config |= {"ack_policy": "none", "mem_storage": True, "num_replicas": 1, "inactive_threshold": int(60e9)}
        body = {"stream_name": self.stream, "config": config}
        return str((await self._ask(f"CONSUMER.CREATE.{self.stream}", body, NEXT_S))["name"])

    def _subject(self, name: str) -> str:
        return f"$O.{self.bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"

    async def _note(self, name: str) -> Stored | None:
        return await self._note_at(self._subject(name))

    async def _note_at(self, subject: str) -> Stored | None:
        try:
            answer = await self._ask(f"STREAM.MSG.GET.{self.stream}", {"last_by_subj": subject})
        except _Absent:
            return None
        note: dict[str, Any] = json.loads(base64.b64decode(answer["message"]["data"]))
        if note.get("deleted"):
            return None
        about = {str(key): str(value) for key, value in (note.get("metadata") or {}).items()}
        size, chunks = int(note.get("size", 0)), int(note.get("chunks", 0))
        return Stored(note["name"], note["nuid"], size, chunks, note["digest"], about, answer["message"]["time"])

    async def _make(self) -> None:
        config = {
            "name": self.stream,
            "subjects": [f"$O.{self.bucket}.C.>", f"$O.{self.bucket}.M.>"],
            "num_replicas": self.replicas,
            "storage": "file",
            "discard": "new",
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }
        await self._ask(f"STREAM.CREATE.{self.stream}", config)

    async def _purge(self, subject: str) -> None:
        await self._ask(f"STREAM.PURGE.{self.stream}", {"filter": subject})

    async def _ask(self, what: str, body: dict[str, Any], timeout_s: float = ANSWER_S) -> dict[str, Any]:
        raw = await self.connection.request(f"$JS.API.{what}", json.dumps(body).encode(), timeout_s)
        answer: dict[str, Any] = json.loads(raw)
        error = answer.get("error")
        if error is None:
            return answer
        if error.get("err_code") in NOT_FOUND:
            raise _Absent(what)
        raise StoreError(f"the object store refuses {what}: {error.get('description')}")


class _Absent(StoreError):
    pass


class _Pull:
    """Messages of one consumer, for as long as none is missing."""

    def __init__(self, connection: Connection, stream: str, consumer: str) -> None:
        self.connection = connection
        self.stream = stream
        self.consumer = consumer
        self.why = ""
        self.arrived: asyncio.Queue[Message] = asyncio.Queue()
        self.inbox = connection.new_inbox()
        self.subscription = connection.subscribe(self.inbox, self.arrived.put_nowait)

    def close(self) -> None:
        self.connection.unsubscribe(self.subscription)
        self.connection.publish(f"$JS.API.CONSUMER.DELETE.{self.stream}.{self.consumer}", b"")

    async def read(self, count: int) -> AsyncIterator[tuple[int, bytes]]:
        asked = 0
        for number in range(1, count + 1):
            if asked < count and asked - number < WINDOW // 2:
                more = min(WINDOW, count - asked)
                ask = json.dumps({"batch": more, "expires": int(NEXT_S * 1e9)}).encode()
                self.connection.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.consumer}", ask, self.inbox)
                asked += more
            try:
                message = await asyncio.wait_for(self.arrived.get(), NEXT_S)
            except TimeoutError:
                self.why = f"nothing has come for {NEXT_S:g} s"
                return
            if message.status:
                self.why = message.description
                return
            position = position_of(message)
            if position.delivered != number:
                self.why = "one did not arrive"
                return
            yield position.sequence, message.payload


class _Window:
    """So many messages on their way, each of which has to be answered."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.inbox = connection.new_inbox()
        self.subscription = connection.subscribe(self.inbox, self._on_answer)
        self.under_way = 0
        self.error = ""
        self.answered = asyncio.Event()

    async def publish(self, subject: str, payload: bytes, headers: bytes = b"") -> None:
        await self._until(WINDOW - 1)
        if not self.connection.publish(subject, payload, self.inbox, headers):
            raise NoAnswer(f"no connection to a log server: {self.connection.why}")
        self.under_way += 1

    async def wait_for_all(self) -> None:
        await self._until(0)

    def close(self) -> None:
        self.connection.unsubscribe(self.subscription)

    async def _until(self, most: int) -> None:
        while self.under_way > most and not self.error:
            self.answered.clear()
            try:
                await asyncio.wait_for(self.answered.wait(), ANSWER_S)
            except TimeoutError:
                raise NoAnswer(f"the object store has not answered for {ANSWER_S:g} s") from None
        if self.error:
            raise StoreError(f"the object store refuses a chunk: {self.error}")

    def _on_answer(self, message: Message) -> None:
        self.under_way -= 1
        if message.status:
            self.error = "it has no leader"
        else:
            self.error = json.loads(message.payload).get("error", {}).get("description", "")
        self.answered.set()


async def _chunks(source: AsyncIterable[bytes], size: int) -> AsyncIterator[bytes]:
    """The same bytes in pieces of one size."""
    waiting: list[bytes] = []
    have = 0
    async for piece in source:
        waiting.append(piece)
        have += len(piece)
        if have >= size:
            joined = b"".join(waiting)
            end = have - have % size
            for start in range(0, end, size):
                yield joined[start : start + size]
            waiting, have = ([joined[end:]], have - end) if end < have else ([], 0)
    if have:
        yield b"".join(waiting)
