"""What a sample's records lack, and which columns handlers receive of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import typer
from rich.console import Console
from rich.text import Text

from handlers import Change
from handlers.options.faults import nearest
from worker.column_rules.plan import ColumnPlans, RuleFault
from worker.commands.output import Output, table_with
from worker.configuration import Configuration, TableRule

_TYPES = {
    "debezium": (
        "decimals stay base64 text, and dates and times stay numbers. Let the connector send schemas "
        "(value.converter.schemas.enable=true), name its DDL topic in kafka.ddl_topics (MySQL, MariaDB), or "
        'give types in debezium.columns: docs/formats.md, "What tells the types"'
    ),
    "maxwell": (
        "dates and bytes stay text. Let Maxwell write DDL (output_ddl=true) and name its topic in "
        'kafka.ddl_topics: docs/formats.md, "Maxwell"'
    ),
    "canal": 'every value stays text, because mysqlType is missing: docs/formats.md, "Canal"',
}
"""Hints by format. DTS always has types, and custom JSON has them in the configuration."""
_KEYS = {
    "debezium": (
        "If the table has a key, take the sample with record keys (kcat -J), and let the connector write "
        'keys: docs/formats.md, "Debezium"'
    ),
    "json": 'If they have one, set json.key to its place: docs/formats.md, "JSON of your own"',
}


@dataclass(slots=True)
class _Columns:
    """Columns of a table -> type, if known; in the order in which they were first seen."""

    rule: TableRule
    of_source: dict[str, str | None] = field(default_factory=dict)
    transformed: set[str] = field(default_factory=set)
    """Columns of the rows of which `sent` was made."""
    sent: dict[str, str | None] = field(default_factory=dict)


class Review:
    """The columns of the tables in a sample."""

    def __init__(self, configuration: Configuration, output: Output) -> None:
        self._configuration = configuration
        self._clean = output.clean
        self._tables: dict[str, _Columns] = {}

    def see(self, table: str, rule: TableRule, changes: Iterable[Change]) -> None:
        """Add changes of the table, as the source sends them."""
        columns = self._tables.setdefault(table, _Columns(rule)).of_source
        for change in changes:
            for name, type_ in (change.types or {}).items():
                columns[name] = type_
            for row in (change.before, change.after):
                for name in row or ():
                    columns.setdefault(name, None)

    def see_sent(self, table: str, changes: Iterable[Change], sent: Iterable[Change]) -> None:
        """Add what handlers receive of changes that were seen. A whole row shows what a transform removes."""
        seen = self._tables[table]
        seen.transformed.update(name for change in changes for name in change.after or ())
        for change in sent:
            seen.sent.update({name: (change.types or {}).get(name) for name in change.after or ()})

    def show(self, console: Console) -> int:
        """Print them, and a line for each name in the rules that no table has. Return how many those are."""
        for table, columns in sorted(self._tables.items()):
            if columns.of_source:
                self._print(console, table, columns)
        faults = list(self._unknown())
        for fault in faults:
            typer.echo(self._clean(fault), err=True)
        return len(faults)

    def _print(self, console: Console, table: str, columns: _Columns) -> None:
        rule = columns.rule
        shown = table_with(
            ("column", "type", "new name", "type", "applied rules"),
            title=Text(self._clean(f"What handlers receive of {table}")),
            title_justify="left",
        )
        plans = ColumnPlans(rule.columns, None) if rule.row_rules is None else rule.row_rules.plans
        for row in _rows(plans, columns):
            shown.add_row(*(Text(self._clean(cell)) for cell in row))
        if rule.row_rules is not None and rule.deletes == "mark":
            shown.add_row("", "", rule.deleted_column, "timestamp(6)", "added: time of the delete")
        console.print(shown)
        if rule.filter is not None:
            console.print(Text(self._clean(f"Only rows with: {rule.filter}")), soft_wrap=True)
        if rule.deletes != "apply":
            console.print(Text(f"Deletes: {rule.deletes}"))
        try:
            plans.leaving(columns.of_source)
        except RuleFault as fault:
            console.print(Text(self._clean(str(fault)), style="red"), soft_wrap=True)

    def _unknown(self) -> Iterator[str]:
        """Yield a sentence for each name in a rule that none of its tables in the sample has."""
        for number, rule in enumerate(self._configuration.tables):
            columns = {
                name: None for one in self._tables.values() if one.rule is rule for name in one.of_source
            }
            if (rules := rule.row_rules) is None or not columns or rule.transform is not None:
                continue  # a transform may add columns
            missing = () if rules.filter is None else rules.filter.missing_of(columns)
            named = [("columns", *one) for one in rules.plans.unknown(columns)]
            for key, name, near in (*named, *(("filter", name, nearest(name, columns)) for name in missing)):
                hint = f"; nearest: {near}" if near else ""
                yield f"tables[{number}].{key}: no table of the sample has a column {name}{hint}"


def _rows(plans: ColumnPlans, columns: _Columns) -> Iterator[tuple[str, str, str, str, str]]:
    rule, sent = columns.rule, columns.sent
    new = dict.fromkeys(name for name in sent if name not in plans.new_types)
    if rule.deletes == "mark":
        new.pop(rule.deleted_column, None)
    for name, type_ in columns.of_source.items():
        one = plans.treatment(name)
        if one is None:
            yield name, type_ or "", "-", "", "left out"
            continue
        done, type_sent = [], one.type_of(type_ or "")
        new.pop(one.to, None)
        if rule.transform is not None and one.mask is None:
            if sent and one.to not in sent and name in columns.transformed:
                yield name, type_ or "", "-", "", "removed by transform"
                continue
            done.append("passes transform")
            type_sent = sent.get(one.to) or type_sent
        if one.mask is not None:
            mask = one.mask.rule
            stays = ", ".join(
                f"the {which} {count}"
                for which, count in (("first", mask.first), ("last", mask.last))
                if count
            )
            done.append(
                {
                    "hash": "hashed (HMAC-SHA-256, keyed)",
                    "redact": "every value is ***",
                    "partial": f"{stays} visible; *** for the rest",
                    "null": "every value is NULL",
                }[mask.kind]
            )
        if one.cast is not None:
            done.append("cast")
        if one.to != name:
            done.append("renamed")
        yield name, type_ or "", one.to, type_sent, ", ".join(done) or "unchanged"
    for name, type_ in plans.new_types.items():
        expression = plans.computed.expressions.get(name)
        yield "", "", name, type_, "added" if expression is None else f"computed: {expression.text}"
    for name in new:
        yield "", "", name, sent[name] or "", "added by transform"


@dataclass(slots=True)
class _Table:
    format: str
    has_types: bool = False
    has_key: bool = False


class Untold:
    """Tracks for each table whether any of its rows had types, and a key."""

    def __init__(self, ddl_topics: Sequence[str]) -> None:
        """`ddl_topics`: the topics of `kafka.ddl_topics`, whose records in the sample supply types."""
        self._ddl_topics = ddl_topics
        self._tables: dict[str, _Table] = {}

    def see(self, table: str, format_: str, changes: Iterable[Change]) -> None:
        for change in changes:
            if change.op in ("ddl", "truncate"):
                continue
            seen = self._tables.setdefault(table, _Table(format_))
            seen.has_types = seen.has_types or bool(change.types)
            seen.has_key = seen.has_key or bool(change.key_columns)

    def notes(self) -> Iterator[str]:
        """Yield a sentence for each fact that a table's records lack."""
        for name, table in sorted(self._tables.items()):
            if not table.has_types and table.format in _TYPES:
                yield f"{name}: {self._of_types(table.format)}"
            if not table.has_key:
                hint = _KEYS.get(table.format, "")
                told = "the records have no key, so rows are identified by all their columns together"
                yield f"{name}: {told}. {hint}" if hint else f"{name}: {told}"

    def _of_types(self, format_: str) -> str:
        if self._ddl_topics:
            return (
                "the records have no types, and the sample has no definition of the table: put records of "
                f"kafka.ddl_topics ({', '.join(self._ddl_topics)}) before them to see the types"
            )
        return f"the records have no types: {_TYPES[format_]}"
