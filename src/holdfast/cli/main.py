"""The `holdfast` command: finds the subcommand and loads that one alone.

`holdfast --help` and `holdfast pub` stay quick and work with the runtime dependencies only, because a command's module
is imported when the command is run. The table below says where each one is and what the overview says about it.
"""

import importlib
import os
import sys
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

from holdfast import __version__
from holdfast.errors import HoldfastError


@dataclass(frozen=True)
class Command:
    """A function, or a Typer app of its own, at `module`:`attribute`."""

    module: str
    attribute: str
    summary: str


COMMANDS: Final[dict[str, Command]] = {
    "serve": Command("holdfast.cli.serve", "serve", "Run the broker."),
    "pub": Command("holdfast.cli.pub", "pub", "Publish messages, with mosquitto_pub's flags."),
    "sub": Command("holdfast.cli.sub", "sub", "Subscribe and print messages, with mosquitto_sub's flags."),
    "retained": Command("holdfast.cli.retained", "app", "List, read, delete, restore and move retained messages."),
    "history": Command("holdfast.cli.history", "app", "Erase data from the history permanently."),
    "cluster": Command("holdfast.cli.cluster", "app", "Show, drain, remove and compare the nodes of a cluster."),
    "pipeline": Command(
        "holdfast.cli.pipeline", "app", "Process the history with Spark: tables, time travel, audit, report."
    ),
    "bridge": Command("holdfast.cli.bridge", "app", "Show, test, add and remove links to other brokers."),
    "demo": Command("holdfast_demo.command", "demo", "Demonstrate and verify all of it in about a minute."),
    "passwd": Command("holdfast.cli.passwd", "passwd", "Create, change and delete users in a password file."),
    "check-config": Command(
        "holdfast.cli.check_config", "check_config", "Show the effective settings and any problems."
    ),
    "bench": Command("holdfast_bench.command", "bench", "Load-test any MQTT broker."),
    "import": Command("holdfast.cli.import_", "import_", "Import from mosquitto, EMQX or any MQTT broker."),
    "migrate": Command("holdfast.cli.migrate", "migrate", "Move from another broker while both are in use."),
    "doctor": Command("holdfast.cli.doctor", "doctor", "Check a data folder and, if asked, repair it."),
}


def build_app(*loaded: str) -> typer.Typer:
    """Returns the command line with the named commands ready to run; the others are there by name and summary only."""
    app = typer.Typer(
        name="holdfast",
        callback=overview,
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
    )
    for name, command in COMMANDS.items():
        if name not in loaded:
            app.command(name, help=command.summary)(_not_loaded)
            continue
        module = importlib.import_module(command.module)
        target = getattr(module, command.attribute)
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=name)
        else:
            app.command(name, cls=getattr(module, "COMMAND_CLASS", None))(target)
    return app


def _not_loaded() -> None:
    raise AssertionError("main() loads the command it was asked for before it runs it")


def _print_version(wanted: bool) -> None:
    if wanted:
        from holdfast import build

        print(f"holdfast {__version__} ({build.name()}, Python {sys.version.split()[0]})")
        raise typer.Exit


def overview(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print version and build, then exit."),
    ] = False,
) -> None:
    """
    An MQTT broker whose retained messages are complete, durable, versioned and fast.

    Examples:

        holdfast serve

        holdfast serve --listen tcp://127.0.0.1:2883 --set retainer.max_payload_size=64KiB

        holdfast pub -t home/kitchen/temperature -m 21.5 -r

        holdfast sub -t 'home/#' -v
    """


def show_flags_as_flags(command: Any) -> None:
    """Help names the type of a value behind each option; a flag takes none, so it gets none."""
    help_option = command.get_help_option(command.context_class(command))
    for parameter in [*command.params, help_option]:
        if getattr(parameter, "is_flag", False) or getattr(parameter, "count", False):
            parameter.metavar = ""
    for child in getattr(command, "commands", {}).values():
        show_flags_as_flags(child)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; what the user or the system got wrong is one line, not a traceback."""
    words = sys.argv[1:] if arguments is None else arguments
    wanted = next((word for word in words if not word.startswith("-")), "")
    everything = any(name.endswith("_COMPLETE") for name in os.environ if name.startswith("_HOLDFAST"))
    app = build_app(*(COMMANDS if everything else [wanted]))
    command = get_command(app)
    show_flags_as_flags(command)
    try:
        command(args=words, prog_name="holdfast")
    except HoldfastError as error:
        for line in str(error).splitlines() or [type(error).__name__]:
            print(f"holdfast: {line}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
