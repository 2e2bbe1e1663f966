"""What several commands take, and how each is called: imported only then."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["AsJson", "Config", "Patterns", "call", "time_of"]

# Whether the file can be read is told like every other fault of it: by `load`, in one line.
Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration file (YAML).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Patterns = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PATTERN]...", help="Only these: globs on database.table, or /expressions/."),
]


def call(command: str, *arguments: Any, **options: Any) -> int | None:
    """Call `module:function` of `worker.commands`."""
    module, _, function = command.partition(":")
    # What is imported stays: to look through it for garbage again and again is a twentieth of a start.
    gc.disable()
    try:
        found = getattr(import_module(f"worker.commands.{module}"), function)
    finally:
        gc.enable()
    code: int | None = found(*arguments, **options)
    return code


def time_of(text: str, option: str = "--time") -> datetime:
    """In UTC where it names no zone. Raises BadParameter, which names `option`."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option}: found {text!r}; allowed: an ISO 8601 time such as 2026-11-21T10:00:00Z"
        ) from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time
