"""What the pipeline's commands share: where things are, a Spark session, and errors as one sentence."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import Config
from holdfast.cli.pipeline_display import waiting
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.spark.declared import Declaration
    from holdfast.spark.keeper import Keeper
    from holdfast.spark.ranges import History as HistoryTable

History = Annotated[
    str | None,
    typer.Option(
        "--history",
        metavar="PATH|URL",
        help="The history table: its folder, or a broker's address such as http://127.0.0.1:18083 that names it. "
        "Default: `history` in the data folder.",
    ),
]
Tables = Annotated[
    str | None,
    typer.Option("--tables", metavar="DIR", help="Where the tables are kept. Default: `pipeline` in the data folder."),
]
Declared = Annotated[
    Path | None,
    typer.Option(
        "--declared",
        metavar="FILE",
        help="Tables of one's own, such as pipeline.toml, instead of `pipeline.declared` of the configuration.",
    ),
]
Data = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="Data folder, default ./data. Environment: HOLDFAST_DATA.")
]
Master = Annotated[
    str,
    typer.Option(
        "--master",
        envvar="HOLDFAST_SPARK_MASTER",
        help="Where Spark runs: `local[*]` (this machine), `spark://host:7077`, `yarn`, `k8s://…`, or a Spark Connect "
        "server as `sc://host:15002`.",
    ),
]
Memory = Annotated[
    str, typer.Option("--memory", help="Heap of the Spark driver, which in local mode does all the work.")
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show what Spark says.")]
Filter = Annotated[str | None, typer.Option("--filter", metavar="FILTER", help="MQTT topic filter.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output, for scripts.")]

DEFAULT_MASTER = "local[*]"
DEFAULT_MEMORY = "2g"
RUN_MEMORY = "1g"  # its batches are bounded, and Python does most of the work on them


@dataclass(frozen=True)
class Locations:
    """The history table and the pipeline's own tables; `data` is the folder of the broker that is meant."""

    history: str
    tables: str
    devices: str
    data: Path
    declared: Path | None = None
    iceberg: tuple[str, ...] = ()


def find_locations(
    history: str | None,
    tables: str | None,
    data: str | None,
    config: Config,
    *,
    devices: str | None = None,
    declared: Path | None = None,
) -> Locations:
    """Returns where things are: from flags first, then from the configuration that the broker itself reads."""
    from holdfast.config import load
    from holdfast.history.storage_options import VARIABLE
    from holdfast.storage.folder import DataFolder

    settings = load(config, (), data).settings
    folder = Path(settings.data)
    place = DataFolder(folder).table
    storage_file = place.storage_file or str(settings.history.storage_file or "")
    if storage_file:
        os.environ.setdefault(VARIABLE, storage_file)  # Spark's workers are told by it too
    configured = settings.history.path if place.folder is not None else ""  # where no broker has noted it here
    return Locations(
        history or configured or place.uri,
        tables or str(folder / "pipeline"),
        devices or settings.pipeline.devices,
        folder,
        declared or settings.pipeline.declared,
        tuple(settings.pipeline.iceberg),
    )


def declarations_of(path: Path | None) -> "list[Declaration]":
    """Returns the tables that a file declares; none without a file."""
    if path is None:
        return []
    from holdfast.spark.declared import read_declarations
    from holdfast.spark.tables import TABLES

    return read_declarations(path, TABLES)


def open_tables(
    spark: "SparkSession", where: Locations, declarations: "list[Declaration]", *, accept_loss: bool = False
) -> "Keeper":
    """Returns what keeps the pipeline's tables and those that were declared; it has to be closed."""
    from holdfast.history.place import Place
    from holdfast.spark.declared.replay import quarantine_anew
    from holdfast.spark.declared.tables import declared_tables
    from holdfast.spark.keeper import Keeper
    from holdfast.spark.tables import pipeline_tables
    from holdfast.spark.views import Views

    tables = (*pipeline_tables(where.devices), *declared_tables(declarations))
    views = Views(where.iceberg, Place(where.tables).folder or where.data, note)
    keeper = Keeper(spark, where.history, where.tables, tables=tables, accept_loss=accept_loss, views=views)
    try:
        quarantine_anew(keeper, declarations)
    except BaseException:
        keeper.close()
        raise
    return keeper


def open_history(where: Locations, *, whole: bool = True, counts: bool = False) -> "HistoryTable":
    """Returns the history table. What is wrong with it is said before Spark takes its seconds to start.

    `whole`: all of it will be read, so all of it is checked. `counts`: messages will be counted, so it is said when
    not all of them are there.
    """
    from holdfast.spark.failure import check_whole
    from holdfast.spark.ranges import History as HistoryTable

    table = HistoryTable(where.history)
    if whole:
        check_whole(table)
    if counts and not table.live_from:
        note(f"{table.lacks_live(0)}. Numbers of messages leave them out")
    return table


def note(sentence: str) -> None:
    typer.echo(f"note: {sentence}", err=True)


@contextmanager
def session(
    master: str, memory: str, verbose: bool, as_json: bool = False, settings: dict[str, str] | None = None
) -> Iterator["SparkSession"]:
    """A Spark session for the length of a command. What goes wrong inside is said in one sentence."""
    from holdfast.spark.session import start_session

    # a user who asked for Spark's own words sees that it starts
    with nullcontext() if verbose or as_json else waiting(f"starting Spark on {master}"):
        spark = start_session(master, memory=memory, verbose=verbose, settings=settings)
    with spark_in_one_sentence(verbose):
        try:
            yield spark
        finally:
            # what went wrong has been said; a Spark that is gone cannot be stopped, and needs not be
            with suppress(Exception):
                spark.stop()


@contextmanager
def spark_in_one_sentence(verbose: bool) -> Iterator[None]:
    """What Spark fails with, as the sentence a person needs of it; all of it when that was asked for."""
    root, silence = logging.getLogger(), logging.NullHandler()
    if not verbose:
        root.addHandler(silence)  # py4j logs what it also raises
    try:
        yield
    except Exception as error:
        from holdfast.spark.failure import is_from_spark, reason

        if verbose or not is_from_spark(error):
            raise
        raise UsageError(f"{reason(error)} (run again with -v to see all that Spark has to say)") from None
    finally:
        root.removeHandler(silence)


def parse_at(text: str | None) -> int | datetime | None:
    from holdfast.spark.options import parse_moment

    return None if text is None or text == "now" else parse_moment(text)
