"""Set up commands, and print their output without secrets and control characters."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from worker.configuration import Configuration, load
from worker.observing import logs
from worker.observing.visible_text import visible

WIDEST = 1_000
"""Without a terminal, wide tables are not folded, so that users can search the output."""
_TELL_SECONDS = 5.0


def begin(
    command: str, config: Path, *, level: str | None = None, check_handlers: bool = True
) -> tuple[Configuration, Output]:
    """Load a command's configuration, and set up its log. `level`: instead of the configuration's own.

    Raises ConfigurationError."""
    configuration = load(config, check_handlers=check_handlers)
    redact = configuration.secrets.redact
    logs.configure(level or configuration.logging.level, configuration.logging.format, redact=redact)
    return configuration, Output(command, redact)


def wide_console(width: int = 160) -> Console:
    """Return standard output. `width`: in characters, if it is not a terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=width)


def table_with(headings: Iterable[str], right: Collection[str] = (), **options: Any) -> Table:
    """Create a table whose long cells are folded. `right`: headings of columns of numbers."""
    table = Table(**options)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return table


class Output:
    """The output of one command."""

    def __init__(self, command: str, redact: Callable[[str], str] = str) -> None:
        self._command = command
        self._redact = redact
        self._told = -_TELL_SECONDS

    def clean(self, text: str, *, lines: bool = False) -> str:
        """Remove secrets and control characters. `lines`: keep line breaks."""
        return visible(self._redact(text), lines=lines)

    def say(self, text: str) -> None:
        """Print one line on standard error."""
        print(self.clean(" ".join(text.split())), file=sys.stderr, flush=True)

    def say_now_and_then(self, text: str) -> None:
        """Print one line on standard error, unless one was printed in the last five seconds."""
        if time.monotonic() - self._told > _TELL_SECONDS:
            self._told = time.monotonic()
            self.say(text)

    def failed(self, message: object, code: int = 1) -> int:
        """Print an error on standard error. Return `code`."""
        self.say(f"binlane {self._command}: {message}")
        return code

    def json(self, value: Any) -> None:
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        print(self.clean(text, lines=True))
