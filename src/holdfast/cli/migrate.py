"""`holdfast migrate`: from another broker to this one while both work, and clients move one by one."""

import asyncio
import json
import time
from functools import partial
from typing import Annotated, Any

import typer

from holdfast.cli.import_ import AsJson, Bar, Cafile, Insecure, now_ms
from holdfast.cli.retained_display import escape, notes, out
from holdfast.cli.retained_options import DEFAULT_URL, Key
from holdfast.cli.retained_source import ApiClient, ApiSource
from holdfast.client.endpoint import TlsOptions, parse_url
from holdfast.errors import UsageError
from holdfast.migration.destination import ApiBroker, message_from
from holdfast.migration.inventory import FoundMessage
from holdfast.migration.live_broker import LiveBroker, Patience
from holdfast.migration.live_migration import Audit, Comparison
from holdfast.service.requests import check_filter

DIFFERENT = 1
BRIDGE = "migration"
NAMED = 20
LOOK_S = 0.5

From = Annotated[
    str, typer.Option("--from", metavar="URL", help="The old broker: mqtt://HOST:PORT, mqtts://HOST, ws:// or wss://.")
]
To = Annotated[
    str, typer.Option("--to", metavar="URL", envvar="HOLDFAST_URL", help="The new broker: its HTTP listener.")
]
FromKey = Annotated[
    str,
    typer.Option(
        "--from-key", metavar="NAME:SECRET", envvar="HOLDFAST_FROM_KEY", help="User and password on the old broker."
    ),
]
Filter = Annotated[
    str, typer.Option("--filter", metavar="FILTER", help="What moves. EMQX refuses `#` to most: give it `+/#`.")
]
Protocol = Annotated[str, typer.Option("--protocol", metavar="VERSION", help="What the old broker speaks: 5 or 3.1.1.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Switch without asking, if the brokers are equal.")]
Abandon = Annotated[bool, typer.Option("--abandon", help="End the bridge; both brokers keep what they have.")]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", min=1, help="Give up if the brokers do not agree by then.")
]
Quiet = Annotated[
    float, typer.Option("--quiet", metavar="SECONDS", min=0.1, help="The old broker is done when silent for so long.")
]


def migrate(
    source: From,
    to: To = DEFAULT_URL,
    key: Key = "",
    from_key: FromKey = "",
    topic_filter: Filter = "#",
    protocol: Protocol = "5",
    yes: Yes = False,
    abandon: Abandon = False,
    wait: Wait = 600.0,
    quiet: Quiet = 2.0,
    cafile: Cafile = None,
    insecure: Insecure = False,
    as_json: AsJson = False,
) -> None:
    """
    Move to this broker from another one while both work.

    Makes a bridge that takes everything both ways, so that clients of either broker see the same, waits until the
    retained messages are the same on both, compares them topic by topic, and names differences. From then on clients
    can be moved one by one, and back, for as long as that takes: run it again to compare again. When all have moved, a
    person confirms the switch: the bridge ends, and the old broker can be stopped.

    Users, rules and settings come with `holdfast import`, before; so do sessions and what is queued in them.

    The exit code is 0 when the brokers are equal, 1 when they are not or something failed, 2 when the command line is
    wrong.

    Examples:

        holdfast migrate --from mqtt://old.example

        HOLDFAST_FROM_KEY=bridge:secret holdfast migrate --from mqtts://emqx.example --filter '+/#'

        holdfast migrate --from mqtt://old.example --yes --json
    """
    check_filter(topic_filter)
    if protocol not in ("5", "3.1.1"):
        raise typer.BadParameter(f"expected 5 or 3.1.1, got {protocol!r}", param_hint="--protocol")
    api = ApiClient(to, key, "--to names another one")
    if abandon:
        api.call("DELETE", "/bridges", name=BRIDGE)
        say("the bridge has ended; both brokers keep what they have", as_json)
        return
    location = parse_url(source)
    login = from_key or (f"{location.username}:{location.password or ''}" if location.username else "")
    told = table_of(source, login, topic_filter, protocol, cafile, insecure) | {"quiet": quiet}
    begin(api, told, as_json)
    with Bar("agreeing") as bar:
        status = until_in_sync(api, wait, bar)
    tls = TlsOptions(cafile=cafile, insecure=insecure)
    old = LiveBroker(source, Patience(quiet, topic_filter=topic_filter), tls, now_ms, login)
    with Bar("comparing") as bar:
        old.on_progress = bar.show
        new = ApiSource(to, key)
        found = asyncio.run(Audit(old, ApiBroker(new), partial(read_from, new), bar.show).compare())
    print_comparison(found, status, as_json)
    if not found.is_equal:
        raise typer.Exit(DIFFERENT)
    if yes or asks_to_switch():
        switch(api, wait)
        say("switched: the bridge has ended, and the old broker can be stopped", as_json)


def table_of(
    source: str, login: str, topic_filter: str, protocol: str, cafile: str | None, insecure: bool
) -> dict[str, Any]:
    """The bridge. Until the switch the old broker is right where both were changed."""
    location = parse_url(source)
    host = f"[{location.host}]" if ":" in location.host else location.host
    scheme = source.partition("://")[0]
    told: dict[str, Any] = {
        "name": BRIDGE,
        "address": [f"{scheme}://{host}:{location.port}{location.path or ''}"],
        "topic": [f"{topic_filter} both 2"],
        "protocol": protocol,
        "conflict": "remote",
        "retry": "200ms",
        "retry_max": "5s",
    }
    if login:
        told["username"], _, told["password"] = login.partition(":")
    if cafile is not None:
        told["ca"] = cafile
    if insecure:
        told["insecure"] = True
    return told


def begin(api: ApiClient, told: dict[str, Any], as_json: bool) -> None:
    """The bridge, unless it is there: then the migration goes on."""
    there = [one for one in api.call("GET", "/bridges")["bridges"] if one["name"] == BRIDGE]
    if there:
        say(f"the bridge {BRIDGE} is there; going on", as_json)
        return
    for one in api.call("POST", "/bridges/test", told)["addresses"]:
        if one["error"] or one["refused"]:
            hint = "; EMQX takes --filter '+/#' where it refuses '#'" if one["refused"] else ""
            raise UsageError(one["error"] or f"the old broker refuses a subscription to {one['refused'][0]!r}{hint}")
    api.call("POST", "/bridges", told)
    say(f"bridge {BRIDGE} made: what is published on one broker is on both from now on", as_json)


def bridge_of(api: ApiClient) -> dict[str, Any]:
    for one in api.call("GET", "/bridges")["bridges"]:
        if one["name"] == BRIDGE:
            return dict(one)
    raise UsageError(f"the bridge {BRIDGE} has ended meanwhile; run `holdfast migrate` again to begin anew")


def until_in_sync(api: ApiClient, wait_s: float, bar: Bar, empty: bool = False) -> dict[str, Any]:
    """The bridge's status once the retained sets agree; with `empty` also nothing waits."""
    deadline_s = time.monotonic() + wait_s
    while True:
        status = bridge_of(api)
        if status["in_sync"] and not (empty and status["waiting"]):
            return status
        if time.monotonic() > deadline_s:
            raise UsageError(
                f"the brokers do not agree after {wait_s:g} s: {status['error'] or 'the bridge is still at work'}; it "
                "goes on, run the command again, or end it with --abandon"
            )
        bar.show("agreeing", status["received"] + status["sent"])
        time.sleep(LOOK_S)


def read_from(api: ApiSource, topic: str) -> FoundMessage | None:
    found = api.get(topic)
    return None if found is None else message_from(found)


def switch(api: ApiClient, wait_s: float) -> None:
    with Bar("switching") as bar:
        until_in_sync(api, wait_s, bar, empty=True)
    api.call("DELETE", "/bridges", name=BRIDGE)


def asks_to_switch() -> bool:
    if not notes.is_terminal:
        notes.print("move the clients, compare again by running this again, and switch with --yes")
        return False
    return typer.confirm(
        "Have all clients moved? The switch ends the bridge, and the old broker hears nothing any more.", err=True
    )


def print_comparison(found: Comparison, status: dict[str, Any], as_json: bool) -> None:
    if as_json:
        lists = {"missing": found.missing, "extra": found.extra, "different": found.different}
        print(json.dumps({"equal": found.is_equal, "same": found.same, **lists, "bridge": status}, ensure_ascii=False))
        return
    out.print(f"{found.same:,} retained topics are the same on both brokers")
    for text, topics in (
        ("only on the old broker", found.missing),
        ("only on the new broker", found.extra),
        ("different", found.different),
    ):
        for topic in topics[:NAMED]:
            out.print(f"[red]{text}: {escape(topic)}[/red]", soft_wrap=True)
        if len(topics) > NAMED:
            out.print(f"[red]{text}: and {len(topics) - NAMED:,} more; --json names all[/red]")


def say(text: str, as_json: bool) -> None:
    """What goes on is told beside the result."""
    (notes if as_json else out).print(escape(text), soft_wrap=True)
