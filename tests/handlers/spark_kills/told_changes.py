"""A few changes of one source table, and what each kind of table has after each of them, by a plain model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from spark_lake import change

from handlers import Change

__all__ = ["BATCHES", "STATES", "WIDE", "Row", "known"]

Row = dict[str, Any]
_TYPES = {"id": "int", "name": "varchar(20)", "v": "int"}
_MORE = {**_TYPES, "note": "varchar(20)"}
_LAST = {**_MORE, "more": "int"}
_NOTE = "ALTER TABLE orders ADD COLUMN note varchar(20) DEFAULT 'n'"
_ADDED = {_NOTE: ("note", "n")}
"""Statement -> what existing rows get."""


def _rows(first: int, told: Sequence[tuple[str, int]], types: dict[str, str]) -> list[Change]:
    """`told`: op and key of each change."""
    made = []
    for offset, (op, key) in enumerate(told, first):
        row: Row = {"id": key, "name": f"n{key}", "v": offset, "note": f"o{offset}", "more": -offset}
        row = {name: row[name] for name in types}
        is_gone = op == "delete"
        made.append(change(offset, None if is_gone else row, types, op=op, before=row if is_gone else None))
    return made


def _statement(offset: int, op: str, sql: str) -> Change:
    return change(offset, None, None, op=op, sql=sql)


def _batches(types: dict[str, str], more: dict[str, str], last: dict[str, str]) -> list[list[Change]]:
    return [
        _rows(0, [("insert", 1), ("insert", 2), ("insert", 3)], types),
        _rows(3, [("update", 1), ("delete", 2), ("insert", 4), ("update", 1)], types),
        _rows(7, [("update", 3), ("insert", 5)], types),
        [_statement(9, "ddl", _NOTE)],
        _rows(10, [("insert", 6), ("update", 4), ("delete", 1)], more),
        _rows(13, [("insert", 2), ("update", 6)], more),
        [_statement(15, "truncate", "TRUNCATE TABLE orders")],
        _rows(16, [("insert", 7), ("insert", 1), ("update", 7)], more),
        [_statement(19, "ddl", "ALTER TABLE orders ADD COLUMN more int")],
        _rows(20, [("update", 1), ("insert", 8)], last),
        [_statement(22, "ddl", "DROP TABLE orders")],
        _rows(23, [("insert", 1), ("insert", 9)], last),
    ]


BATCHES = _batches(_TYPES, _MORE, _LAST)
WIDE = _batches(_LAST, _LAST, _LAST)
"""The same with all columns from the beginning: only Spark adds one to the `_before` of a Delta changelog."""


def _replica(rows: dict[int, Row], one: Change) -> None:
    if one.op == "ddl" and one.sql != "DROP TABLE orders":
        for row in rows.values():
            row.update([_ADDED[one.sql]] if one.sql in _ADDED else [])
    elif one.sql is not None:
        rows.clear()
    elif one.after is None:
        assert one.before is not None
        rows.pop(one.before["id"], None)
    else:
        rows[one.after["id"]] = dict(one.after)


def _history(rows: list[Row], one: Change) -> None:
    row = one.after or one.before or {}
    for each in rows:
        if each["current"] and one.sql in _ADDED:
            each |= dict([_ADDED[one.sql]])
        elif each["current"] and (one.op == "truncate" or each["id"] == row.get("id")):
            each |= {"valid_to": one.source_time_ms, "current": False}
    if one.after is not None:
        own = {"valid_from": one.source_time_ms, "current": True, "op": one.op, "offset": one.offset}
        rows.append({**one.after, **own})


def _changelog(rows: list[Row], one: Change) -> None:
    row = one.after or one.before or {}
    rows.append({**row, "op": one.op, "offset": one.offset, **({} if one.sql is None else {"sql": one.sql})})


def _states(mode: str, batches: list[list[Change]] = BATCHES) -> list[list[str]]:
    replica: dict[int, Row] = {}
    rows: list[Row] = []
    found = [known([])]
    for one in (each for batch in batches for each in batch):
        if mode == "replica":
            _replica(replica, one)
            rows = [*replica.values()]
        else:
            (_history if mode == "history" else _changelog)(rows, one)
        found.append(known(copy.deepcopy(rows)))
    return found


_KEPT = ("id", "name", "v", "note", "more", "op", "offset", "sql", "valid_from", "valid_to", "current")


def known(rows: Sequence[Row], prefix: str = "") -> list[str]:
    """Rows in order, without nulls and without what the model does not know."""
    told = [{name.removeprefix(prefix): value for name, value in row.items()} for row in rows]
    return sorted(
        repr([(name, _plain(row[name])) for name in _KEPT if row.get(name) is not None]) for row in told
    )


def _plain(value: Any) -> Any:
    return round(value.timestamp() * 1000) if hasattr(value, "timestamp") else value


STATES = {mode: _states(mode) for mode in ("replica", "history", "changelog")}
STATES["wide"] = _states("changelog", WIDE)
"""Mode -> what its table has after so many changes."""
