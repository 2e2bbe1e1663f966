"""Tables as the worker meets them: their rule, their handlers, their home lane."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from handlers import Handler
from worker.circuit import Circuit
from worker.configuration import Configuration, TableRule
from worker.shards import Shards
from worker.unit import Unit, UnitState

__all__ = ["UNDECODABLE", "BoundHandler", "Table", "TableBook", "home_lane"]

UNDECODABLE = "__undecodable__"
"""The table label of records whose table cannot be told."""

_SALT = b"binlane"


def home_lane(table: str, lanes: int) -> int:
    """The lane a table belongs to: the same in every process.

    Salted, because keys that already chose a Kafka partition by a hash are biased within it.
    """
    digest = hashlib.blake2b(table.encode("utf-8", "surrogatepass"), digest_size=8, salt=_SALT).digest()
    return int.from_bytes(digest, "big") % lanes


@dataclass(slots=True, eq=False)
class BoundHandler:
    """A configured handler with its object, or one object for each lane (more, when lanes are added)."""

    name: str
    objects: tuple[Handler, ...]
    circuit: Circuit = field(default_factory=Circuit)
    """Of its target: all tables of the handler share it."""

    def of(self, lane: int) -> Handler:
        return self.objects[lane if len(self.objects) > 1 else 0]


class Table:
    __slots__ = (
        "by_row",
        "database",
        "decodes",
        "handlers",
        "label",
        "max_bytes",
        "max_records",
        "max_wait",
        "name",
        "rule",
        "sole",
    )

    def __init__(
        self,
        database: str,
        name: str,
        rule: TableRule,
        handlers: Sequence[BoundHandler],
        *,
        by_row: bool = False,
    ) -> None:
        """`by_row`: its rows are in order, each for itself, instead of the whole table."""
        self.by_row = by_row
        self.database = database
        self.name = name
        self.label = f"{database}.{name}"
        self.rule = rule
        self.max_records = rule.batch.max_records
        self.max_bytes = rule.batch.max_bytes
        self.max_wait = rule.batch.max_wait
        self.handlers = tuple(handlers)
        self.sole = len(self.handlers) == 1
        self.decodes = by_row or any(handler.objects[0].reads_changes for handler in handlers)
        """False when nobody reads the changes: records are then not decoded."""


class TableBook:
    """Every table met so far; which handlers a table gets is looked up once, when it is first met.

    `units` is the fetcher's own: database -> table -> Unit, or None for a table that no rule matches.
    """

    def __init__(
        self, configuration: Configuration, handlers_of: Callable[[TableRule], Sequence[BoundHandler]]
    ) -> None:
        self._configuration = configuration
        self._handlers_of = handlers_of
        # Guards `_all`, which other threads list while the fetcher's adds.
        self._lock = threading.Lock()
        self._all: list[Unit] = []
        self._undecodable: Unit | None = None
        self._left: set[Unit] = set()  # matched once, and by no rule now
        self.units: dict[str, dict[str, Unit | None]] = {}

    def meet(self, database: str, name: str) -> Unit | None:
        """The table's unit, made now if it is new; None when no rule matches it."""
        tables = self.units.setdefault(database, {})
        if name in tables:
            return tables[name]
        label = f"{database}.{name}"
        rule = self._configuration.rule_for(label)
        unit = None
        if rule is not None:
            lanes = self._configuration.lanes
            by_row = lanes.order_by == "row"
            table = Table(database, name, rule, self._handlers_of(rule), by_row=by_row)
            unit = Unit(table, home_lane(label, lanes.count))
            unit.shards = Shards() if by_row else None
            with self._lock:
                self._all.append(unit)
        tables[name] = unit
        return unit

    def undecodable(self) -> Unit:
        """Where records go whose table cannot be told, to become dead letters: a table without handlers."""
        if self._undecodable is None:
            rule = TableRule.model_construct(match="*", handlers=[], on_failure="dead_letter")
            table = Table("", UNDECODABLE, rule, ())
            table.label = UNDECODABLE
            self._undecodable = Unit(table, home_lane(UNDECODABLE, self._configuration.lanes.count))
            self.units.setdefault("", {})[UNDECODABLE] = self._undecodable
            with self._lock:
                self._all.append(self._undecodable)
        return self._undecodable

    def adopt(self, configuration: Configuration) -> list[tuple[Unit, Table]]:
        """Look every table up in another configuration. The fetcher's thread only.

        Returns the tables that have other rules or handlers now. One that no rule matches any more ends with
        what it has queued, as it was; its later records are skipped."""
        self._configuration = configuration
        changed: list[tuple[Unit, Table]] = []
        left: set[Unit] = set()
        for unit in self.all():
            table = unit.table
            if unit is self._undecodable:
                continue
            rule = configuration.rule_for(table.label)
            if rule is None:
                left.add(unit)
                continue
            handlers = tuple(self._handlers_of(rule))
            self.units[table.database][table.name] = unit
            if handlers != table.handlers or rule.model_dump() != table.rule.model_dump():
                changed.append((unit, Table(table.database, table.name, rule, handlers, by_row=table.by_row)))
        # What no rule matched is looked up again when it comes; names that records spell otherwise, too.
        for tables in self.units.values():
            for name in [name for name, unit in tables.items() if unit is None or unit in left]:
                del tables[name]
        self._left = left
        return changed

    def busy(self) -> list[Unit]:
        """Those that may still need the handlers they have."""
        idle = UnitState.IDLE
        return [
            unit
            for unit in self.all()
            if unit not in self._left or any(member.state is not idle for member in unit.members())
        ]

    def finished_records(self) -> int:
        """By all tables so far, at about this moment."""
        count = 0
        for unit in self.all():
            count += unit.finished_records
            if unit.shards is not None:
                count += unit.shards.finished_records
                count += sum(shard.finished_records for shard in list(unit.shards.units.values()))
        return count

    def all(self) -> list[Unit]:
        with self._lock:
            return list(self._all)
