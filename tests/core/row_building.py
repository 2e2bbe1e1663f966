"""Tables in row order: records of rows with chosen keys, and a router over tables of either order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from building import Scripted, assignment, configuration, record, unit
from confluent_kafka import Message

from handlers import Handler
from worker.attempts.circuit import BoundHandler
from worker.column_rules.applying import Guarded
from worker.fetching.routing import Router
from worker.formats.interface import Format, Record
from worker.formats.registry import get
from worker.observing.metrics import Metrics
from worker.units.assigned_partition import Assignment
from worker.units.delivery import Delivery
from worker.units.table import Table
from worker.units.table_book import TableBook
from worker.units.unit import Shards, Unit

__all__ = ["Routed", "in_partition", "key_change", "no_rows", "row_unit", "rows", "statement", "truncate"]


def rows(offset: int, *keys: int | str, table: str = "orders", key: Sequence[str] | None = ("id",)) -> Record:
    """A record that inserts rows with these ids; `key`: the columns of the primary key."""
    kind = "bigint" if all(isinstance(each, int) for each in keys) else "varchar(20)"
    data = [{"id": str(each), "at": str(offset)} for each in keys]
    names = None if key is None else list(key)
    return record(offset, table, data=data, mysqlType={"id": kind, "at": "bigint"}, pkNames=names)


def no_rows(offset: int, table: str = "orders") -> Record:
    return record(offset, table, rows=0)


def key_change(offset: int, old: int, new: int, table: str = "orders") -> Record:
    """A record that changes a row's primary key."""
    return record(offset, table, type="UPDATE", data=[{"id": str(new)}], old=[{"id": str(old)}])


def statement(offset: int, sql: str, table: str = "orders") -> Record:
    return record(offset, table, isDdl=True, type="ALTER", sql=sql, data=None)


def truncate(offset: int, table: str = "orders") -> Record:
    return record(offset, table, isDdl=True, type="TRUNCATE", sql=f"TRUNCATE TABLE {table}", data=None)


def row_unit(name: str = "orders", *handlers: Handler, lane: int = 0, **rule: Any) -> Unit:
    """A table in row order."""
    made = unit(name, *handlers, lane=lane, **rule)
    made.table = Table("shop", name, made.table.rule, made.table.handlers, by_row=True)
    made.shards = Shards()
    return made


class Routed:
    """Partitions whose records are routed as the fetcher does it, to tables that are met on the way."""

    def __init__(self, *rules: dict[str, Any], order_by: str, lanes: int = 3) -> None:
        settings = configuration(*rules, lanes={"count": lanes, "order_by": order_by})
        self.handler = Scripted()
        self.book = TableBook(settings, lambda _: [BoundHandler("h0", (self.handler,))])
        self.router = Router(self.book, Metrics(), on_undecodable="halt")
        self.partitions = [assignment(number, format_=self.format("canal")) for number in (0, 1)]

    def format(self, name: str) -> Format:
        """A format as a worker has it: it asks the rules for each statement."""
        return Guarded(get(name), lambda: self.book.configuration.tables[0].statement_rules)

    def poll(self, *parts: tuple[Assignment, Sequence[Record]]) -> Delivery:
        delivery = Delivery()
        for of, records in parts:
            self.router.route(of, list(records), delivery)
        return delivery

    def unit(self, name: str) -> Unit:
        found = self.book.meet("shop", name)
        assert found is not None
        return found


def in_partition(of: Record, partition: int) -> Record:
    """The same record, of another partition."""
    made = Message(topic=of.topic(), partition=partition, offset=of.offset(), value=of.value())
    return cast(Record, made)
