"""`holdfast pub`: publish messages, with mosquitto_pub's flags.

Standard input may be a pipe, a file or a terminal. A thread of its own reads it, because a regular file cannot be
waited for by the event loop, and it is a daemon, because a read from a terminal that nobody types on must not keep the
program alive.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.cli import client_options as shared
from holdfast.cli.client_options import complain, run
from holdfast.cli.client_properties import PropertyCommand
from holdfast.client.client import Answer, Client
from holdfast.client.connection import explained
from holdfast.client.endpoint import TlsOptions
from holdfast.errors import UsageError
from holdfast.protocol.mqtt.packets import Ack, Publish
from holdfast.protocol.mqtt.properties import Properties
from holdfast.protocol.mqtt.reasons import reason_name

COMMAND_CLASS: Final = PropertyCommand
COMMANDS: Final = ("connect", "publish", "disconnect", "will")
CHUNK: Final = 1 << 16
AHEAD: Final = 4  # chunks read before somebody wants them


@dataclass(frozen=True)
class Job:
    """What to publish, and how often."""

    topic: bytes
    qos: int
    retain: bool
    properties: Properties | None
    payload: bytes | None  # None: the lines of standard input
    repeat: int
    repeat_delay_s: float


def pub(
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Topic to publish to.")] = None,
    message: Annotated[str | None, typer.Option("-m", "--message", help="The message.")] = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", help="Send this file as the message.")] = None,
    stdin_line: Annotated[bool, typer.Option("-l", "--stdin-line", help="Send each line of stdin.")] = False,
    stdin_file: Annotated[bool, typer.Option("-s", "--stdin-file", help="Send all of stdin as one message.")] = False,
    null_message: Annotated[bool, typer.Option("-n", "--null-message", help="Send an empty message.")] = False,
    qos: Annotated[int, typer.Option("-q", "--qos", min=0, max=2, help="Quality of service.")] = 0,
    retain: Annotated[bool, typer.Option("-r", "--retain", help="Retain the message.")] = False,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Send the message this many times.")] = 1,
    repeat_delay: Annotated[float, typer.Option("--repeat-delay", min=0, help="Seconds between repeats.")] = 0.0,
    max_inflight: Annotated[
        int, typer.Option("-M", "--max-inflight", min=1, max=65535, help="Maximum unacknowledged messages.")
    ] = 20,
    debug: shared.Debug = False,
    quiet: shared.Quiet = False,
    host: shared.Host = None,
    port: shared.Port = None,
    url: shared.Url = None,
    unix: shared.Unix = None,
    bind: shared.Bind = None,
    nodelay: shared.NoDelay = False,
    keep_alive: shared.KeepAlive = 60,
    version: shared.Version = None,
    property_words: shared.PropertyWords = None,
    username: shared.Username = None,
    password: shared.Password = None,
    client_id: shared.ClientId = None,
    client_id_prefix: shared.ClientIdPrefix = None,
    keep_session: shared.KeepSession = False,
    session_expiry: shared.SessionExpiry = None,
    will_topic: shared.WillTopic = None,
    will_payload: shared.WillPayload = None,
    will_qos: shared.WillQos = None,
    will_retain: shared.WillRetain = False,
    cafile: shared.CaFile = None,
    capath: shared.CaPath = None,
    cert: shared.Cert = None,
    key: shared.Key = None,
    insecure: shared.Insecure = False,
    ciphers: shared.Ciphers = None,
    tls_version: shared.TlsVersion = None,
    tls_alpn: shared.TlsAlpn = None,
    os_certs: shared.OsCerts = False,
) -> None:
    """
    Publish messages, with mosquitto_pub's flags.

    Use exactly one of -m, -f, -l, -s and -n. At QoS 1 and 2 the command waits until the broker has acknowledged
    everything; the exit code is 0, or the reason code if a message was refused.

    Examples:

        holdfast pub -t home/kitchen/temperature -m 21.5 -r

        holdfast pub -t home/kitchen/temperature -r -n

        tail -f sensor.log | holdfast pub -h broker.example -q 1 -t logs/sensor -l

        holdfast pub -t a -m hi -D publish content-type text/plain -D publish user-property from me

        holdfast pub -L mqtts://me:secret@broker.example/alarm --cafile ca.pem -m fire
    """
    tls = TlsOptions(cafile, capath, cert, key, insecure, ciphers, tls_version, tls_alpn)
    flags = shared.Flags(
        host,
        port,
        url,
        unix,
        bind,
        keep_alive,
        version,
        property_words,
        username,
        password,
        client_id,
        client_id_prefix,
        keep_session,
        session_expiry,
        will_topic,
        will_payload,
        will_qos,
        will_retain,
        tls,
        os_certs,
        debug,
    )
    target = shared.resolve(flags, COMMANDS, max_inflight)
    name = topic if topic is not None else target.topic
    if name is None:
        raise UsageError("no topic given: -t TOPIC")
    payload = _payload(message, file, stdin_line, stdin_file, null_message)
    properties = target.properties
    job = Job(shared.check_topic(name), qos, retain, properties.get("publish"), payload, repeat, repeat_delay)
    run(_publish(Client(target.endpoint, target.options), job, properties.get("disconnect"), quiet), quiet)


def _payload(message: str | None, file: Path | None, line: bool, whole: bool, null: bool) -> bytes | None:
    """The message; `None` when each line of standard input is to be one."""
    given = [
        name
        for name, present in {
            "-m": message is not None,
            "-f": file is not None,
            "-l": line,
            "-s": whole,
            "-n": null,
        }.items()
        if present
    ]
    if len(given) != 1:
        raise UsageError(f"{' and '.join(given) or 'nothing'} given, expected one of -m, -f, -l, -s and -n")
    if message is not None:
        return os.fsencode(message)
    if file is not None:
        try:
            return file.read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read {file}: {(error.strerror or str(error)).lower()}") from error
    if whole:
        return sys.stdin.buffer.read()
    return None if line else b""


async def _publish(client: Client, job: Job, farewell: Properties | None, quiet: bool) -> int:
    publisher = Publisher(client, job, quiet)
    await client.connect()
    try:
        lost = asyncio.create_task(client.lost())
        work = asyncio.create_task(publisher.send_all())
        await asyncio.wait((lost, work), return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
        if not work.done():
            work.cancel()
            await lost
        await work
    finally:
        await client.disconnect(0, farewell)
    return publisher.refusal


class Publisher:
    def __init__(self, client: Client, job: Job, quiet: bool) -> None:
        self.refusal = 0  # the last reason code of 0x80 or above
        self._client = client
        self._job = job
        self._quiet = quiet
        self._pending: set[asyncio.Future[Answer]] = set()
        self._topic = job.topic

    async def send_all(self) -> None:
        async for payload in self._payloads():
            await self._send(payload)
        if self._pending:
            await asyncio.wait(self._pending)

    async def _payloads(self) -> AsyncIterator[bytes]:
        job = self._job
        if job.payload is None:
            async for line in stdin_lines():
                yield line
            return
        for count in range(job.repeat):
            if count and job.repeat_delay_s:
                if self._pending:
                    await asyncio.wait(self._pending)
                await asyncio.sleep(job.repeat_delay_s)
            yield job.payload

    async def _send(self, payload: bytes) -> None:
        job = self._job
        answer = await self._client.send(Publish(self._topic, payload, job.qos, job.retain, False, 0, job.properties))
        if job.properties is not None and job.properties.topic_alias is not None:
            self._topic = b""  # the server knows the alias now
        if answer is not None:
            self._pending.add(answer)
            answer.add_done_callback(self._on_answer)

    def _on_answer(self, answer: asyncio.Future[Answer]) -> None:
        self._pending.discard(answer)
        if answer.cancelled() or answer.exception() is not None:
            return
        ack = answer.result()
        assert isinstance(ack, Ack)
        if ack.reason >= 0x80:
            self.refusal = ack.reason
            why = explained(reason_name(ack.reason), ack.properties)
            complain(f"the broker refused message {ack.packet_id}: {why}", self._quiet)


async def stdin_chunks(descriptor: int = 0) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue(AHEAD)

    def read() -> None:
        # A closed loop means that nobody wants the rest.
        with contextlib.suppress(RuntimeError):
            while True:
                data = os.read(descriptor, CHUNK)
                asyncio.run_coroutine_threadsafe(queue.put(data), loop).result()
                if not data:
                    return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while data := await queue.get():
        yield data


async def stdin_lines(descriptor: int = 0) -> AsyncIterator[bytes]:
    """Each line without its end; the last one also without one."""
    rest = b""
    async for data in stdin_chunks(descriptor):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line
    if rest:
        yield rest
