"""The known tables, and those that no rule matches. A unit is made when a table first appears, and released
when the table is idle."""

from __future__ import annotations

import fnmatch
import heapq
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from difflib import SequenceMatcher

from handlers.logs import get_logger
from worker.attempts.circuit import BoundHandler
from worker.configuration import Configuration, TableRule
from worker.units.chunk import Chunk
from worker.units.table import Table, fits, home_lane, shown
from worker.units.unit import Shards, Unit

log = get_logger("tables")

KEPT_TABLES = 10_000
"""Beyond this number, idle tables are released."""
_SECONDS_BETWEEN = 1.0  # between two looks for tables to release
_MOST_NOTED = 20_000
"""The most names that records use and that no rule matches, or that differ from the table's own name."""

UNDECODABLE = "__undecodable__"
"""The table label of records whose table cannot be determined."""

_MOST_TOLD = 100
_ALIKE = 0.75
_LONGEST_COMPARED = 256
"""Characters. The time grows with their square, and the fetcher's thread waits."""
_WILDCARDS = frozenset("*?[")


def _whole(configuration: Configuration) -> bool:
    """Whether some table's batches must not end within a source transaction."""
    return any(rule.batch.transactions == "whole" for rule in configuration.tables)


@dataclass(eq=False)
class TableBook:
    """The known tables. A table's handlers are looked up once, when it first appears. Of the idle tables, the
    most recently used ones are kept.

    `units` is the fetcher's own: database -> table -> Unit, or None for a table that no rule matches."""

    configuration: Configuration
    handlers_of: Callable[[TableRule], Sequence[BoundHandler]]
    named: Callable[[str], str] = str
    """The name under which a released table's finished records are counted. The number of names is
    limited."""
    _: KW_ONLY
    keep: int = KEPT_TABLES
    """The most idle tables that are kept."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        # Guards `_all` and `_gone`, which other threads read.
        self._lock = threading.Lock()
        self._all: list[Unit] = []
        self._gone: dict[str, int] = {}  # name -> records that released tables had finished
        self._look_again = self.keep + self.keep // 10
        self._due = math.inf
        self._undecodable: Unit | None = None
        self._unmatched: set[Unit] = set()  # matched by a rule once, and by none now
        self._noted: dict[tuple[str, str], Unit | None] = {}  # entries of `units` under other names
        self.units: dict[str, dict[str, Unit | None]] = {}
        self.unmatched = _Unmatched(self.configuration.tables)
        self.whole = _whole(self.configuration)

    def meet(self, database: str, name: str) -> Unit | None:
        """Return the table's unit, made now if it is new. None if no rule matches it."""
        known = self.units.get(database)
        if known is not None and name in known:
            return known[name]
        label = f"{database}.{name}"
        rule = self.configuration.rule_for(label)
        if rule is None:
            self.unmatched.met(label)
            self.note(database, name, None)
            return None
        self.unmatched.used(rule)
        lanes = self.configuration.lanes
        by_row = lanes.order_by == "row"
        table = Table(database, name, rule, self.handlers_of(rule), by_row=by_row)
        unit = Unit(table, home_lane(label, lanes.count))
        unit.shards = Shards() if by_row else None
        with self._lock:
            unit.finished_records = self._gone.pop(label, 0)
            self._all.append(unit)
        self.units.setdefault(database, {})[name] = unit
        return unit

    def note(self, database: str, name: str, unit: Unit | None) -> None:
        """Records use this name for the table. It may differ from the table's own name, or no rule matches it
        (None)."""
        if unit is not None and (database, name) == (unit.table.database, unit.table.name):
            return
        # Without a name, each record names its own table. A spelling may have any length.
        if not (name and fits(database) and fits(name)):
            return
        if len(self._noted) >= _MOST_NOTED:
            self._forget_noted()
        self.units.setdefault(database, {})[name] = self._noted[database, name] = unit

    def let_go(self, at_rest: Callable[[Iterable[Unit]], list[Unit]]) -> None:
        """Release the least recently used idle tables beyond the number that it keeps. The fetcher's thread
        only, while no delivery waits for the lanes.

        `at_rest`: see Lanes. A table that appears again gets a new unit."""
        if len(self._all) < self._look_again and self.clock() < self._due:
            return
        surplus = len(self._all) - self.keep
        idle = [unit for unit in self._all if unit.at_rest and unit is not self._undecodable]
        gone = set(at_rest(heapq.nsmallest(surplus, idle, key=lambda unit: unit.used)))
        with self._lock:
            self._all = [unit for unit in self._all if unit not in gone]
            for unit in gone:
                if finished := unit.finished_in_all:
                    name = self.named(unit.table.label)
                    self._gone[name] = self._gone.get(name, 0) + finished
        for unit in gone:
            self._forget(unit.table.database, unit.table.name, unit)
        for (database, name), unit_noted in list(self._noted.items()):
            if unit_noted in gone:
                self._forget(database, name, unit_noted)
                del self._noted[database, name]
        self._unmatched -= gone
        self._look_again = max(len(self._all), self.keep) + self.keep // 10
        # Tables that are busy now may soon be idle, even if no new tables appear.
        self._due = self.clock() + _SECONDS_BETWEEN if len(self._all) > self.keep else math.inf

    def _forget(self, database: str, name: str, unit: Unit | None) -> None:
        """Remove this name if it refers to this unit."""
        tables = self.units.get(database, {})
        if name in tables and tables[name] is unit:
            del tables[name]
            if not tables:
                del self.units[database]

    def _forget_noted(self) -> None:
        """Remove all noted names. They are looked up again when they appear."""
        for (database, name), unit in self._noted.items():
            self._forget(database, name, unit)
        self._noted.clear()

    def undecodable(self) -> Unit:
        """Return the unit without handlers for records without a known table: they become dead letters."""
        if self._undecodable is None:
            rule = TableRule.model_construct(match="*", handlers=[], on_failure="dead_letter")
            table = Table("", UNDECODABLE, rule, ())
            table.label = UNDECODABLE
            self._undecodable = Unit(table, home_lane(UNDECODABLE, self.configuration.lanes.count))
            self.units.setdefault("", {})[UNDECODABLE] = self._undecodable
            with self._lock:
                self._all.append(self._undecodable)
        return self._undecodable

    def adopt(self, configuration: Configuration) -> list[tuple[Unit, Table]]:
        """Look up every table in another configuration. The fetcher's thread only.

        Returns the tables with other rules or handlers. A table that no rule matches any more finishes its
        queue under the old rules; its later records are skipped."""
        self.configuration = configuration
        self.whole = _whole(configuration)
        self.unmatched.adopt(configuration.tables)
        self._forget_noted()
        same: dict[tuple[int, int], bool] = {}  # by id: there are few rules and many tables
        changed: list[tuple[Unit, Table]] = []
        unmatched: set[Unit] = set()
        for unit in self.all():
            table = unit.table
            if unit is self._undecodable:
                continue
            rule = configuration.rule_for(table.label)
            if rule is None:
                unmatched.add(unit)
                continue
            self.unmatched.used(rule)
            handlers = tuple(self.handlers_of(rule))
            self.units.setdefault(table.database, {})[table.name] = unit
            pair = id(rule), id(table.rule)
            if pair not in same:
                same[pair] = rule.is_as(table.rule)
            if handlers != table.handlers or not same[pair]:
                changed.append((unit, Table(table.database, table.name, rule, handlers, by_row=table.by_row)))
            else:  # a statement in its records may name a table whose rules have changed
                table.statement_rules = rule.statement_rules
        for unit in unmatched:
            self._forget(unit.table.database, unit.table.name, unit)
        self._unmatched = unmatched
        return changed

    def busy(
        self, held: Callable[[], list[tuple[Unit, Chunk]]], at_rest: Callable[[Iterable[Unit]], list[Unit]]
    ) -> list[Unit]:
        """Return the tables that may still need their present handlers. This includes a table that no rule
        matches any more, while some of its records wait for the lanes or are in them. Any thread.

        `held`: what waits for the lanes. `at_rest`: see Lanes."""
        units, coming = self.all(), {unit for unit, _ in held()}
        # The lanes last: what they accept from `held` in the meantime is found there.
        through = set(at_rest([unit for unit in units if unit in self._unmatched and unit not in coming]))
        return [unit for unit in units if unit not in through]

    def all(self) -> list[Unit]:
        """Return the known tables."""
        with self._lock:
            return list(self._all)

    def names(self) -> tuple[list[str], set[str]]:
        """Return the names of the known tables, and of all configured handlers."""
        handlers = {entry.name for rule in self.configuration.tables for entry in rule.handlers}
        return [unit.table.label for unit in self.all()], handlers

    def counted(self) -> tuple[list[Unit], dict[str, int]]:
        """Return the known tables, and the finished records of released ones by name. Each record is in
        exactly one of the two."""
        with self._lock:
            return list(self._all), dict(self._gone)


class _Unmatched:
    """Records that are skipped and finished because of the rules. The fetcher's own; `records` any thread."""

    def __init__(self, rules: Sequence[TableRule]) -> None:
        self.records = 0
        """The skipped records."""
        self.adopt(rules)

    def adopt(self, rules: Sequence[TableRule]) -> None:
        """Use other rules from now on. Tables that they do not match are logged again."""
        self._unused = {id(rule): rule for rule in rules}
        self._told: set[str] = set()

    def used(self, rule: TableRule) -> None:
        """The rule matches a table, so it is meant as it is."""
        self._unused.pop(id(rule), None)

    def met(self, table: str) -> None:
        """No rule matches the table ("database.table")."""
        if table in self._told or len(self._told) > _MOST_TOLD:
            return
        self._told.add(table)
        if len(self._told) > _MOST_TOLD:
            log.info("more_tables_unmatched", hint=f"after {_MOST_TOLD} of them, no more are logged")
            return
        nearest = _nearest(table, self._unused.values())
        hint = "its records are skipped and count as finished"
        if nearest is None:
            log.info("table_unmatched", table=shown(table), hint=hint)
        else:
            hint += "; no table matches that rule so far"
            log.warning("table_unmatched", table=shown(table), nearest=nearest, hint=hint)


def _nearest(table: str, rules: Iterable[TableRule]) -> str | None:
    """Return the pattern of the rule that would match it except for upper and lower case, or a letter or two.
    None for a name longer than a database's names."""
    if len(table) > _LONGEST_COMPARED:
        return None
    globs = []
    for rule in rules:
        if rule.match.startswith("/"):
            if re.fullmatch(rule.match[1:-1], table, re.IGNORECASE):
                return rule.match
        elif fnmatch.fnmatchcase(table.lower(), rule.match.lower()):
            return rule.match
        else:
            globs.append(rule.match)
    own = table.lower().partition(".")[::2]
    for pattern in globs:
        parts = pattern.lower().partition(".")[::2]
        if all(_alike(name, part) for name, part in zip(own, parts, strict=True)):
            return pattern
    return None


def _alike(name: str, part: str) -> bool:
    if _WILDCARDS & set(part):
        return fnmatch.fnmatchcase(name, part)
    # At most the whole shorter one can be equal in both.
    if 2 * min(len(name), len(part)) < _ALIKE * (len(name) + len(part)):
        return False
    matcher = SequenceMatcher(None, name, part)
    return matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE
