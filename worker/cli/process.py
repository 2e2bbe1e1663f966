"""The process of a command: its standard files, uncaught errors, and exit code."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import TracebackType

import typer

from worker.cli.command_line import app
from worker.running.process import LastResort

_END_SECONDS = 60.0
"""Time for threads that handlers left behind to end after the command is done."""


def main() -> None:
    """The entry point of `binlane`."""
    _fill_standard_files()
    _take_unhandled()
    code = _exit_code(sys.argv[1:])
    # Python waits for threads that a handler may have left, and for exit hooks.
    LastResort(code).arm(_END_SECONDS)
    sys.exit(code)


def _take_unhandled() -> None:
    """Log uncaught errors like all others, including those of handlers' threads. Python would print them with
    their secrets."""

    def log(error: BaseException | None) -> bool:
        from worker.observing import logs

        return isinstance(error, Exception) and logs.log_unhandled(error)

    def of_main(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not log(error):
            sys.__excepthook__(kind, error, trace)

    def of_thread(found: threading.ExceptHookArgs) -> None:
        if not log(found.exc_value):
            threading.__excepthook__(found)

    sys.excepthook, threading.excepthook = of_main, of_thread


def _fill_standard_files() -> None:
    """Open standard files that were closed. Otherwise the next file would get that number and output."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open to the end of the process


def _exit_code(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        code = command.main(arguments or ["--help"], prog_name="binlane", standalone_mode=False)
        code = code if arguments else 2
        sys.stdout.flush()
    except typer.Abort:
        return 130
    except BrokenPipeError:
        # The reader of the output has closed it. Without this, Python reports an error when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _told(error)
    return code if isinstance(code, int) else 0


def _told(error: Exception) -> int:
    """Print a user's fault as one line. Raise any other error again."""
    # Some versions of Typer contain their own Click, so its errors are recognized by their method.
    if hasattr(error, "format_message"):
        message = " ".join(error.format_message().split())
        typer.echo(f"binlane: {message} (see binlane --help)", err=True)
        return 2
    from worker.configuration import ConfigurationError

    if not isinstance(error, ConfigurationError):
        raise error
    typer.echo(str(error), err=True)
    return 2
