"""`holdfast retained`: the retained messages of a running broker or of a data folder."""

import json
import os
import sys
from base64 import b64decode
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from holdfast.cli.retained_display import (
    counted,
    escape,
    notes,
    out,
    print_ghosts,
    print_history,
    print_messages,
    progress,
    size_text,
    time_text,
)
from holdfast.cli.retained_options import (
    DEFAULT_URL,
    AnyFilter,
    AsJson,
    ClientId,
    Contains,
    Data,
    Filter,
    Key,
    MinSize,
    NewerThan,
    OlderThan,
    Publisher,
    Topic,
    Url,
    When,
    Yes,
    conditions_of,
    moment_of,
)
from holdfast.cli.retained_source import ApiSource, Source
from holdfast.errors import UsageError
from holdfast.rules.restore import seconds_left

NOTHING_FOUND = 1

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def retained() -> None:
    """
    List, read, delete, restore and move retained messages.

    Works on a running broker (`--url`, or HOLDFAST_URL) or on a data folder (`--data`). A data folder can always be
    read, and changed only while no broker uses it. The exit code is 0 on success, 1 if nothing was found or something
    failed, 2 for a usage error.

    Examples:

        holdfast retained ls 'home/#'

        holdfast retained get home/kitchen/temperature

        holdfast retained rm 'old/#' --yes
    """


def source_of(url: str, key: str, data: Path | None) -> Source:
    if data is None:
        return ApiSource(url, key)
    from holdfast.cli.retained_source import DataSource  # a broker that runs is asked without loading one

    return DataSource(data)


@app.command()
def ls(
    topic_filter: AnyFilter = None,
    contains: Contains = None,
    client_id: ClientId = None,
    publisher: Publisher = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    min_size: MinSize = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="Stop after this many; 0 means all.")] = 1000,
    url: Url = DEFAULT_URL,
    key: Key = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """
    List retained messages.

    Examples:

        holdfast retained ls 'home/#'

        holdfast retained ls --older-than 30d --json

        holdfast retained ls --publisher mallory

        holdfast retained ls '#' --contains battery --data ./data
    """
    conditions = conditions_of(topic_filter, contains, client_id, publisher, older_than, newer_than, min_size)
    found = source_of(url, key, data).find(topic_filter or "#", False, **conditions)
    shown = list(first(found, limit + 1 if limit else 0))
    more = limit > 0 and len(shown) > limit
    shown = sorted(shown[:limit] if more else shown, key=lambda message: str(message["topic"]))
    print_messages(shown, as_json)
    if more:
        notes.print(f"there are more than {limit}; --limit 0 shows all")
    raise typer.Exit(0 if shown else NOTHING_FOUND)


@app.command()
def get(topic: Topic, url: Url = DEFAULT_URL, key: Key = "", data: Data = None, as_json: AsJson = False) -> None:
    """
    Print the payload of a retained message unchanged.

    Examples:

        holdfast retained get home/kitchen/temperature

        holdfast retained get camera/last > picture.jpg

        holdfast retained get home/kitchen/temperature --json
    """
    if "+" in topic or "#" in topic:
        raise UsageError(f"expected a topic without wildcards, got {topic!r}; `holdfast retained ls` takes a filter")
    message = source_of(url, key, data).get(topic)
    if message is None:
        raise UsageError(f"topic {topic!r} is not retained")
    if as_json:
        print(json.dumps(message, ensure_ascii=False))
        return
    payload = b64decode(message["payload"])
    sys.stdout.buffer.write(payload)
    if sys.stdout.isatty():
        sys.stdout.buffer.write(b"\n")
    sys.stdout.flush()


@app.command()
def rm(
    topic_filter: AnyFilter = None,
    contains: Contains = None,
    client_id: ClientId = None,
    publisher: Publisher = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    min_size: MinSize = None,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    key: Key = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """
    Delete retained messages.

    A single topic is deleted at once. With a filter, the command only shows what would be deleted unless `--yes` is
    given. Deleted messages can be brought back with `holdfast retained restore --undo NAME` for as long as the history
    goes back.

    `--publisher NAME` deletes what a user has left behind, by the name they were logged in with when they published it.
    The filter is then optional, and without one topics that begin with `$` are included. A running broker shows only
    administrators what others have published: use an API key, or a user listed in `api.admins`.

    Examples:

        holdfast retained rm home/kitchen/temperature

        holdfast retained rm 'old/#'

        holdfast retained rm '#' --older-than 90d --yes

        holdfast retained rm --publisher mallory --yes
    """
    if topic_filter is None and publisher is None:
        raise typer.BadParameter("expected a topic filter, or --publisher NAME")
    conditions = conditions_of(topic_filter, contains, client_id, publisher, older_than, newer_than, min_size)
    exact = topic_filter is not None and "#" not in topic_filter and "+" not in topic_filter
    with notes.status("deleting") if yes or exact else notes.status("looking"):
        done = source_of(url, key, data).remove(topic_filter or "#", yes or exact, **conditions)
    if as_json:
        print(json.dumps(done, ensure_ascii=False))
    elif "operation" in done:
        undo = f"holdfast retained restore --undo {done['operation']}"
        out.print(f"deleted {counted(done['count'], 'message')}; undo: {undo}")
    elif not done["count"]:
        out.print("nothing matches, so nothing was deleted")
    else:
        for topic in done["sample"]:
            out.print(escape(topic), soft_wrap=True)
        left = done["count"] - len(done["sample"])
        if left > 0:
            out.print(f"and {left} more")
        out.print(
            f"would delete {counted(done['count'], 'message')}, {size_text(done['bytes'])}; "
            "nothing is deleted without --yes"
        )
    raise typer.Exit(0 if done["count"] else NOTHING_FOUND)


@app.command()
def history(
    topic: Topic,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="Show the newest N.")] = 20,
    url: Url = DEFAULT_URL,
    key: Key = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """
    Show what happened to a topic, newest first.

    Examples:

        holdfast retained history home/kitchen/temperature

        holdfast retained history home/kitchen/temperature -n 100 --json
    """
    source = source_of(url, key, data)
    rows = source.history(topic, limit)
    if as_json:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
    elif rows:
        print_history(rows)
    if not rows and source.records_live():
        notes.print("nothing was published to this topic, as far back as the history goes")
    elif not rows:
        notes.print("nothing is recorded for this topic; publishes without RETAIN are not recorded: see history.record")
    finish(source, 0 if rows else NOTHING_FOUND)


@app.command()
def at(
    when: When,
    topic_filter: Filter = "#",
    url: Url = DEFAULT_URL,
    key: Key = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """
    Show the retained messages as they were.

    Examples:

        holdfast retained at 2h 'home/#'

        holdfast retained at 2025-03-01T12:00 --json

        holdfast retained at @1234
    """
    at_ms, offset = moment_of(when)
    source = source_of(url, key, data)
    with notes.status("reading the history"):
        found = list(source.at(at_ms, offset, topic_filter))
        reach = source.reach() if offset or not found else {}
    if offset > reach.get("upto", offset):
        raise UsageError(f"no publish has the offset @{offset} yet: the history ends at @{reach['upto']}")
    print_messages(found, as_json)
    if not found and reach["from_ms"] is None:
        notes.print("the history is empty")
    elif not found and 0 < at_ms < reach["from_ms"]:
        began = datetime.fromtimestamp(reach["from_ms"] / 1000).astimezone().isoformat()
        notes.print(f"the history begins at {time_text(began)}: nothing is known about earlier times")
    finish(source, 0 if found else NOTHING_FOUND)


@app.command()
def restore(
    topic_filter: Filter = "#",
    when: Annotated[
        str | None, typer.Option("--at", metavar="WHEN", help="As of a time, an age (2h) or an offset (@1234).")
    ] = None,
    undo: Annotated[
        str | None,
        typer.Option("--undo", metavar="NAME", help="Undo the delete, publish or restore with this name, at once."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Also replace messages that are retained now.")] = False,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    key: Key = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """
    Bring back retained messages from the past.

    Examples:

        holdfast retained restore 'home/#' --at 2h

        holdfast retained restore 'home/#' --at 2h --replace --yes

        holdfast retained restore --undo api-0123456789ab
    """
    if (when is None) == (undo is None):
        raise typer.BadParameter("expected one of --at and --undo")
    source = source_of(url, key, data)
    with notes.status("reading the history"):
        if undo is not None:
            done = source.undo(undo)
        else:
            assert when is not None
            at_ms, offset = moment_of(when)
            done = source.restore(topic_filter, at_ms, offset, replace, yes)
    if as_json:
        print(json.dumps(done))
        finish(source, 0)
    verb = "would restore" if done["dry_run"] else "restored"
    removed = f", {'would delete' if done['dry_run'] else 'deleted'} {done['removed']}" if done["removed"] else ""
    out.print(
        f"{verb} {counted(done['restored'], 'message')}{removed}; skipped: {done['present']} still there, "
        f"{done['expired']} expired, {done['refused']} refused"
    )
    if done["dry_run"]:
        out.print("nothing is restored without --yes")
    finish(source, 0)


@app.command()
def export(
    topic_filter: Filter = "#",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: standard output.")
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = "",
    data: Data = None,
) -> None:
    """
    Write retained messages as JSON, one per line, for `holdfast retained import`.

    Examples:

        holdfast retained export -o retained.jsonl

        holdfast retained export 'home/#' --data ./data | gzip > home.jsonl.gz
    """
    found = source_of(url, key, data).find(topic_filter, True)
    count = 0
    try:
        stream = sys.stdout if output is None else output.open("w", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {(error.strerror or str(error)).lower()}") from None
    with progress() as bar:
        task = bar.add_task("exporting", total=None)
        try:
            for message in found:
                stream.write(json.dumps(message, ensure_ascii=False) + "\n")
                count += 1
                bar.update(task, advance=1)
        finally:
            if output is not None:
                stream.close()
    notes.print(f"exported {counted(count, 'message')}")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file written by export; - means standard input.")],
    url: Url = DEFAULT_URL,
    key: Key = "",
    data: Data = None,
) -> None:
    """
    Publish exported messages as retained; those that have expired are skipped.

    Examples:

        holdfast retained import retained.jsonl

        gunzip -c home.jsonl.gz | holdfast retained import - --url http://127.0.0.1:28083
    """
    source = source_of(url, key, data)
    now_ms = int(datetime.now().timestamp() * 1000)
    lines = list(sys.stdin) if str(file) == "-" else read_file(file).split("\n")
    batch: list[dict[str, Any]] = []
    count = expired = refused = 0
    with progress() as bar:
        task = bar.add_task("importing", total=len(lines))
        for number, line in enumerate(lines, 1):
            bar.update(task, advance=1)
            if not line.strip():
                continue
            message = publication_of(line, number, now_ms)
            if message is None:
                expired += 1
                continue
            batch.append(message)
            count += 1
            if len(batch) == source.batch:
                refused += source.publish(batch)
                batch = []
        if batch:
            refused += source.publish(batch)
    notes.print(f"imported {counted(count - refused, 'message')}; {expired} had expired, {refused} were refused")
    raise typer.Exit(1 if refused else 0)


@app.command()
def ghosts(
    days: Annotated[float, typer.Option("--days", metavar="N", help="Not written for this many days.")] = 30,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="Show at most N of each kind.")] = 20,
    url: Url = DEFAULT_URL,
    key: Key = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """
    Find retained messages that have probably been abandoned.

    Reports messages that have not been written for a long time, inactive publishers, discovery configurations without
    state, and retained commands.

    Examples:

        holdfast retained ghosts --days 90

        holdfast retained ghosts --json
    """
    found = source_of(url, key, data).ghosts(days, min(max(limit, 1), 1000))
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return
    print_ghosts(found, days)


def finish(source: Source, code: int) -> NoReturn:
    """End the command.

    Arrow's threads may still be reading ahead in the history's files when the interpreter takes itself apart, which
    then aborts the process. Nothing is left to do for them, so the process ends before that.
    """
    if source.reads_history:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise typer.Exit(code)


def publication_of(line: str, number: int, now_ms: int) -> dict[str, Any] | None:
    """An exported line as a message to publish; None when its time is over."""
    try:
        given = json.loads(line)
        message = {
            "topic": given["topic"],
            "payload": given["payload"],
            "encoding": "base64",
            "qos": given.get("qos", 0),
            "retain": True,
        }
        for name in ("content_type", "response_topic", "correlation_data", "payload_format"):
            if given.get(name) is not None:
                message[name] = given[name]
        if given.get("user_properties"):
            message["user_properties"] = given["user_properties"]
        expires_at_ms = given.get("expires_at_ms")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"line {number} was not written by export, expected JSON with topic and payload") from None
    if expires_at_ms is not None:
        if int(expires_at_ms) <= now_ms:
            return None
        message["expiry_s"] = seconds_left(int(expires_at_ms), now_ms)
    return message


def read_file(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {error}") from None


def first(found: Iterable[dict[str, Any]], most: int) -> Iterator[dict[str, Any]]:
    """All when `most` is 0."""
    for number, one in enumerate(found, 1):
        yield one
        if number == most:
            return
