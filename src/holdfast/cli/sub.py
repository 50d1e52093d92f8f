"""`holdfast sub`: subscribe and print what arrives, with mosquitto_sub's flags."""

import asyncio
import os
import random
import signal
import sys
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from holdfast.broker.topics import ANY_LEVELS, is_valid_filter, matches, split_share
from holdfast.cli import client_options as shared
from holdfast.cli.client_options import TIMED_OUT, complain, run
from holdfast.cli.client_properties import PropertyCommand
from holdfast.cli.message_format import Moment, PayloadNotJson, compile_format, render
from holdfast.client.client import Answer, Client
from holdfast.client.endpoint import TlsOptions
from holdfast.errors import ProtocolError, UsageError
from holdfast.protocol.mqtt.packets import V5, Publish, SubscriptionRequest
from holdfast.protocol.mqtt.properties import Properties
from holdfast.protocol.mqtt.reasons import SUBSCRIBE_FAILURE_311, reason_name

COMMAND_CLASS: Final = PropertyCommand
COMMANDS: Final = ("connect", "subscribe", "unsubscribe", "disconnect", "will")
SETTLED_S: Final = 0.5  # how long nothing comes before all retained messages count as removed


@dataclass(frozen=True)
class Job:
    """What to subscribe to, what to do with what comes, and when to stop."""

    requests: list[SubscriptionRequest]
    unsubscribe: list[bytes]
    filter_out: list[list[bytes]]  # as levels
    properties: dict[str, Properties]
    count: int  # 0 = no limit
    timeout_s: float | None
    exit_after_subscribe: bool
    no_retained: bool
    retained_only: bool
    remove_retained: bool
    share_percent: float
    quiet: bool


def sub(
    topics: Annotated[list[str] | None, typer.Option("-t", "--topic", help="Topic filter; can be repeated.")] = None,
    qos: Annotated[int, typer.Option("-q", "--qos", min=0, max=2, help="Quality of service.")] = 0,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print the topic before the message.")] = False,
    template: Annotated[
        str | None,
        typer.Option("-F", metavar="FORMAT", help="Output format: %t topic, %p payload, %j JSON and more."),
    ] = None,
    pretty: Annotated[bool, typer.Option("--pretty", help="Indent the JSON of %j and %J.")] = False,
    no_newline: Annotated[bool, typer.Option("-N", help="No newline after each message.")] = False,
    count: Annotated[int | None, typer.Option("-C", min=1, help="Stop after this many messages.")] = None,
    timeout: Annotated[
        float | None, typer.Option("-W", min=0.001, help="Stop after this many seconds, with exit code 27.")
    ] = None,
    exit_after_subscribe: Annotated[bool, typer.Option("-E", help="Exit once subscribed.")] = False,
    no_retained: Annotated[bool, typer.Option("-R", help="Do not print retained messages.")] = False,
    retained_only: Annotated[
        bool, typer.Option("--retained-only", help="Print retained messages only; exit at the first other one.")
    ] = False,
    remove_retained: Annotated[
        bool,
        typer.Option("--remove-retained", help="Delete each retained message received, except those excluded by -T."),
    ] = False,
    retain_as_published: Annotated[
        bool, typer.Option("--retain-as-published", help="Keep the publisher's RETAIN flag (MQTT 5).")
    ] = False,
    retain_handling: Annotated[
        int,
        typer.Option(
            "--retain-handling",
            min=0,
            max=2,
            help="Retain Handling (MQTT 5): 0 send retained, 1 only if the subscription is new, 2 none.",
        ),
    ] = 0,
    no_local: Annotated[
        bool, typer.Option("--no-local", help="Do not receive this client's own messages (MQTT 5).")
    ] = False,
    filter_out: Annotated[
        list[str] | None, typer.Option("-T", "--filter-out", help="Ignore messages that match; can be repeated.")
    ] = None,
    unsubscribe: Annotated[
        list[str] | None, typer.Option("-U", "--unsubscribe", help="Unsubscribe from this filter; can be repeated.")
    ] = None,
    random_filter: Annotated[
        float, typer.Option("--random-filter", min=0.1, max=100, help="Print only this percentage of messages.")
    ] = 100.0,
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
    Subscribe and print messages, with mosquitto_sub's flags.

    Reconnects if the connection is lost. The exit code is 0 after Ctrl-C or SIGTERM, 27 after the timeout of -W, and
    the broker's reason code after a refusal.

    Examples:

        holdfast sub -t 'home/#' -v

        holdfast sub -t 'home/+/temperature' -q 1 -C 10 -F '%I %t %p'

        holdfast sub -t '#' --retained-only -W 5 -F %j

        holdfast sub -t 'old/#' --remove-retained --retained-only -W 2

        holdfast sub -L ws://broker.example:8083/mqtt -t '$SYS/#' -v
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
    target = shared.resolve(flags, COMMANDS, reconnect=True)
    if no_retained and retained_only:
        raise UsageError("-R and --retained-only leave nothing to print, expected one of them")
    if (retain_as_published or retain_handling or no_local) and target.options.version != V5:
        raise UsageError("--retain-as-published, --retain-handling and --no-local need MQTT 5: -V 5")
    names = [*([target.topic] if target.topic is not None else []), *(topics or [])]
    if not names and not unsubscribe:
        raise UsageError("no topic filter given: -t FILTER")
    job = Job(
        [
            SubscriptionRequest(check_filter(name), qos, no_local, retain_as_published, retain_handling)
            for name in names
        ],
        [check_filter(name) for name in unsubscribe or []],
        [check_filter(name).split(b"/") for name in filter_out or []],
        target.properties,
        count or 0,
        timeout,
        exit_after_subscribe,
        no_retained,
        retained_only,
        remove_retained,
        random_filter,
        quiet,
    )
    printer = Printer(template, verbose, pretty, b"" if no_newline else b"\n", quiet)
    run(_subscribe(Client(target.endpoint, target.options), job, printer), quiet)


def check_filter(name: str) -> bytes:
    """The filter's bytes. Raises UsageError when it is not one."""
    topic_filter = shared.encode_name(name)
    try:
        plain = split_share(topic_filter)[1] if topic_filter.startswith(b"$share/") else topic_filter
    except ProtocolError as error:
        raise UsageError(f"topic filter {name!r}: {error}") from error
    if not is_valid_filter(plain, ANY_LEVELS):
        raise UsageError(f"topic filter is {name!r}, expected + alone in its level and # alone in the last one")
    return topic_filter


class Printer:
    """Messages on standard output, as -v, -F and -N want them."""

    def __init__(self, template: str | None, verbose: bool, pretty: bool, line_end: bytes, quiet: bool) -> None:
        self._parts = None if template is None else compile_format(template, pretty)
        self._verbose = verbose
        self._line_end = line_end
        self._quiet = quiet
        self._output = sys.stdout.buffer

    def show(self, message: Publish) -> None:
        if self._parts is not None:
            try:
                line = render(self._parts, message, Moment())
            except PayloadNotJson as error:
                complain(str(error), self._quiet)
                return
        elif self._verbose:
            line = message.topic + b" " + (message.payload or b"(null)")
        elif message.payload:
            line = message.payload
        else:
            return
        self._output.write(line + self._line_end)

    def flush(self) -> None:
        self._output.flush()


async def _subscribe(client: Client, job: Job, printer: Printer) -> int:
    await client.connect()
    listener = Listener(client, job, printer)
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        async with asyncio.timeout(job.timeout_s):
            return await listener.run()
    except TimeoutError:
        complain(f"timed out after {job.timeout_s:g} s", job.quiet)
        return TIMED_OUT
    except asyncio.CancelledError:
        return 0
    except BrokenPipeError:
        # The reader of the output has seen enough; Python would complain again when it closes the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        await listener.finish_removals()
        await client.disconnect(0, job.properties.get("disconnect"))


class Listener:
    def __init__(self, client: Client, job: Job, printer: Printer) -> None:
        self._client = client
        self._job = job
        self._printer = printer
        self._removals: set[asyncio.Future[Answer]] = set()
        self._echoes: set[bytes] = set()  # removed topics whose removal has not come back to us yet
        self._all_echoed = False
        self._shown = 0

    async def run(self) -> int:
        """Runs until something ends it, and returns the exit code."""
        refusal = await self._subscribe()
        if refusal or self._job.exit_after_subscribe:
            return refusal
        while await self._on_message(await self._next()):
            if not self._client.waiting:
                self._printer.flush()
        self._printer.flush()
        return 0

    async def _next(self) -> Publish | None:
        """Returns the next message; `None` when all that was to be removed is removed and nothing more comes."""
        if not self._all_echoed:
            return await self._client.receive()
        try:
            return await asyncio.wait_for(self._client.receive(), SETTLED_S)
        except TimeoutError:
            return None

    async def finish_removals(self) -> None:
        """Gives removals that are under way a moment to be acknowledged."""
        if self._removals:
            await asyncio.wait(self._removals, timeout=5.0)

    async def _subscribe(self) -> int:
        job = self._job
        if job.unsubscribe:
            await self._client.unsubscribe(job.unsubscribe, job.properties.get("unsubscribe"))
        if not job.requests:
            return 0
        answer = await self._client.subscribe(job.requests, job.properties.get("subscribe"))
        refused = [
            (request.topic_filter.decode(), reason)
            for request, reason in zip(job.requests, answer.reasons, strict=False)
            if reason >= 0x80
        ]
        for topic_filter, reason in refused:
            why = reason_name(reason)
            if reason == SUBSCRIBE_FAILURE_311:  # the only code that 3.1.1 has for it
                why = "it gave no reason; mostly it is that the access rules do not allow it"
            complain(f"the broker refused the subscription to {topic_filter}: {why}", job.quiet)
        return refused[0][1] if len(refused) == len(job.requests) else 0

    async def _on_message(self, message: Publish | None) -> bool:
        """Shows or leaves out a message, and returns whether to go on after it."""
        job = self._job
        if message is None:
            return False
        if job.retained_only and not message.retain:
            return self._is_own_echo(message)
        if job.filter_out:
            levels = message.topic.split(b"/")
            if any(matches(topic_filter, levels) for topic_filter in job.filter_out):
                return True
        if job.remove_retained and message.retain:
            await self._remove(message.topic)
        if job.no_retained and message.retain:
            return True
        if job.share_percent < 100 and random.uniform(0, 100) > job.share_percent:
            return True
        self._printer.show(message)
        self._shown += 1
        return self._shown != job.count

    def _is_own_echo(self, message: Publish) -> bool:
        """Whether a live message is one of our removals coming back.

        Such a message does not mean that the retained ones are over: a broker may send live messages in between.
        """
        if message.payload or message.topic not in self._echoes:
            return False
        self._echoes.discard(message.topic)
        self._all_echoed = not self._echoes
        return True

    async def _remove(self, topic: bytes) -> None:
        answer = await self._client.send(Publish(topic, b"", 1, True))
        assert answer is not None
        self._echoes.add(topic)
        self._all_echoed = False
        self._removals.add(answer)
        answer.add_done_callback(self._removals.discard)
