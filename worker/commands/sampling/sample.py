"""`binlane check CONFIG --sample FILE`: show how the worker would handle these records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from handlers import Change
from handlers.options.matching import table_matcher, topics_matcher
from handlers.values.change_json import line
from worker.column_rules.applying import bring_under
from worker.column_rules.transforms import FAULTS
from worker.commands.output import Output
from worker.commands.sampling.guessing import changes_by_route, other_format
from worker.commands.sampling.review import Review, Untold
from worker.configuration import Configuration, ConfigurationError, Fault, TableRule
from worker.configuration.formats import formats_of
from worker.formats.interface import Format, Record, Route, SeparateDDL, Skip, UndecodableRecord
from worker.formats.registry import NoFormatError
from worker.formats.sample import SampleError, read_samples
from worker.observing.visible_text import visible
from worker.units.table import home_lane

_SAID_BY_THE_HEADING = frozenset(("database", "table", "topic", "partition", "offset"))


def show_samples(configuration: Configuration, file: Path, console: Console, output: Output) -> int:
    """Print each record's position, table, lane, handlers and changes.

    For each table, also print the columns that handlers receive, and the facts that its records lack.

    Returns 1 if a record cannot be decoded or is refused by its rules. Also 1 if no record matches a rule, or
    the tables lack a rule's column. Else 0.

    Raises ConfigurationError: the file cannot be read, or one of its lines is not a record."""
    formats = formats_of(configuration)
    has_ddl = topics_matcher(configuration.kafka.ddl_topics)
    try:
        records = list(read_samples(file, default_topic(configuration)))
    except SampleError as error:
        line, _, told = str(error).removeprefix(str(file)).partition(": ")  # a fault of the file has no line
        raise ConfigurationError([Fault(f"{file}{line}", told)]) from None
    results: Counter[str] = Counter()
    shown = _Shown(configuration, console, output)
    for record in records:
        try:
            format_ = formats.of(record.topic())
        except NoFormatError as error:
            results["undecodable"] += 1
            _print(console, record, Text(f"no format: {error}", style="red"))
            continue
        if isinstance(format_, SeparateDDL) and has_ddl(record.topic()):
            format_.learn(record)
        results[shown.record(format_, record)] += 1
    told = ", ".join(f"{count} {what}" for what, count in sorted(results.items())) or "none"
    console.print(Text(f"{len(records)} records: {told}"))
    faults = shown.end(has_met=bool(results["decoded"] or results["refused"]))
    return 1 if results["undecodable"] or results["refused"] or faults else 0


class _Shown:
    """The records of a sample, and what they show about their tables."""

    def __init__(self, configuration: Configuration, console: Console, output: Output) -> None:
        self._configuration = configuration
        self._console = console
        self._clean = output.clean
        self._review = Review(configuration, output)
        self._untold = Untold(configuration.kafka.ddl_topics)
        self._unmatched: list[str] = []

    def record(self, format_: Format, record: Record) -> str:
        """Print a record. Return skipped, undecodable, decoded, refused (by its rules), or unmatched."""
        try:
            found = changes_by_route(format_, record)
        except UndecodableRecord as fault:
            near = other_format(format_, record)
            hint = f"; it can be read as {near}: is this the right format?" if near else ""
            _print(self._console, record, Text(f"undecodable as {format_.name}: {fault}{hint}", style="red"))
            return "undecodable"
        if isinstance(found, Skip):
            _print(self._console, record, Text(f"skipped: {found.reason}", style="dim"))
            return "skipped"
        results = {self._changes(format_, route, changes, record) for route, changes in found}
        return next((result for result in ("refused", "decoded") if result in results), "unmatched")

    def end(self, *, has_met: bool) -> int:
        """Print notes about the tables. `has_met`: a record matched a rule. Return the number of faults."""
        faults = self._review.show(self._console)
        for note in self._untold.notes():
            self._console.print(Text(self._clean(f"Note: {note}")), soft_wrap=True)
        if has_met or not self._unmatched:
            return faults
        typer.echo(self._clean(unmet(self._configuration.tables, self._unmatched)), err=True)
        return faults + 1

    def _changes(self, format_: Format, route: Route, changes: list[Change], record: Record) -> str:
        console, table = self._console, f"{route.database}.{route.table}"
        rule = self._configuration.rule_for(table)
        if rule is None:
            self._unmatched.append(table)
            _print(console, record, Text(f"{table}: no rule matches, skipped", style="dim"))
            return "unmatched"
        lane = home_lane(table, self._configuration.lanes.count)
        handlers = ", ".join(entry.name for entry in rule.handlers)
        alone = ", alone in its batch" if route.alone else ""
        self._review.see(table, rule, changes)
        self._untold.see(table, format_.name, changes)
        sent = tuple(changes)
        try:
            names: Any = {"database": route.database, "table": route.table}
            bring_under(rule.row_rules, rule.statement_rules, changes, 0, rule.transforming, **names)
        except FAULTS as fault:
            _print(console, record, Text(f"{table}: refused by its rules: {fault}", style="red"))
            return "refused"
        if rule.transform is not None:
            self._review.see_sent(table, sent, changes)
        unmet = None if rule.expectations is None else rule.expectations.unmet(changes, table)
        if unmet is not None:
            _print(console, record, Text(f"{unmet.action}: {unmet}", style="red"))
            if unmet.action != "warn":
                return "refused"
        _print(console, record, Text(f"{table} → lane {lane} → {handlers}{alone}"))
        for change in changes:
            console.print(Text(f"    {self._clean(_shown(change, table))}"), soft_wrap=True)
        if back := _kept_back(rule, sent, len(changes)):
            console.print(Text(f"    {back}", style="dim"))
        return "decoded"


def _kept_back(rule: TableRule, sent: Sequence[Change], left: int) -> str:
    """Format how many changes the rules removed, and by which keys; empty if none."""
    if left >= len(sent):  # a transform may add some
        return ""
    removing: dict[str, object] = {"filter": rule.filter, "transform": rule.transform}
    removing["deletes: ignore"] = rule.deletes == "ignore"
    is_ddl = all(change.op == "ddl" for change in sent)
    by = [key for key, is_set in removing.items() if is_set and not is_ddl]
    count = f"{len(sent) - left} of {len(sent)} changes " if left else ""
    return f"{count}removed by {' or '.join(by) or 'its rules'}"


def _shown(change: Change, table: str) -> str:
    """Format the change as JSON, without empty fields and those in its heading."""
    fields = msgspec.json.decode(line(change, "", table))
    left = {key: one for key, one in fields.items() if one is not None and key not in _SAID_BY_THE_HEADING}
    return msgspec.json.encode(left).decode()


def _print(console: Console, record: Record, what: Text) -> None:
    place = f"{record.topic()}[{record.partition()}] offset {record.offset()}: "
    what.plain = visible(what.plain)
    console.print(Text.assemble((place, "bold"), what), soft_wrap=True)


def default_topic(configuration: Configuration) -> str:
    """Return the first topic that is a name, not an expression."""
    names = [topic for topic in configuration.kafka.topics if not topic.startswith("^")]
    return names[0] if names else "sample"


# ---- the rule that was probably meant, if no record matches one

_MOST_TABLES = 5
_ALIKE = 0.6
"""The least similarity of words that difflib calls alike."""


def unmet(rules: Sequence[TableRule], tables: Iterable[str]) -> str:
    """Return one line: the sample's tables (`database.table`), and the rule most similar to one of them.

    >>> unmet([TableRule(match="shpo.*", handlers=[{"type": "log"}])], ["shop.orders"])
    'no record of the sample meets a rule; its tables: shop.orders; nearest: tables[0].match: shpo.*'
    """
    names = list(dict.fromkeys(tables))
    shown = ", ".join(names[:_MOST_TABLES])
    if len(names) > _MOST_TABLES:
        shown += f" and {len(names) - _MOST_TABLES} more"
    told = f"no record of the sample matches a rule; its tables: {shown}"
    alike = [(_likeness(rule.match, name), -number) for number, rule in enumerate(rules) for name in names]
    likeness, number = max(alike, default=(0.0, 0))
    if likeness < _ALIKE:
        return f"{told}; tables are matched as database.table"
    return f"{told}; nearest: tables[{-number}].match: {rules[-number].match}"


def _likeness(pattern: str, name: str) -> float:
    """Return the similarity, 0 to 1. A glob's halves are compared alone: wildcards resemble nothing."""
    database, dot, table = pattern.partition(".")
    if pattern.startswith("/") or not dot:
        return SequenceMatcher(None, pattern.strip("/").casefold(), name.casefold()).ratio()
    of_database, _, of_table = name.partition(".")
    return (_of_half(database, of_database) + _of_half(table, of_table)) / 2


def _of_half(pattern: str, name: str) -> float:
    if table_matcher(f"*.{pattern}")(f".{name}"):
        return 1.0
    return SequenceMatcher(None, pattern.casefold(), name.casefold()).ratio()
