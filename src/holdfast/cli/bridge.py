"""`holdfast bridge`: the links of a running broker to others."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from holdfast.cli.retained_display import escape, out
from holdfast.cli.retained_options import DEFAULT_URL, Key, Url
from holdfast.cli.retained_source import ApiClient
from holdfast.errors import UsageError

WRONG = 1

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the bridge.")]
Address = Annotated[
    list[str] | None,
    typer.Option("--address", "-a", metavar="URL", help="The other broker: mqtt://HOST:PORT, mqtts://HOST; several."),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="LINE",
        help="What goes over it, as in mosquitto: PATTERN [out|in|both] [QOS [LOCAL-PREFIX [REMOTE-PREFIX]]]; several.",
    ),
]
Username = Annotated[str, typer.Option("--username", "-u", metavar="NAME", help="User name there.")]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", metavar="FILE", help="File with the password or token for it.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other key of a `[[bridge]]` table; several."),
]
Replace = Annotated[bool, typer.Option("--replace", help="Also where a bridge of that name is there.")]

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def bridge() -> None:
    """
    Look at the links of a running broker to others, try them out, make and end them.

    Asks a broker that runs (`--url`, or HOLDFAST_URL), through its HTTP listener. Bridges that stand in its
    configuration are changed there, and SIGHUP puts that in force. The exit code is 0 when all is well, 1 when
    something is wrong or failed, 2 when the command line is wrong.

    Examples:

        holdfast bridge ls

        holdfast bridge add cloud --address mqtts://broker.example --topic 'sensors/# out 1'

        holdfast bridge test cloud

        holdfast bridge rm cloud
    """


@app.command()
def ls(url: Url = DEFAULT_URL, key: Key = "", as_json: AsJson = False) -> None:
    """
    Show all bridges: whether they are connected, whether the retained sets agree, what waits.

    The exit code is 1 when one is not connected that should be.

    Examples:

        holdfast bridge ls

        holdfast bridge ls --json | jq '.bridges[] | select(.waiting > 1000)'
    """
    told = broker_at(url, key).call("GET", "/bridges")
    if as_json:
        print(json.dumps(told, indent=2, ensure_ascii=False))
    elif not told["bridges"]:
        out.print("there are no bridges; `holdfast bridge add` makes one, or a `[[bridge]]` table", markup=False)
    else:
        print_bridges(told["bridges"])
    raise typer.Exit(0 if all(map(is_well, told["bridges"])) else WRONG)


def is_well(one: dict[str, Any]) -> bool:
    return one["state"] in ("connected", "resting") and not one["error"]


def print_bridges(bridges: list[dict[str, Any]]) -> None:
    table = Table("bridge", "state", "in sync", "waiting", "sent", "received", "address", box=None, pad_edge=False)
    for one in bridges:
        cells = [
            one["name"],
            one["state"],
            "yes" if one["in_sync"] else "no",
            one["waiting"],
            one["sent"],
            one["received"],
            one["address"],
        ]
        table.add_row(*(escape(str(cell)) for cell in cells), style="" if is_well(one) else "red")
    out.print(table)
    for one in bridges:
        for line in one["topics"]:
            out.print(f"{escape(one['name'])}: {escape(line)}", soft_wrap=True)
        if one["error"]:
            out.print(f"[red]{escape(one['name'])}: {escape(one['error'])}[/red]", soft_wrap=True)


def broker_at(url: str, key: str) -> ApiClient:
    return ApiClient(url, key, "--url names another one")


@app.command()
def add(
    name: Name,
    address: Address = None,
    topics: Topics = None,
    username: Username = "",
    password_file: PasswordFile = None,
    sets: Sets = None,
    replace: Replace = False,
    url: Url = DEFAULT_URL,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """
    Make a bridge, which begins at once and is there after a restart. No other bridge is touched.

    `--set` takes every key of a `[[bridge]]` table, see docs/reference/configuration.md.

    Examples:

        holdfast bridge add cloud --address mqtts://broker.example --topic 'sensors/# out 1 "" site7/'

        holdfast bridge add old -a mqtt://10.0.0.7 -t '# both 1' --set protocol=3.1.1 --set conflict=remote

        holdfast bridge add cloud -a mqtts://broker.example -t '# out 1' -u site7 --password-file secret --replace
    """
    told = table_of(name, address, topics, username, password_file, sets)
    made = broker_at(url, key).call("POST", "/bridges", told, replace=replace)
    if as_json:
        print(json.dumps(made, ensure_ascii=False))
    else:
        out.print(f"bridge {escape(name)} is made; `holdfast bridge ls` says how it is doing")


@app.command()
def rm(name: Name, url: Url = DEFAULT_URL, key: Key = "", as_json: AsJson = False) -> None:
    """
    End a bridge. What waits for the other side is forgotten; what is retained stays, on both.

    Examples:

        holdfast bridge rm cloud
    """
    done = broker_at(url, key).call("DELETE", "/bridges", name=name)
    if as_json:
        print(json.dumps(done, ensure_ascii=False))
    else:
        out.print(f"bridge {escape(name)} has ended")


@app.command("test")
def try_out(
    name: Name,
    address: Address = None,
    topics: Topics = None,
    username: Username = "",
    password_file: PasswordFile = None,
    sets: Sets = None,
    url: Url = DEFAULT_URL,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """
    Try a bridge out: one that is there, or one that `add` would make with the same options. Nothing is changed.

    The broker connects to each address as another client, subscribes to what would come in, and leaves. The exit code
    is 1 when an address does not answer, or refuses something.

    Examples:

        holdfast bridge test cloud

        holdfast bridge test new --address mqtts://broker.example --topic 'commands/# in 1'
    """
    told = table_of(name, address, topics, username, password_file, sets) if address else None
    found = broker_at(url, key).call("POST", "/bridges/test", told, name=None if told else name)["addresses"]
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
    for one in [] if as_json else found:
        out.print(f"{escape(one['address'])}: {escape(verdict_of(one))}", soft_wrap=True)
    raise typer.Exit(0 if all(one["connected"] and not one["error"] and not one["refused"] for one in found) else WRONG)


def verdict_of(one: dict[str, Any]) -> str:
    if not one["connected"] or one["error"]:
        return str(one["error"])
    return f"refuses {', '.join(one['refused'])}" if one["refused"] else "works"


def table_of(
    name: str,
    address: list[str] | None,
    topics: list[str] | None,
    username: str,
    password_file: Path | None,
    sets: list[str] | None,
) -> dict[str, Any]:
    """A bridge as the configuration has it. The password goes along, not the name of its file: the broker may be on
    another machine.
    """
    told: dict[str, Any] = {"name": name, "address": address or [], "topic": topics or []}
    if username:
        told["username"] = username
    if password_file is not None:
        try:
            told["password"] = password_file.read_text().rstrip("\r\n")
        except OSError as error:
            raise UsageError(f"cannot read {password_file}: {(error.strerror or str(error)).lower()}") from None
    for assignment in sets or []:
        key, separator, value = assignment.partition("=")
        if not separator:
            raise typer.BadParameter(f"expected KEY=VALUE, got {assignment!r}", param_hint="--set")
        told[key.strip()] = value
    return told
