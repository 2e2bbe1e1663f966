"""Rows of several databases in one Delta table: each is its own, and nothing hidden is there."""

from __future__ import annotations

import pytest
from gathered_stream import HIDDEN, ROWS, batches
from spark_lake import MakeLake

NAMES = ", ".join(ROWS[0])


@pytest.mark.parametrize("mode", ["replica", "history", "changelog"])
def test_of_each_database_its_own_rows(make_lake: MakeLake, mode: str) -> None:
    lake, path = make_lake(mode=mode), "lake/shops/users"
    for _ in range(2):  # as after a crash
        for batch in batches():
            lake.handler.handle(batch)
        lake.merge()
        rows = lake.rows(path=path)
        assert HIDDEN not in repr(rows)
        assert "ssn" not in lake.types(path)
        if mode == "changelog":
            assert len(rows) == 10
        else:
            kept = lake.rows(f"{NAMES}{', _current' if mode == 'history' else ''}", path=path)
            found = [row[:5] for row in kept if row[-1] is not False]
            assert sorted(found, key=repr) == sorted((tuple(row.values()) for row in ROWS), key=repr)
