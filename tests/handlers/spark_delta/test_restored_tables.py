"""Which commits of RESTORE took rows of the log back."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from delta_lab import MakeTable, shape

from handlers.spark.delta.commits.commit_notes import LostCommit, Restore, check_restores, see
from handlers.spark.delta.commits.held_segments import held_by
from handlers.spark.delta.log_actions import CommitInfo
from handlers.spark.log.beside import Held


def restored(operation: str, parameters: dict[str, Any], note: str | None = None) -> list[Restore]:
    """What version 7 restored."""
    found: list[Restore] = []
    see("t", 7, CommitInfo(note, operation, parameters), found)
    return found


def test_a_commit_tells_what_it_brought_back() -> None:
    assert restored("RESTORE", {"version": "3", "timestamp": None}) == [Restore(7, 3)]
    assert restored("RESTORE", {"version": None, "timestamp": "2026-11-22"}) == [Restore(7, -1)]
    assert restored("WRITE", {"mode": "Append"}) == []
    assert restored("REPLACE COLUMNS", {}) == []  # of the same table


@pytest.mark.parametrize(
    "operation", ["CREATE OR REPLACE TABLE AS SELECT", "REPLACE TABLE", "CREATE TABLE", "CLONE"]
)
def test_a_commit_tells_that_it_makes_another_table(operation: str) -> None:
    assert restored(operation, {}) == [Restore(7, -1, is_other=True)]
    assert restored(operation, {}, '{"binlane": {}}') == []
    with pytest.raises(LostCommit, match="t was replaced by another table by its version 7"):
        check_restores("t", 5, [Restore(7, -1, is_other=True)])
    check_restores("t", 5, [Restore(8, 6), Restore(7, -1, is_other=True)])


def test_rows_are_missed_unless_they_were_brought_back() -> None:
    check_restores("t", 5, [])
    check_restores("t", 5, [Restore(7, 5)])
    check_restores("t", 5, [Restore(8, 6), Restore(7, 0)])
    check_restores("t", 5, [Restore(9, 5), Restore(8, -1), Restore(7, 0)])
    for found, told in (
        ([Restore(7, 4)], "version 4 by its version 7"),
        ([Restore(7, -1)], "an earlier time by its version 7"),
        ([Restore(8, 7), Restore(7, 0)], "version 0 by its version 7"),
    ):
        with pytest.raises(LostCommit, match=re.escape(f"t was restored to {told}")):
            check_restores("t", 5, found)


@pytest.mark.soak
def test_it_is_noticed_by_sql_alone(make_table: MakeTable) -> None:
    table = make_table()
    for number in (1, 2):
        table.put(shape(id=pa.int64()), {"id": number})
        table.merge()
    table.sql("RESTORE {t} TO VERSION AS OF 0").collect()
    for ref in (table.ref, replace(table.ref, path=None)):
        with pytest.raises(LostCommit, match="restored to version 0 by its version 2"):
            held_by(table.spark, ref)
    table.sql("RESTORE {t} TO VERSION AS OF 1").collect()
    for ref in (table.ref, replace(table.ref, path=None)):
        assert held_by(table.spark, ref) == Held(2, 2)
