"""Reloads of `shop.orders` in a SqlLab, and what its rows are to be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sql_lab import SqlLab, orders

from handlers import HandlerContext
from handlers.sql.reloading.reload import SqlReload

__all__ = ["PLACE", "TYPES", "batch", "made", "model", "reloading", "reloading_after", "tables"]

TYPES = {"id": "int", "n": "int"}
PLACE = ("test", 0)


def made(lab: SqlLab, source: str = "shop.orders", **options: Any) -> SqlReload:
    context = HandlerContext(worker="w", handler="SqlHandler", folder=lab.folder)
    database, _, name = source.partition(".")
    return SqlReload({"url": lab.url, **options}, context, database, name)


def tables(lab: SqlLab) -> set[str]:
    """All of the schema that the target's table is in."""
    schema = lab.naming.target("shop", "orders")[0]
    return set(sa.inspect(lab.engine).get_table_names(schema=schema))


@contextmanager
def reloading(lab: SqlLab, **options: Any) -> Iterator[SqlReload]:
    reload = made(lab, **options)
    try:
        reload.begin()
        yield reload
    finally:
        reload.end()


def change(number: int) -> dict[str, Any]:
    """Counts the row up: applied twice, or not at all, the next is not what the model has."""
    return {"id": number % 3, "n": number}


def batch(first: int, end: int, **more: Any) -> Any:
    return orders(*map(change, range(first, end)), types=TYPES, offset=first, **more)


def model(end: int) -> list[dict[str, Any]]:
    rows = {number % 3: change(number) for number in range(end)}
    return sorted(rows.values(), key=str)


@contextmanager
def reloading_after(worker: Any, lab: SqlLab) -> Iterator[SqlReload]:
    worker.handle(batch(0, 5))
    with reloading(lab) as reload:
        yield reload
