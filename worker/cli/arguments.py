"""Arguments shared by several commands, and the function that imports and calls a command."""

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
        raise WithoutExtra(module, package) from None
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
