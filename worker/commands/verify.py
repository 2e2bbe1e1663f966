"""`binlane verify`: compare the replicas with the source database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.box import HEAVY_HEAD
from rich.text import Text

from handlers.options.values import parse_duration
from handlers.spark.options import SparkOptions
from handlers.sql.target.engine import check_url
from worker.commands.output import WIDEST, Output, begin, table_with, wide_console
from worker.configuration import Configuration, ConfigurationError, Fault, Secrets
from worker.verifying.checking import Check
from worker.verifying.run import Report, TableReport, compare
from worker.verifying.spark_lakes import chosen_by

_LONGEST = 80
"""The most characters of a value that are shown."""


def verify(
    config: Path,
    against: str,
    patterns: Sequence[str] = (),
    *,
    through: str = "view",
    chunk: int = 10_000,
    settle: str = "30s",
    limit: int = 20,
    repair: bool = False,
    as_json: bool = False,
) -> int:
    """Compare every replica with its source table. `repair`: write the rows that differ.

    Progress is printed on standard error, except with JSON. Returns 0 if all tables are equal, or are after
    the repair. Returns 1 if not, if a side cannot be reached, or if no table matches one of the patterns.

    Raises ConfigurationError: the configuration cannot be used, or has no Spark replicas; typer.BadParameter:
    an argument is invalid."""
    chosen = chosen_by(patterns)
    if through not in ("view", "table"):
        raise typer.BadParameter(f"--through: found {through!r}; allowed: view, table")
    try:
        seconds = parse_duration(settle)
    except ValueError:
        raise typer.BadParameter(f"--settle: found {settle!r}; allowed: a duration such as 30s") from None
    try:
        url = check_url(against)
    except ValueError as error:
        raise typer.BadParameter(f"--against: {error}") from None
    configuration, output = begin("verify", config, level="warning")
    _refuse_others(config, configuration)
    configuration.secrets.learn(Secrets([url.password] if url.password else []))
    report = compare(
        configuration,
        url,
        chosen,
        with_waiting=through == "view",
        chunk=chunk,
        settle=seconds,
        limit=limit,
        repair=repair,
        say=None if as_json else output.say,
        tell=None if as_json else output.say_now_and_then,
    )
    # A misspelled name must not look like a table that was compared.
    unmet = [each for each in patterns if not any(map(chosen_by([each]), report.names))]
    if unmet and report.error is None:
        told = ", ".join(map(repr, unmet))
        report.error = f"no replica, and no table that should have a replica, matches {told} (database.table)"
    if as_json:
        output.json(_as_json(report, limit))
    else:
        _print(report, limit, output)
    if report.error is not None:
        output.failed(report.error)
    return 0 if report.is_equal else 1


def _refuse_others(config: Path, configuration: Configuration) -> None:
    """Raise ConfigurationError if there is nothing to compare."""
    entries = [entry for rule in configuration.tables for entry in rule.handlers]
    spark = [SparkOptions.model_validate(each.options) for each in entries if each.type == "spark"]
    if not any(options.mode == "replica" for options in spark):
        others = [each.type for each in entries if each.type != "spark"]
        others += [f"spark with mode: {options.mode}" for options in spark]
        told = "verify compares Spark replicas (type: spark, mode: replica); this configuration has only "
        raise ConfigurationError([Fault(str(config), told + ", ".join(dict.fromkeys(others)))])


def _as_json(report: Report, limit: int) -> dict[str, Any]:
    return {
        "equal": report.is_equal,
        "error": report.error,
        "tables": [_table_as_json(each, limit) for each in report.tables],
    }


def _table_as_json(report: TableReport, limit: int) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "table": report.table,
        "handler": report.handler,
        "state": report.state,
        "error": report.error,
    }
    if report.check is None:
        return shown
    outcome = report.check.outcome
    return shown | {
        "source_rows": outcome.source_rows,
        "replica_rows": outcome.replica_rows,
        "ranges": outcome.ranges,
        "different_ranges": outcome.different_ranges,
        "different_rows": outcome.different_rows,
        "repaired_rows": report.repaired,
        "differences": [
            {"row": kind, "key": key, "columns": columns}
            for kind, key, columns in _differences(report.check, limit)
        ],
        "notes": outcome.notes,
        "seconds": round(outcome.seconds, 3),
    }


def _differences(check: Check, limit: int) -> list[tuple[str, dict[str, str], dict[str, dict[str, str]]]]:
    """Return the first differences: what is wrong, the row's key, and its columns on both sides."""
    found = []
    names = check.columns
    for each in check.outcome.differences[:limit]:
        key = {name: _short(value) for name, value in zip(check.key, each.key, strict=False)}
        if each.source is None or each.replica is None:
            kind = "missing" if each.replica is None else "surplus"
            row = each.source or each.replica or ()
            side = "source" if each.replica is None else "replica"
            columns = {
                name: {side: _short(value)} for name, value in zip(names, row, strict=True) if name not in key
            }
        else:
            kind = "different"
            columns = {
                name: {"source": _short(ours), "replica": _short(theirs)}
                for name, ours, theirs in zip(names, each.source, each.replica, strict=True)
                if repr(ours) != repr(theirs)
            }
        found.append((kind, key, columns))
    return found


def _short(value: Any) -> str:
    if value is None:
        return "NULL"
    text = f"0x{value.hex()}" if isinstance(value, bytes) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters)"


def _print(report: Report, limit: int, output: Output) -> None:
    console = wide_console(WIDEST)
    if not report.tables:
        if report.error is None:
            console.print(Text("No replicas to compare."))
        return
    numbers = ("source rows", "replica rows", "ranges", "seconds", "different rows")
    table = table_with(("table", "", *numbers), numbers, box=HEAVY_HEAD if console.is_terminal else None)
    for each in report.tables:
        cells: tuple[str, ...] = ("-",) * 5
        if each.check is not None:
            outcome = each.check.outcome
            cells = (
                f"{outcome.source_rows:,}",
                f"{outcome.replica_rows:,}",
                f"{outcome.ranges:,}",
                f"{outcome.seconds:.1f}",
                f"{outcome.different_rows:,}",
            )
        table.add_row(Text(output.clean(each.table)), Text(each.state), *cells)
    console.print(table)
    for each in report.tables:
        for line in _told(each, limit):
            console.print(Text(output.clean(" ".join(line.split()))), soft_wrap=True)


def _told(report: TableReport, limit: int) -> Iterator[str]:
    if report.error is not None:
        yield f"{report.table}: {report.error}"
    if report.repaired:
        yield f"{report.table}: rows written as the source has them: {report.repaired:,}"
    if report.check is None:
        return
    outcome = report.check.outcome
    for note in outcome.notes:
        yield f"{report.table}: {note}"
    shown = _differences(report.check, limit) if outcome.different_rows else []
    for kind, key, columns in shown:
        where = ", ".join(f"{name}={value}" for name, value in key.items())
        what = {"missing": "not in the replica", "surplus": "not in the source", "different": "different"}[
            kind
        ]
        told = "; ".join(f"{name} {_both(values)}" for name, values in columns.items())
        yield f"{report.table} {where}: {what}: {told}" if where else f"{report.table}: {what}: {told}"
    if outcome.different_rows > len(shown):
        yield f"{report.table}: {outcome.different_rows - len(shown):,} more rows differ"


def _both(values: Mapping[str, str]) -> str:
    if len(values) == 1:
        return f"is {next(iter(values.values()))}"
    return f"is {values['source']} in the source and {values['replica']} in the replica"
