"""The command line. Each command lives in `worker.commands` and is imported only when it is called."""

from __future__ import annotations

import os
import sys
import threading
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer

from worker import __version__
from worker.running.ending import LastResort

__all__ = ["app", "main"]

_END_SECONDS = 60.0
"""What a handler has left behind a command that is done has so long to end."""
_STATUS_URL = "http://127.0.0.1:8080"

app = typer.Typer(
    name="binlane",
    help="Database change records from Kafka to handlers chosen per table: in parallel, in order.",
    add_completion=False,
    rich_markup_mode=None,
)
checkpoint = typer.Typer(help="Look at the positions of a worker, or move them while it is stopped.")
dead_letters = typer.Typer(help="Read the dead-letter topic, or send its records back.")
app.add_typer(checkpoint, name="checkpoint")
app.add_typer(dead_letters, name="dead-letters")

# Whether the file can be read is told like every other fault of it: by `load`, in one line.
Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration file (YAML).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


Patterns = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PATTERN]...", help="Only these: globs on database.table, or /expressions/."),
]


def _call(command: str, *arguments: Any, **options: Any) -> int | None:
    """Call `module:function` of `worker.commands`."""
    module, _, function = command.partition(":")
    code: int | None = getattr(import_module(f"worker.commands.{module}"), function)(*arguments, **options)
    return code


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"binlane {__version__}")
        raise typer.Exit


@app.callback()
def _binlane(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def run(config: Config) -> int | None:
    """Run the worker in the foreground. SIGTERM or SIGINT drains; a second signal stops at once."""
    return _call("run:run", config)


@app.command()
def check(
    config: Config,
    connect: Annotated[
        bool, typer.Option("--connect", help="Also reach Kafka and every handler's target.")
    ] = False,
    sample: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Show what becomes of these records (JSON lines: value, or key and value)."
        ),
    ] = None,
) -> int | None:
    """Validate a configuration, and print which pattern leads to which handlers."""
    return _call("check:check", config, connect, sample)


@app.command()
def schema() -> int | None:
    """Print the JSON Schema of the configuration, for editors."""
    return _call("schema:schema")


@app.command()
def demo(
    directory: Annotated[
        Path | None,
        typer.Option(help="A new or empty folder for all that is written. Default: a temporary one."),
    ] = None,
    changes: Annotated[int, typer.Option(min=1000, help="How many row changes the shop makes.")] = 50_000,
    seed: Annotated[int, typer.Option(help="Another number gives another day in the shop.")] = 7,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder.")] = False,
) -> int | None:
    """Run the whole job on this machine: a real Kafka, a small shop's changes, the worker with Spark."""
    return _call("demo:demo", directory, changes, seed, keep)


@app.command()
def status(
    url: Annotated[str, typer.Argument(metavar="[URL]", help="Where the worker serves HTTP.")] = _STATUS_URL,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing, until Ctrl-C.")] = False,
    *,
    token: Annotated[
        str | None, typer.Option(envvar="BINLANE_TOKEN", help="Its http.token, if it asks for one.")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="Trust the authorities in this PEM file.")
    ] = None,
) -> int | None:
    """Show what a worker is doing: partitions, lanes, tables, checkpoint."""
    return _call("status:status", url, as_json, watch, token=token, ca=ca)


@checkpoint.command("show")
def checkpoint_show(config: Config, as_json: AsJson = False) -> int | None:
    """Show every store's position for each partition, and where a start would begin and why."""
    return _call("checkpoint:show", config, as_json)


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
            help="Begin at the first record of this time (Kafka's time of it) or later; without a zone: UTC.",
        ),
    ] = None,
) -> int | None:
    """Move a stopped worker's position, in every store."""
    if (offset is None) == (time is None):
        raise typer.BadParameter("give either --offset or --time")
    return _call("checkpoint:move", config, topic, partition, offset, None if time is None else _time(time))


def _time(text: str, option: str = "--time") -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option}: found {text!r}; allowed: an ISO 8601 time such as 2026-11-21T10:00:00Z"
        ) from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


@dead_letters.command("list")
def dead_letters_list(
    config: Config,
    table: Annotated[str | None, typer.Option("--table", help="Only those of this database.table.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="ISO8601",
            help="Only those written then or later; without a zone: UTC.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only so many of the newest.")] = None,
    as_json: AsJson = False,
) -> int | None:
    """List the dead letters, the oldest first, and whether they were replayed."""
    moment = None if since is None else _time(since, "--since")
    return _call("dead_letters:list_letters", config, table, moment, limit, as_json)


@dead_letters.command("show")
def dead_letters_show(
    config: Config,
    place: Annotated[str, typer.Argument(metavar="PLACE", help="partition:offset of the letter, as 0:17.")],
) -> int | None:
    """Show one dead letter: its headers, key, value, and changes."""
    return _call("dead_letters:show", config, place)


@dead_letters.command("replay")
def dead_letters_replay(
    config: Config,
    places: Annotated[
        list[str] | None, typer.Argument(metavar="[PLACE]...", help="partition:offset of letters, as 0:17.")
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All that were not replayed yet.")] = False,
    table: Annotated[
        str | None, typer.Option("--table", help="Those of this database.table that were not replayed yet.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int | None:
    """Send dead letters back through their table's handlers, in this process."""
    if (places is not None) + everything + (table is not None) != 1:
        raise typer.BadParameter("give either --all, or --table, or the places of letters such as 0:17")
    return _call("dead_letters:replay", config, places, table, dry_run, yes)


@app.command()
def tables(
    config: Config,
    patterns: Patterns = None,
    as_json: AsJson = False,
    views: Annotated[bool, typer.Option("--views", help="Print statements that make views instead.")] = False,
) -> int | None:
    """List the tables that the Spark handlers keep: rows, files, size, what waits, times and offsets."""
    return _call("tables:tables", config, patterns or (), as_json, views)


Against = Annotated[
    str,
    typer.Option("--against", metavar="URL", envvar="BINLANE_AGAINST", help="As in mysql://user@host/shop."),
]
Through = Annotated[str, typer.Option(metavar="view|table", help="With what is not merged yet, or without.")]


@app.command()
def verify(
    config: Config,
    against: Against,
    patterns: Patterns = None,
    *,
    through: Through = "view",
    chunk: Annotated[int, typer.Option(min=1, help="So many rows have one checksum.")] = 10_000,
    settle: Annotated[str, typer.Option(help="How long differences may be on their way.")] = "30s",
    limit: Annotated[int, typer.Option(min=0, help="So many differences of a table are listed.")] = 20,
    as_json: AsJson = False,
) -> int | None:
    """Compare the Spark handlers' replicas with the source database, row by row."""
    options = {"through": through, "chunk": chunk, "settle": settle, "limit": limit, "as_json": as_json}
    return _call("verify:verify", config, against, patterns or (), **options)


@app.command()
def broker(
    directory: Annotated[
        Path | None,
        typer.Option("--directory", metavar="D", help="Keep its data here; default: a temporary folder."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="P", min=1, max=65535, help="Its port; default: any free one."),
    ] = None,
) -> int | None:
    """Run a real single-node Kafka in the foreground, for development and demos."""
    return _call("broker:broker", directory, port)


def main() -> None:
    """The entry point of `binlane`."""
    _fill_standard_files()
    _take_unhandled()
    code = _exit_code(sys.argv[1:])
    # Python waits for the threads that a handler may have left, and for what is to be done at exit.
    LastResort(code).arm(_END_SECONDS)
    sys.exit(code)


def _take_unhandled() -> None:
    """Errors that nobody catches, those of a handler's own threads among them, are logged as all others are:
    Python would print them with the secrets that they hold."""

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
    """Those that were closed before: else the next file or socket has that number, and what is told there."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # has the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - to the end of the process


def _exit_code(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        code = command.main(arguments or ["--help"], prog_name="binlane", standalone_mode=False)
        code = code if arguments else 2
        sys.stdout.flush()
    except typer.Abort:
        return 130
    except BrokenPipeError:
        # Whoever read the output has seen enough; without this, Python complains when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _told(error)
    return code if isinstance(code, int) else 0


def _told(error: Exception) -> int:
    """One line for each fault of the user's; anything else is raised again."""
    # Typer brings a Click of its own in some versions: its errors are known by what they can do.
    if hasattr(error, "format_message"):
        message = " ".join(error.format_message().split())
        typer.echo(f"binlane: {message} (see binlane --help)", err=True)
        return 2
    from worker.configuration import ConfigurationError

    if not isinstance(error, ConfigurationError):
        raise error
    typer.echo(str(error), err=True)
    return 2


if __name__ == "__main__":
    main()
