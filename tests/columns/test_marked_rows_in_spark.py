"""Soft deletes, and columns about the change, in a Spark replica."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from delta_reading import read_delta
from ruling import changes_of, rule_of, ruled
from spark_sessions import SHARED

from handlers import Batch
from handlers.spark import SparkHandler
from handlers.testing import opened

ADDED = {"op": "op", "_offset": "offset", "_at": "source_time", "_from": "database", "_seen": "now()"}
ROWS: list[dict[str, Any]] = [
    {"op": "insert", "after": {"id": 1, "name": "a"}},
    {"op": "insert", "after": {"id": 2, "name": "b"}},
    {"op": "delete", "before": {"id": 1, "name": "a"}},
    {"op": "delete", "before": {"id": 2, "name": "b"}},
    {"op": "insert", "after": {"id": 2, "name": "again"}},
]


@pytest.mark.parametrize("at_once", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_marked_row_whose_key_comes_again_lives_again(tmp_path: Path, *, at_once: bool) -> None:
    rule = rule_of(deletes="mark", columns={"add": ADDED})
    changes = ruled(rule, changes_of(*ROWS))
    parts = [changes] if at_once else [[each] for each in changes]
    handlers = SparkHandler(mode="replica", merge={"max_age": "1h"})
    for part in parts:
        with opened(handlers, tmp_path, spark=SHARED) as handler:  # its end merges what waits
            handler.handle(Batch("shop.users", part, database="shop", name="users"))
    rows = {row["id"]: row for row in read_delta(tmp_path / "lake/shop/users")}
    assert {id: (row["name"], row["deleted_at"] is None) for id, row in rows.items()} == {
        1: ("a", False),
        2: ("again", True),
    }
    assert rows[1]["op"] == "delete"
    assert {row["_from"] for row in rows.values()} == {"shop"}
    assert [rows[id]["_offset"] for id in (1, 2)] == [changes[2].offset, changes[4].offset]
    assert None not in {row[name] for row in rows.values() for name in ("_at", "_seen")}
