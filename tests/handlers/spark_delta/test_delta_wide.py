"""Tables of many columns: what Spark plans for them may not double with each."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from delta_lab import MakeTable, at, shape

NAMES = [f"c{number}" for number in range(60)]
WIDE = {"id": pa.int64(), **dict.fromkeys(NAMES, pa.string())}


def row(number: int, value: str) -> dict[str, Any]:
    return {"id": number, **dict.fromkeys(NAMES, value)}


@pytest.mark.soak
def test_a_history_of_sixty_columns(make_table: MakeTable) -> None:
    table = make_table(mode="history")
    table.put(shape(**WIDE), {"op": "snapshot", **row(1, "a")}, {"op": "snapshot", **row(2, "a")})
    table.merge()
    changes = {"op": "snapshot", **row(1, "a")}, {"op": "update", **row(2, "b"), "source_time": at(1)}
    table.put(shape(**WIDE), *changes)
    table.merge()
    assert table.rows("id, c0, c59, _current") == [
        (1, "a", "a", True), (2, "a", "a", False), (2, "b", "b", True),
    ]  # fmt: skip


@pytest.mark.soak
def test_a_replica_of_sixty_columns_without_a_key(make_table: MakeTable) -> None:
    table = make_table()
    table.put(shape((), **WIDE), {"op": "insert", **row(1, "a")}, {"op": "insert", **row(1, "a")})
    table.merge()
    table.put(shape((), **WIDE), {"op": "delete", **row(1, "a")}, {"op": "insert", **row(2, "b")})
    table.merge()
    assert table.rows("id, c0, c59") == [(1, "a", "a"), (2, "b", "b")]
