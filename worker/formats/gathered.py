"""Reads tables of several databases as tables of one, with a column that contains the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace
from pydantic import Field

from handlers import Change
from handlers.logs import get_logger
from handlers.options.matching import lowered, table_matcher
from handlers.options.shared import Section
from handlers.options.values import TablePattern
from handlers.values.native_types import NativeTypes, in_full
from worker.formats.decoding import many_of
from worker.formats.interface import Apart, Format, PlainRoute, Record, Route, Skip, ValuelessFault, passed_on

log = get_logger("formats")

_MOST_KNOWN = 10_000
_MOST_TYPES = 256


class DatabasesRule(Section):
    """Tables of several databases that are handled as tables of one database."""

    match: TablePattern
    """Their names in the source: a glob on database.table, or /regular expression/."""
    column: str = Field(default="source_database", min_length=1)
    """A new first column with the row's own database. It is also the first column of the primary key."""


class _Place(NamedTuple):
    database: str
    column: str


class Places:
    """Where the source's tables are gathered. Any thread."""

    def __init__(self, rules: Mapping[str, DatabasesRule]) -> None:
        self._rules = [(into, rule.column, table_matcher(rule.match)) for into, rule in rules.items()]
        self.of: Callable[[str, str], _Place | None] = lru_cache(_MOST_KNOWN)(self._found)

    def _found(self, database: str, table: str) -> _Place | None:
        for into, column, matches in self._rules:
            if database and (database == into or matches(f"{database}.{table}")):
                return _Place(into, column)
        return None

    def placed(self, database: str, table: str) -> tuple[str, str]:
        """Return the database and the name under which a table is handled."""
        place = self.of(database, table)
        return database if place is None else place.database, table

    def label(self, table: str) -> str:
        """As `placed`, for "database.table"."""
        return ".".join(self.placed(*table.rpartition(".")[::2]))


class Gathered:
    """A format whose records may be of such databases. All threads share one object."""

    name: str
    source_time_ms: Callable[[Record], int | None]

    def __init__(
        self,
        format_: Format,
        rules: Mapping[str, DatabasesRule],
        refuse: Callable[[Change, Route, str], bool] = lambda *_: False,
        rule_for: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`refuse`: raises if a statement, of this route and this table for handlers, may not be skipped. If
        the table is not gathered: if it may not be handed on. Returns whether the statement empties a table,
        as some records do not tell a TRUNCATE apart. `rule_for`: returns a table's rule or None."""
        vars(self).update(passed_on(format_, Gathered))
        self.route: Callable[[bytes], Route] = self._route
        self.guarded = self._format = format_
        self.ungathered = getattr(format_, "ungathered", format_)  # its statements are not skipped
        self._refuse = refuse
        self._rule_for = rule_for
        self._places = Places(rules)
        self._all = tuple(f"{into}." for into in rules)
        self._decode_many = many_of(format_)
        # By table, and by identity, as the source's changes share their types.
        self._types: dict[tuple[str, str, int], tuple[Mapping[str, str], Mapping[str, str]]] = {}
        self._columns: dict[tuple[str, str], Mapping[str, tuple[str, str]]] = {}
        """Table -> lower-case name -> name and type of each column that one of its databases has."""

    def explain(self, record: Record) -> Route | Skip | Apart:
        found = self._format.explain(record)
        if isinstance(found, Apart):
            return Apart([(self._placed(route), value) for route, value in found.parts])
        return found if isinstance(found, Skip) else self._placed(found)

    def decode(self, record: Record, into: list[Change]) -> None:
        """A statement changes no gathered table: the others of its name may be unchanged. A truncate is an
        error, because it does not name the rows."""
        first = len(into)
        self._format.decode(record, into)
        try:
            found = self._format.explain(record)
            if isinstance(found, Skip | Apart) or len(into) == first:
                return
            place, own = self._place(found)
            if place is None:
                for each in into[first:]:
                    if each.op == "ddl":
                        self._refuse(each, own, f"{own.database}.{own.table}")
            else:
                into[first:] = [self._formed(one, place, own) for one in self._rows(into[first:], own, place)]
        except Exception:
            del into[first:]
            raise

    def decode_many(
        self, table: str, records: Iterator[Record], into: list[Change], ends: list[int]
    ) -> Record | None:
        if table.startswith(self._all):
            return next(records, None)  # one by one: each has its own database
        return self._decode_many(table, records, into, ends)

    def _route(self, value: bytes) -> Route:
        return self._placed(self._format.route(value))

    def _placed(self, route: Route) -> Route:
        place, own = self._place(route)
        return route if place is None else PlainRoute(place.database, own.table, route.alone)

    def _place(self, route: Route) -> tuple[_Place | None, Route]:
        """Return where its table is gathered, and the table as rows name it. Servers that ignore case log a
        statement as the user spelled it, and rows in lower case."""
        place = self._places.of(route.database, route.table)
        if route.alone and (place is None or not self._rule_for(f"{place.database}.{route.table}")):
            small = PlainRoute(lowered(route.database), lowered(route.table))
            if (other := self._places.of(small.database, small.table)) is not None:
                return other, small
        return place, route

    def _rows(self, changes: Sequence[Change], own: Route, place: _Place) -> Iterator[Change]:
        for each in changes:
            if each.op == "ddl" and not self._refuse(each, own, f"{place.database}.{own.table}"):
                # Not its text: it may contain what column rules hide.
                at = f"{each.topic}[{each.partition}] offset {each.offset}"
                log.warning("gathered_statement_skipped", table=f"{own.database}.{own.table}", position=at)
            elif each.op in ("ddl", "truncate"):
                raise ValuelessFault(
                    f"TRUNCATE of {own.database}.{own.table}, whose table contains rows of other databases: "
                    "delete its rows in the target, and set this record aside"
                )
            else:
                yield each

    def _formed(self, change: Change, place: _Place, own: Route) -> Change:
        column, low, key = place.column, place.column.casefold(), change.key_columns
        for row in (change.before, change.after, change.types):
            if row is not None and any(name.casefold() == low for name in row):
                raise ValuelessFault(f"the table already has a column {column}: set databases.column")
        before, after = (
            None if row is None else {column: own.database, **row} for row in (change.before, change.after)
        )
        types = None if change.types is None else self._with_columns(change.types, place, own.table)
        return replace(change, before=before, after=after, types=types, key_columns=key and (column, *key))

    def _with_columns(self, types: Mapping[str, str], place: _Place, table: str) -> Mapping[str, str]:
        """Add the new column, and those that only other databases have. Otherwise a Spark table would be
        committed at each row whose columns differ from the row before."""
        known = self._types.get((place.database, table, id(types)))
        if known is not None and known[0] is types:
            return known[1]
        before, every = self._columns.get((place.database, table), {}), in_full(types)
        own = {name.lower(): (name, text) for name, text in every.items()}
        self._columns[place.database, table] = seen = {**before, **own}
        if seen != before or len(self._types) >= _MOST_TYPES:
            self._types.clear()
        others = dict(each for name, each in seen.items() if name not in own)
        # Not a table's whole schema (SchemaTypes): a column that one database lacks is dropped in none.
        made = NativeTypes({place.column: "varchar(255)", **every, **others})
        return self._types.setdefault((place.database, table, id(types)), (types, made))[1]
