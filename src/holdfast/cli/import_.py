"""`holdfast import`: messages, sessions, users, rules and settings of another broker."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from holdfast.cli.import_display import print_inventory, print_settings
from holdfast.cli.retained_display import notes, progress
from holdfast.cli.retained_options import DEFAULT_URL, Key
from holdfast.cli.retained_source import ApiSource
from holdfast.client.endpoint import TlsOptions
from holdfast.config import ConfigError, load
from holdfast.errors import StoreError, UsageError
from holdfast.migration import emqx_archive, formats, mosquitto_db, mosquitto_sqlite
from holdfast.migration.destination import ApiBroker, Destination, FolderDestination, LiveDestination
from holdfast.migration.dynamic_security import add_dynamic_security, parse
from holdfast.migration.emqx_api import EmqxApi, read_api
from holdfast.migration.inventory import Inventory
from holdfast.migration.live_broker import LiveBroker, Patience, read_broker
from holdfast.migration.mosquitto_conf import read_conf
from holdfast.migration.mosquitto_users import add_access, add_users, read_text
from holdfast.migration.settings_files import OTHER, FoundSettings, files_of, merge_users, password_file, put_file
from holdfast.service.requests import check_filter

if TYPE_CHECKING:
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
    typer.Option(
        "--data", metavar="DIR", help="Import into a data folder that no broker is using; created if it does not exist."
    ),
]
Url = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="HOLDFAST_URL",
        help="Import into a running broker: its HTTP listener, or mqtt:// for MQTT.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be imported and what would not.")]
Replace = Annotated[bool, typer.Option("--replace", help="Also replace what is already there.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Output = Annotated[
    Path,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Where to write the settings; users and rules are written next to it."
    ),
]
Owner = Annotated[
    str | None,
    typer.Option(
        "--owner",
        metavar="NAME",
        help="Owner of the sessions if the file does not name one (mosquitto.db before version 6); '' for anonymous "
        "clients.",
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
        help="Credentials for the source: an EMQX API key, or a user name and password of a live broker.",
    ),
]
Filter = Annotated[str, typer.Option("--filter", metavar="FILTER", help="Only these topics (live broker).")]
Walk = Annotated[
    bool, typer.Option("--walk", help="Query a live broker in many small parts, in case it truncates large sets.")
]
Quiet = Annotated[
    float,
    typer.Option(
        "--quiet",
        metavar="SECONDS",
        min=0.1,
        help="A live broker has sent everything when it has been silent for this long.",
    ),
]
Passes = Annotated[
    int,
    typer.Option(
        "--passes", metavar="N", min=2, max=1000, help="Read at most this many times until two readings agree."
    ),
]
Cafile = Annotated[
    str | None, typer.Option("--cafile", metavar="FILE", help="Trusted certificates for mqtts:// (PEM).")
]
Cert = Annotated[str | None, typer.Option("--cert", metavar="FILE", help="Client certificate for mqtts:// (PEM).")]
CertKey = Annotated[str | None, typer.Option("--cert-key", metavar="FILE", help="Its private key (PEM).")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Do not verify the host name in the certificate.")]


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
    Import from another broker.

    Imports retained messages, sessions with their subscriptions and queued messages, users with their passwords, access
    rules and settings, as far as the source has them, and prints a table of what is imported, what is not, and why.
    Nothing is overwritten without `--replace`, and a second run changes nothing. Messages go into a data folder
    (`--data`) or a running broker (`--url`); sessions into a folder only. Settings become a new file (`--output`), with
    `passwords` and `access` beside it.

    The exit code is 0 if everything that can be imported is there, 1 if something was damaged, refused or already taken
    by something else, 2 for a usage error.

    Examples:

        holdfast import /var/lib/mosquitto/mosquitto.db --data ./data --dry-run

        holdfast import /etc/mosquitto/mosquitto.conf --output holdfast.toml

        HOLDFAST_FROM_KEY=admin:secret holdfast import mqtts://old.example --cafile ca.pem --data ./data

        holdfast import http://emqx.example:18083 --from-key NAME:SECRET --url http://127.0.0.1:18083
    """
    check_filter(topic_filter)
    tls = TlsOptions(cafile=cafile, cert=cert, key=cert_key, insecure=insecure)
    patience = Patience(quiet, passes, walk, topic_filter)
    if source.startswith(LIVE):
        found = read_live(LiveBroker(source, patience, tls, now_ms, from_key))
    elif source.startswith(HTTP):
        found = read_emqx(EmqxApi(source, from_key), passes)
    else:
        path = Path(source)
        format_ = format_of(path, as_)
        if format_ not in formats.WITH_MESSAGES:
            put_settings(settings_in(path, format_), format_, output, replace, dry_run, as_json)
        found = messages_in(path, format_, owner)
    to: Destination
    if data is not None:
        to = FolderDestination(data, open_folder, now_ms)
    elif url.startswith(HTTP):
        to = LiveDestination(ApiBroker(ApiSource(url, key)), now_ms)
    else:
        to = LiveDestination(LiveBroker(url, Patience(quiet, passes, walk), tls, now_ms, key), now_ms)
    put_messages(found, to, replace, dry_run, as_json)


def format_of(path: Path, given: str | None) -> str:
    if given is None:
        return formats.format_of(path)
    if given not in formats.FORMATS:
        raise typer.BadParameter(f"expected one of {', '.join(formats.FORMATS)}, got {given!r}", param_hint="--as")
    return given


def messages_in(path: Path, format_: str, owner: str | None) -> Inventory:
    if format_ == formats.MOSQUITTO_DB:
        return mosquitto_db.read_file(path, owner, now_ms())
    if format_ == formats.MOSQUITTO_SQLITE:
        return mosquitto_sqlite.read_file(path, owner, now_ms())
    return emqx_archive.read_file(path, now_ms())


def read_live(broker: LiveBroker) -> Inventory:
    with Bar("reading") as bar:
        broker.on_progress = bar.show
        return asyncio.run(read_broker(broker, now_ms()))


def read_emqx(api: EmqxApi, passes: int) -> Inventory:
    try:
        with Bar("reading") as bar:
            return read_api(api, passes, now_ms(), bar.show)
    finally:
        api.close()


def put_messages(found: Inventory, to: Destination, replace: bool, dry_run: bool, as_json: bool) -> NoReturn:
    with Bar("importing") as bar:
        outcome = asyncio.run(to.put(found, replace, dry_run, bar.show))
    print_inventory(found, outcome, dry_run, as_json)
    raise typer.Exit(0 if outcome.complete and not found.damage else INCOMPLETE)


@asynccontextmanager
async def open_folder(root: Path) -> AsyncIterator["Driver"]:
    """A broker on the folder. It is loaded only here: looking needs none."""
    from holdfast.server import open_offline

    async with AsyncExitStack() as stack:
        try:
            driver = await stack.enter_async_context(open_offline(root, begin_history=True))
        except StoreError as error:
            raise UsageError(f"{error}; stop it, or import into it with --url instead of --data") from None
        yield driver


def settings_in(path: Path, format_: str) -> FoundSettings:
    if format_ == formats.MOSQUITTO_CONF:
        return read_conf(path)
    found = FoundSettings(str(path))
    text = read_text(path)
    if format_ == formats.PASSWORDS:
        add_users(found, text, path.name)
    elif format_ == formats.ACCESS:
        add_access(found, text, path.name)
    else:
        add_dynamic_security(found, parse(text, str(path)), path.name)
    return found


def put_settings(
    found: FoundSettings, format_: str, output: Path, replace: bool, dry_run: bool, as_json: bool
) -> NoReturn:
    other_passwords = merge_users(found, password_file(output), replace)
    files = files_of(found, output)
    if format_ in (formats.PASSWORDS, formats.ACCESS) and output.exists():
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
    raise typer.Exit(INCOMPLETE if kept or other_passwords else 0)


def problems_of_file(config: Path) -> list[str]:
    """What `holdfast check-config` would say of it, such as a certificate that is not where it was."""
    try:
        load(config, environ={})
    except ConfigError as error:
        return [f"check-config says: {line}" for line in str(error).splitlines()]
    return []


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Bar:
    """A progress bar on standard error, where that is a terminal, and gone when the work is done."""

    def __init__(self, what: str) -> None:
        self.bars = progress()
        self.task = self.bars.add_task(what, total=None)

    def __enter__(self) -> "Bar":
        if notes.is_terminal:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if notes.is_terminal:
            self.bars.stop()

    def show(self, what: str, count: int, total: int = 0) -> None:
        self.bars.update(self.task, description=what, completed=count, total=total or None)
