"""`holdfast pipeline check` and `replay`: tables that users declare."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import Config
from holdfast.cli.pipeline_display import spark_work
from holdfast.cli.pipeline_setup import (
    DEFAULT_MASTER,
    DEFAULT_MEMORY,
    AsJson,
    Data,
    Declared,
    History,
    Master,
    Memory,
    Tables,
    Verbose,
    declarations_of,
    find_locations,
    open_history,
    open_tables,
    session,
)
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.spark.declared import Declaration

NOTHING_DECLARED = (
    "no tables are declared: expected a file such as pipeline.toml, or `pipeline.declared` in the configuration"
)


def check(
    file: Annotated[Path | None, typer.Argument(help="The declaration. Default: `pipeline.declared`.")] = None,
    as_json: AsJson = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """
    Check a declaration of tables, and show what they will be. Starts no Spark.

    All problems are said at once, each with its key, what was expected and what stands there; the exit code is then
    not 0.

    Examples:

        holdfast pipeline check pipeline.toml

        holdfast pipeline check --config holdfast.toml --json
    """
    declarations = _declared(find_locations(None, None, data, config, declared=file).declared)
    from holdfast.spark.declared.tables import table_of
    from holdfast.spark.derived import ddl_of

    columns = {one.name: {part.name: ddl_of(part.type) for part in table_of(one).schema} for one in declarations}
    if as_json:
        keys = ("name", "filter", "decoder", "kind")
        found = [{key: getattr(one, key) for key in keys} | {"columns": columns[one.name]} for one in declarations]
        print(json.dumps(found, ensure_ascii=False, indent=2))
        return
    for one in declarations:
        print(f"{one.name}: {one.kind} of {one.filter}, as {one.decoder}")
        print("  " + ", ".join(f"{name} {kind}" for name, kind in columns[one.name].items()))


def replay(
    table: Annotated[
        list[str] | None, typer.Option("--table", metavar="NAME", help="Only this table; may be given again.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be replayed, change nothing.")] = False,
    as_json: AsJson = False,
    declared: Declared = None,
    history: History = None,
    tables: Tables = None,
    data: Data = None,
    config: Config = None,
    master: Master = DEFAULT_MASTER,
    memory: Memory = DEFAULT_MEMORY,
    verbose: Verbose = False,
) -> None:
    """
    Take what was quarantined into its table, after its declaration has been mended.

    Brings the tables up to date first. Rows that decode now leave the quarantine, the others stay with the reason of
    today. A window of an aggregate is made anew from history. It may be stopped or killed and run again.

    Examples:

        holdfast pipeline replay --declared pipeline.toml

        holdfast pipeline replay --table machines --dry-run
    """
    where = find_locations(history, tables, data, config, declared=declared)
    declarations = _declared(where.declared)
    unknown = sorted(set(table or ()) - {one.name for one in declarations})
    if unknown:
        known = ", ".join(one.name for one in declarations)
        raise UsageError(f"expected --table to name a declared table ({known}), got {', '.join(unknown)}")
    opened = open_history(where)
    from holdfast.spark.declared.replay import replay as take_again
    from holdfast.spark.jobs.run import Runner

    with session(master, memory, verbose, as_json) as spark:
        keeper = open_tables(spark, where, declarations)
        try:
            with spark_work(spark, "replay", opened.rows):
                Runner(keeper).once()
                wanted = [one for one in declarations if not table or one.name in table]
                found = take_again(keeper, wanted, dry_run=dry_run)
        finally:
            keeper.close()
    if as_json:
        print(json.dumps([one._asdict() for one in found]))
        return
    for one in found:
        verb = "would be replayed" if dry_run else "replayed"
        gone = f", {one.gone:,} are no longer in history" if one.gone else ""
        print(f"{one.table}: {one.taken:,} rows {verb}, {one.still:,} still do not decode{gone}")
    if not found:
        print("nothing is quarantined")


def _declared(path: Path | None) -> "list[Declaration]":
    if path is None:
        raise UsageError(NOTHING_DECLARED)
    return declarations_of(path)
