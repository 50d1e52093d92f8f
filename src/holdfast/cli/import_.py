"""`holdfast import`: messages, sessions, users, rules and settings of another broker."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from holdfast.cli.retained_options import DEFAULT_URL, Key
from holdfast.errors import StoreError, UsageError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from holdfast.migration.destination import Destination
    from holdfast.migration.inventory import Inventory
    from holdfast.migration.live_broker import LiveBroker
    from holdfast.net.driver import Driver

INCOMPLETE = 1
LIVE = ("mqtt://", "mqtts://", "tcp://", "tls://", "ws://", "wss://")
HTTP = ("http://", "https://")

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A file (mosquitto.db, mosquitto.sqlite3, mosquitto.conf, a password, access or dynamic security file, an "
        "export of EMQX's), a broker (mqtt://HOST, mqtts://HOST), or EMQX's API (http://HOST:18083).",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Into a data folder that no broker runs on; made where there is none."),
]
Url = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="HOLDFAST_URL",
        help="Into a running broker: its HTTP listener, or mqtt:// for MQTT.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would come and what would not.")]
Replace = Annotated[bool, typer.Option("--replace", help="Also where something else is there now.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="Where settings go; users and rules stand beside it.")
]
Owner = Annotated[
    str | None,
    typer.Option(
        "--owner",
        metavar="NAME",
        help="Whose sessions they are, where the file does not say (mosquitto.db before version 6); '' for clients "
        "that do not log in.",
    ),
]
As = Annotated[
    str | None, typer.Option("--as", metavar="FORMAT", help="The format of the file, if it is not recognised.")
]
FromKey = Annotated[
    str,
    typer.Option(
        "--from-key",
        metavar="NAME:SECRET",
        envvar="HOLDFAST_FROM_KEY",
        help="What the source asks for: EMQX's API key, or a user and password of a live broker.",
    ),
]
Filter = Annotated[str, typer.Option("--filter", metavar="FILTER", help="Only these topics, of a live broker.")]
Walk = Annotated[
    bool, typer.Option("--walk", help="Ask a live broker in many small parts, if it cuts large snapshots.")
]
Quiet = Annotated[
    float, typer.Option("--quiet", metavar="SECONDS", min=0.1, help="A live broker is done when silent for so long.")
]
Passes = Annotated[
    int, typer.Option("--passes", metavar="N", min=2, max=1000, help="Read at most so often until two readings agree.")
]
Cafile = Annotated[str | None, typer.Option("--cafile", metavar="FILE", help="Whom to trust with mqtts:// (PEM).")]
Cert = Annotated[str | None, typer.Option("--cert", metavar="FILE", help="Own certificate for mqtts:// (PEM).")]
CertKey = Annotated[str | None, typer.Option("--cert-key", metavar="FILE", help="Its private key (PEM).")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Do not ask for the name on the certificate.")]


def import_(
    source: Source,
    data: Data = None,
    url: Url = DEFAULT_URL,
    key: Key = "",
    dry_run: DryRun = False,
    replace: Replace = False,
    output: Output = Path("holdfast.toml"),
    owner: Owner = None,
    as_: As = None,
    from_key: FromKey = "",
    topic_filter: Filter = "#",
    walk: Walk = False,
    quiet: Quiet = 2.0,
    passes: Passes = 6,
    cafile: Cafile = None,
    cert: Cert = None,
    cert_key: CertKey = None,
    insecure: Insecure = False,
    as_json: AsJson = False,
) -> None:
    """
    Move in from another broker.

    Takes retained messages, sessions with their subscriptions and queued messages, users with their passwords, access
    rules and settings, as far as the source has them, and prints a table of what comes, what does not, and why. Nothing
    that is there is overwritten without `--replace`, and a second run changes nothing. Messages go into a data folder
    (`--data`) or a running broker (`--url`); sessions into a folder only. Settings become a new file (`--output`), with
    `passwords` and `access` beside it.

    The exit code is 0 when all that can come is there, 1 when something was damaged, refused, or something else was in
    its place, 2 when the command line is wrong.

    Examples:

        holdfast import /var/lib/mosquitto/mosquitto.db --data ./data --dry-run

        holdfast import /etc/mosquitto/mosquitto.conf --output holdfast.toml

        HOLDFAST_FROM_KEY=admin:secret holdfast import mqtts://old.example --cafile ca.pem --data ./data

        holdfast import http://emqx.example:18083 --from-key NAME:SECRET --url http://127.0.0.1:18083
    """
    tls = (cafile, cert, cert_key, insecure)
    patience = (quiet, passes, walk, topic_filter)
    if source.startswith(LIVE):
        with Bar("reading") as bar:
            found = asyncio.run(read_live(source, patience, tls, from_key, bar))
    elif source.startswith(HTTP):
        found = read_emqx(source, from_key, passes)
    else:
        found_or_none = read_path(Path(source), as_, owner, output, replace, dry_run, as_json)
        if found_or_none is None:
            return
        found = found_or_none
    finish(found, destination_of(data, url, key, patience, tls), replace, dry_run, as_json)


Patient = tuple[float, int, bool, str]
Tls = tuple[str | None, str | None, str | None, bool]


def finish(found: "Inventory", destination: "Destination", replace: bool, dry_run: bool, as_json: bool) -> NoReturn:
    from holdfast.cli.import_display import print_inventory

    with Bar("importing") as bar:
        outcome = asyncio.run(destination.put(found, replace, dry_run, bar.show))
    print_inventory(found, outcome, dry_run, as_json)
    raise typer.Exit(0 if outcome.complete and not found.damage else INCOMPLETE)


def read_path(
    path: Path, as_: str | None, owner: str | None, output: Path, replace: bool, dry_run: bool, as_json: bool
) -> "Inventory | None":
    """The inventory of a file with messages; None when it was one with settings, which is done with then."""
    from holdfast.migration import emqx_archive, formats, mosquitto_db, mosquitto_sqlite

    if as_ is not None and as_ not in formats.FORMATS:
        raise typer.BadParameter(f"expected one of {', '.join(formats.FORMATS)}, got {as_!r}", param_hint="--as")
    name = as_ or formats.format_of(path)
    if name == formats.MOSQUITTO_DB:
        return mosquitto_db.read_file(path, owner, now_ms())
    if name == formats.MOSQUITTO_SQLITE:
        return mosquitto_sqlite.read_file(path, owner, now_ms())
    if name == formats.EMQX_ARCHIVE:
        return emqx_archive.read_file(path, now_ms())
    put_settings(path, name, output, replace, dry_run, as_json)
    return None


def put_settings(path: Path, name: str, output: Path, replace: bool, dry_run: bool, as_json: bool) -> None:
    from holdfast.cli.import_display import print_settings
    from holdfast.migration import formats
    from holdfast.migration.dynamic_security import add_dynamic_security, parse
    from holdfast.migration.mosquitto_conf import read_conf
    from holdfast.migration.mosquitto_users import add_access, add_users, read_text
    from holdfast.migration.settings_files import OTHER, FoundSettings, files_of, merge_users, password_file, put_file

    if name == formats.MOSQUITTO_CONF:
        found = read_conf(path)
    else:
        found = FoundSettings(str(path))
        text = read_text(path)
        if name == formats.PASSWORDS:
            add_users(found, text, path.name)
        elif name == formats.ACCESS:
            add_access(found, text, path.name)
        else:
            add_dynamic_security(found, parse(text, str(path)), path.name)
    other_passwords = merge_users(found, password_file(output), replace)
    files = files_of(found, output)
    if name in (formats.PASSWORDS, formats.ACCESS) and output.exists():
        # Settings that are there are not taken back for the sake of a user or a rule.
        config, *files = files
        found.notes += [f"{output} stays as it is, and needs: {line}" for line in config.lines if "_file = " in line]
    # All or nothing: a configuration that names a file with other users than it was made for says something else.
    became = [(file, put_file(file, replace or file.what == "users", True)) for file in files]
    kept = any(end == OTHER for _, end in became)
    if not kept and not dry_run:
        for file in reversed(files):
            put_file(file, replace or file.what == "users", False)
        found.notes += problems_of_file(output)
    print_settings(found, became, dry_run, as_json)
    if kept or other_passwords:
        raise typer.Exit(INCOMPLETE)


def problems_of_file(config: Path) -> list[str]:
    """What `holdfast check-config` would say of it, such as a certificate that is not where it was."""
    from holdfast.config import ConfigError, load

    try:
        load(config, environ={})
    except ConfigError as error:
        return [f"check-config says: {line}" for line in str(error).splitlines()]
    return []


def destination_of(data: Path | None, url: str, key: str, patience: Patient, tls: Tls) -> "Destination":
    from holdfast.migration.destination import ApiBroker, FolderDestination, LiveDestination

    if data is not None:
        return FolderDestination(data, open_folder, now_ms)
    if url.startswith(HTTP):
        from holdfast.cli.retained_source import ApiSource

        return LiveDestination(ApiBroker(ApiSource(url, key)), now_ms)
    quiet_s, passes, walk, _ = patience
    return LiveDestination(live_broker(url, (quiet_s, passes, walk, "#"), tls, key), now_ms)


@asynccontextmanager
async def open_folder(root: Path) -> AsyncIterator["Driver"]:
    from holdfast.server import open_offline

    async with AsyncExitStack() as stack:
        try:
            driver = await stack.enter_async_context(open_offline(root, begin_history=True))
        except StoreError as error:
            raise UsageError(f"{error}; stop it, or import into it with --url instead of --data") from None
        yield driver


def live_broker(url: str, patience: Patient, tls: Tls, login: str) -> "LiveBroker":
    from holdfast.client.endpoint import TlsOptions
    from holdfast.migration.live_broker import LiveBroker, Patience
    from holdfast.service.requests import check_filter

    quiet_s, passes, walk, topic_filter = patience
    check_filter(topic_filter)
    cafile, cert, cert_key, insecure = tls
    options = TlsOptions(cafile=cafile, cert=cert, key=cert_key, insecure=insecure)
    return LiveBroker(url, Patience(quiet_s, passes, walk, topic_filter), options, now_ms, login)


async def read_live(url: str, patience: Patient, tls: Tls, login: str, bar: "Bar") -> "Inventory":
    from holdfast.migration.live_broker import read_broker

    broker = live_broker(url, patience, tls, login)
    broker.on_progress = lambda what, count: bar.show(what, count, 0)
    return await read_broker(broker, now_ms())


def read_emqx(url: str, key: str, passes: int) -> "Inventory":
    from holdfast.migration.emqx_api import EmqxApi, read_api

    api = EmqxApi(url, key)
    try:
        with Bar("reading") as bar:
            return read_api(api, passes, now_ms(), lambda what, count: bar.show(what, count, 0))
    finally:
        api.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Bar:
    """A progress bar on standard error, where that is a terminal, and gone when the work is done."""

    def __init__(self, what: str) -> None:
        from holdfast.cli.retained_display import notes, progress

        self.is_seen = notes.is_terminal
        self.bars: Progress = progress()
        self.task: TaskID = self.bars.add_task(what, total=None)

    def __enter__(self) -> "Bar":
        if self.is_seen:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_seen:
            self.bars.stop()

    def show(self, what: str, count: int, total: int) -> None:
        self.bars.update(self.task, description=what, completed=count, total=total or None)
