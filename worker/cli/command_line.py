"""The command `binlane`. Add a subcommand here (in a group: `command_groups`). Its code is a module of
`worker.commands`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from worker import __version__
from worker.cli.command_groups import AsJson, Config, Patterns, call, checkpoint, dead_letters

Token = Annotated[
    str | None, typer.Option(envvar="BINLANE_TOKEN", help="The worker's http.token. Not needed with CONFIG.")
]
Authorities = Annotated[
    Path | None, typer.Option("--ca", metavar="FILE", help="Trust the authorities in this PEM file.")
]
Target = Annotated[
    str, typer.Argument(metavar="CONFIG|URL", help="The worker's configuration on this machine, or a URL.")
]
Paused = Annotated[str, typer.Option("--table", metavar="PATTERN", help="Such as shop.orders or shop.*")]
PausedHandler = Annotated[
    str | None, typer.Option("--handler", metavar="NAME", help="Only this handler of the tables.")
]
_STATUS_URL = "http://127.0.0.1:8080"

app = typer.Typer(
    name="binlane",
    help="Pass database change records from Kafka to handlers chosen per table: in parallel, in order.",
    add_completion=False,
    rich_markup_mode=None,
)
app.add_typer(checkpoint, name="checkpoint")
app.add_typer(dead_letters, name="dead-letters")


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
    return call("run:run", config)


@app.command()
def check(
    config: Config,
    connect: Annotated[
        bool, typer.Option("--connect", help="Also connect to Kafka and to all targets.")
    ] = False,
    sample: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Show how these records are handled (JSON lines: value, or key and value)."
        ),
    ] = None,
) -> int | None:
    """Check a configuration, and print which handlers each pattern leads to."""
    return call("check:check", config, connect, sample)


@app.command()
def schema() -> int | None:
    """Print the JSON Schema of the configuration, for editors."""
    return call("check:schema")


@app.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file. It must not exist.")],
    *,
    kafka: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Kafka's bootstrap servers.")] = None,
    topic: Annotated[
        str | None, typer.Option(help="A name, or an expression: ^cdc. Its first records are read.")
    ] = None,
    handler: Annotated[str | None, typer.Option(help="The target: sql, spark, redis, log ...")] = None,
    url: Annotated[str | None, typer.Option(help="The target's URL. Default: one on this machine.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="Of the Kafka client, for TLS and SASL."),
    ] = None,
) -> int | None:
    """Write a first configuration from a topic's records. Asks for what is missing."""
    given = {"kafka": kafka, "topic": topic, "handler": handler}
    return call("init:init", file, url=url, properties=properties or (), **given)


@app.command()
def demo(
    directory: Annotated[
        Path | None, typer.Option(help="A new or empty folder for all output. Default: a temporary folder.")
    ] = None,
    changes: Annotated[int, typer.Option(min=1000, help="Number of row changes.")] = 50_000,
    seed: Annotated[int, typer.Option(help="Seed of the random changes.")] = 7,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder.")] = False,
) -> int | None:
    """Run a demo on this machine: Kafka, a small shop's changes, the worker with Spark."""
    return call("local:demo", directory, changes, seed, keep)


@app.command()
def status(
    target: Annotated[
        str,
        typer.Argument(metavar="[CONFIG|URL]", help="The worker's configuration on this machine, or a URL."),
    ] = _STATUS_URL,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    *,
    token: Token = None,
    ca: Authorities = None,
) -> int | None:
    """Show what a worker is doing: partitions, lanes, tables, checkpoint."""
    return call("asking.status:status", target, as_json, watch, token=token, ca=ca)


@app.command()
def unblock(
    target: Target,
    *,
    offset: Annotated[int, typer.Option("--offset", min=0, help="The record's offset.")],
    table: Annotated[
        str, typer.Option("--table", help="The blocked database.table. Omit it for an unreadable batch.")
    ] = "",
    skip: Annotated[bool, typer.Option("--skip", help="Skip the record.")] = False,
    dead_letter: Annotated[
        bool, typer.Option("--dead-letter", help="Write it to the dead-letter topic.")
    ] = False,
    topic: Annotated[str | None, typer.Option("--topic", help="Needed if several topics have it.")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="Needed if several partitions have it.")
    ] = None,
    token: Token = None,
    ca: Authorities = None,
) -> int | None:
    """Set aside one record that blocks a table of a running worker. It is tried once more first."""
    if skip == dead_letter:
        raise typer.BadParameter("give either --skip or --dead-letter")
    action = "skip" if skip else "dead_letter"
    where = {"topic": topic, "partition": partition, "token": token, "ca": ca}
    return call("asking.orders:unblock", target, table, offset, action, **where)


@app.command()
def pause(
    target: Target,
    *,
    table: Paused,
    handler: PausedHandler = None,
    duration: Annotated[str | None, typer.Option("--for", help="Resume after this time, such as 1h.")] = None,
    reason: Annotated[str | None, typer.Option(help="Shown in the status and the log.")] = None,
    token: Token = None,
    ca: Authorities = None,
) -> int | None:
    """Pause tables of one running worker. Their records wait, also after a restart."""
    what = {"table": table, "handler": handler, "duration": duration, "reason": reason}
    return call("asking.orders:pause", target, "pause", **what, token=token, ca=ca)


@app.command()
def resume(
    target: Target,
    *,
    table: Paused,
    handler: PausedHandler = None,
    token: Token = None,
    ca: Authorities = None,
) -> int | None:
    """End a pause of one running worker."""
    return call("asking.orders:pause", target, "resume", table=table, handler=handler, token=token, ca=ca)


@app.command()
def tables(
    config: Config,
    patterns: Patterns = None,
    as_json: AsJson = False,
    views: Annotated[bool, typer.Option("--views", help="Print statements that create views.")] = False,
) -> int | None:
    """List Spark handlers' tables: rows, files, size, unmerged rows, times and offsets."""
    return call("tables:tables", config, patterns or (), as_json, views)


@app.command()
def query(
    config: Config,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="Such as 'SELECT * FROM shop.orders LIMIT 10'.")],
    *,
    format: Annotated[str, typer.Option(metavar="table|json|csv|arrow", help="Of the rows.")] = "table",
) -> int | None:
    """Run a query of DuckDB on Spark handlers' tables, with unmerged rows. Needs no Java."""
    if format not in ("table", "json", "csv", "arrow"):
        raise typer.BadParameter(f"--format: found {format!r}; allowed: table, json, csv, arrow")
    return call("query:query", config, sql, format)


Against = Annotated[
    str,
    typer.Option(
        "--against", metavar="URL", envvar="BINLANE_AGAINST", help="Source: mysql://user@host/shop."
    ),
]
Through = Annotated[str, typer.Option(metavar="view|table", help="With unmerged changes (view) or without.")]


@app.command()
def verify(
    config: Config,
    against: Against,
    patterns: Patterns = None,
    *,
    through: Through = "view",
    chunk: Annotated[int, typer.Option(min=1, help="Source rows per checksum.")] = 10_000,
    settle: Annotated[str, typer.Option(help="Recheck different rows for this long.")] = "30s",
    limit: Annotated[int, typer.Option(min=0, help="Differences listed per table.")] = 20,
    repair: Annotated[
        bool, typer.Option("--repair", help="Change different rows to match the source.")
    ] = False,
    as_json: AsJson = False,
) -> int | None:
    """Compare the Spark handlers' replicas with the source database, row by row."""
    options = {"through": through, "chunk": chunk, "settle": settle, "limit": limit, "repair": repair}
    return call("verify:verify", config, against, patterns or (), **options, as_json=as_json)


@app.command()
def reload(
    config: Config,
    *,
    table: Annotated[str, typer.Option("--table", help="Its name in the source: database.table.")],
    handler: Annotated[str | None, typer.Option("--handler", help="Needed if the table has several.")] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Read its topic from the beginning. Required.")
    ] = False,
    alone: Annotated[
        bool, typer.Option("--alone", help="Confirm that no worker runs. For single-writer stores (S3).")
    ] = False,
) -> int | None:
    """Rebuild one SQL or Spark table from its topic, while a worker continues."""
    if not from_beginning:
        raise typer.BadParameter("give --from-beginning")
    if not all(table.partition(".")[::2]):
        raise typer.BadParameter(f"--table {table}: write database.table, as the source calls it")
    return call("reload:reload", config, table, handler, alone=alone)


@app.command()
def backfill(
    config: Config,
    *,
    table: Annotated[str, typer.Option("--table", help="Its name in the source: database.table.")],
    connector: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="Its topic.prefix. Without it, SQL is printed.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Its signal.kafka.topic.  [default: PREFIX-signal]")
    ] = None,
) -> int | None:
    """Ask Debezium to send a table's rows again (an incremental snapshot)."""
    return call("backfill:backfill", config, table, connector, topic)


@app.command()
def broker(
    directory: Annotated[
        Path | None,
        typer.Option("--directory", metavar="D", help="Folder for its data. Default: a temporary folder."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="P", min=1, max=65535, help="Its port. Default: any free port."),
    ] = None,
) -> int | None:
    """Run a real single-node Kafka in the foreground, for development and demos."""
    return call("local:broker", directory, port)
