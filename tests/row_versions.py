"""Versions of rows as a plain model keeps them: one change after the other, each row by itself."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from handlers import Batch, Change
from handlers.testing import make_batch

__all__ = ["RowVersions", "Version", "any_life", "read_time"]

TYPES = {"id": "int", "name": "varchar(20)", "qty": "int"}
Version = tuple[Any, ...]
"""(id, name, qty, start, end), times in milliseconds."""


class RowVersions:
    """Slowly changing dimension, type 2."""

    def __init__(self) -> None:
        self._all: list[tuple[dict[str, Any], list[int | None]]] = []
        self._current: dict[Any, tuple[dict[str, Any], list[int | None]]] = {}
        self._last: dict[Any, int] = {}

    def follow(self, change: Change) -> None:
        if change.op == "truncate":
            for id_ in list(self._current):
                self._end(id_, change.source_time_ms)
            return
        row = change.after if change.after is not None else change.before
        assert row is not None
        id_ = row["id"]
        known = self._current.get(id_)
        if change.after is None:
            if known is not None:
                self._end(id_, change.source_time_ms)
            return
        new = dict.fromkeys(TYPES) | (known[0] if known and not change.is_whole else {}) | row
        if known is not None:
            if change.op == "snapshot" and known[0] == new:
                return
            self._end(id_, change.source_time_ms)
        start = self._last[id_] = max(self._last.get(id_, 0), change.source_time_ms)
        self._current[id_] = new, [start, None]
        self._all.append(self._current[id_])

    def _end(self, id_: Any, time: int) -> None:
        self._last[id_] = max(self._last[id_], time)
        self._current.pop(id_)[1][1] = self._last[id_]

    @property
    def all(self) -> list[Version]:
        return sorted(((*row.values(), *period) for row, period in self._all), key=str)


def read_time(found: Any) -> int | None:
    """Of a driver, in milliseconds. Some read texts."""
    if found is None:
        return None
    time = found if isinstance(found, datetime) else datetime.fromisoformat(str(found))
    since = (time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(milliseconds=1)


def any_life(seed: int, count: int, *, table: str = "shop.orders", statements: bool = True) -> Batch:
    """Changes of a dozen rows, some late, some equal, some of a whole table."""
    pick = random.Random(seed)
    rows: dict[int, dict[str, Any]] = {}
    changes: list[Mapping[str, Any]] = []
    for number in range(count):
        id_ = pick.randrange(12)
        time = {"source_time_ms": (100 + number // 3 - pick.choice((0, 0, 0, 5))) * 1000 + pick.randrange(3)}
        after = {"id": id_, "name": pick.choice("abc"), "qty": pick.choice((0, 1, None))}
        known = rows.get(id_)
        op = pick.choice(("insert", "update", "partial", "delete", "snapshot", "move"))
        if statements and number % 97 == 96:
            rows.clear()
            changes.append({"op": "truncate", "sql": "TRUNCATE TABLE orders", **time})
        elif op == "delete":
            rows.pop(id_, None)
            changes.append({"op": op, "before": known or after, **time})
        elif op == "move" and known is not None:
            new = {**known, "id": 12 + id_}
            half = {"moves_key": True, "offset": number, **time}
            changes.append({"op": "delete", "before": rows.pop(id_), "index": 0, **half})
            changes.append({"op": "insert", "after": new, "index": 1, **half})
            continue
        elif op == "partial":
            some = {"id": id_, "qty": after["qty"]}
            rows[id_] = {"name": None, **(known or {}), **some}
            lacks = frozenset({"name"})
            changes.append({"op": "update", "before": {"id": id_}, "after": some, "lacks": lacks, **time})
        elif op in ("insert", "snapshot"):
            rows[id_] = dict(after)
            changes.append({"op": op, "after": after, **time})
        else:
            rows[id_] = dict(after)
            before = {"before": known or after, "lacks": frozenset[str]()}
            changes.append({"op": "update", "after": after, **before, **time})
        changes[-1] = {"offset": number, **changes[-1]}
    return make_batch(table, changes, key="id", types=TYPES, topic="cdc")
