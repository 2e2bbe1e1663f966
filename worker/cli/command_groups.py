"""The commands that belong to a group: `binlane checkpoint ...` and `binlane dead-letters ...`. Also
what several commands share: arguments, and the function that imports and calls a command."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

# `load` reports an unreadable file in one line, like every other fault.
Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration file (YAML).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Patterns = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PATTERN]...", help="Tables: globs on database.table, or /expressions/."),
]

_OF_EXTRAS = ("pyspark", "pyarrow", "obstore", "duckdb")


class WithoutExtra(Exception):
    """The command needs the packages of an extra."""

    def __init__(self, command: str, package: str) -> None:
        own = package == "duckdb" or (command == "query" and package != "pyspark")
        needed, extra = ("DuckDB and Arrow, which are", "read") if own else ("Spark, which is", "spark")
        super().__init__(
            f"{command} needs {needed} not installed: pip install '.[{extra}]' in binlane's folder"
        )

    def format_message(self) -> str:
        """Format the message as Click does for its own errors."""
        return str(self)


def call(command: str, *arguments: Any, **options: Any) -> int | None:
    """Call `module:function` of `worker.commands`. Raises WithoutExtra if its packages are missing."""
    module, _, function = command.partition(":")
    try:
        found = _imported(module, function)
        code: int | None = found(*arguments, **options)
    except ModuleNotFoundError as error:
        if (package := (error.name or "").partition(".")[0]) not in _OF_EXTRAS:
            raise
        raise WithoutExtra(function, package) from None
    return code


def _imported(module: str, function: str) -> Any:
    # Imported objects stay. Scanning them for garbage repeatedly takes a twentieth of a start.
    gc.disable()
    try:
        return getattr(import_module(f"worker.commands.{module}"), function)
    finally:
        gc.enable()


def time_of(text: str, option: str = "--time") -> datetime:
    """Parse a time; without a zone it is UTC. Raises BadParameter, which names `option`."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option}: found {text!r}; allowed: an ISO 8601 time such as 2026-11-21T10:00:00Z"
        ) from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


checkpoint = typer.Typer(help="Show a worker's positions, or move them while the worker is stopped.")
dead_letters = typer.Typer(help="List, show or replay dead letters.")


@checkpoint.command("show")
def checkpoint_show(
    config: Config,
    as_json: AsJson = False,
    history: Annotated[
        bool, typer.Option("--history", help="Also list each partition's last positions (journal).")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Positions per partition.")] = 20,
) -> int | None:
    """Show every store's position for each partition, and where a start would begin and why."""
    return call("checkpoint:show", config, as_json, limit if history else 0)


@checkpoint.command("set")
def checkpoint_set(
    config: Config,
    topic: Annotated[str, typer.Option("--topic", help="The topic.")],
    partition: Annotated[int, typer.Option("--partition", min=0, help="The partition.")],
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="The next offset to read.")] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="ISO8601",
            help="Start at this time: by source time if the journal has it, otherwise by Kafka's timestamps. "
            "Default zone: UTC.",
        ),
    ] = None,
) -> int | None:
    """Move a stopped worker's position, in every store."""
    if (offset is None) == (time is None):
        raise typer.BadParameter("give either --offset or --time")
    return call("checkpoint:move", config, topic, partition, offset if time is None else time_of(time))


@dead_letters.command("list")
def dead_letters_list(
    config: Config,
    table: Annotated[str | None, typer.Option("--table", help="Only letters of this database.table.")] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="ISO8601", help="Only letters from this time on. Default zone: UTC."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Number of newest letters.")] = None,
    as_json: AsJson = False,
) -> int | None:
    """List dead letters, oldest first, and whether each was replayed."""
    moment = None if since is None else time_of(since, "--since")
    return call("dead_letters:list_letters", config, table, moment, limit, as_json)


@dead_letters.command("show")
def dead_letters_show(
    config: Config,
    place: Annotated[str, typer.Argument(metavar="PLACE", help="The letter's partition:offset, as 0:17.")],
) -> int | None:
    """Show one dead letter: its headers, key, value, and changes."""
    return call("dead_letters:show", config, place)


@dead_letters.command("replay")
def dead_letters_replay(
    config: Config,
    places: Annotated[
        list[str] | None, typer.Argument(metavar="[PLACE]...", help="partition:offset, such as 0:17.")
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All letters not replayed yet.")] = False,
    table: Annotated[
        str | None, typer.Option("--table", help="All of this database.table not replayed yet.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int | None:
    """Send dead letters back through their table's handlers, in this process."""
    if (places is not None) + everything + (table is not None) != 1:
        raise typer.BadParameter("give either --all, or --table, or the places of letters such as 0:17")
    return call("dead_letters:replay", config, places, table, dry_run, yes)
