"""The load of the Spark benchmarks: what it says of the final rows is what its records say."""

from __future__ import annotations

import json
import zlib
from typing import Any

from benchmarks.spark.load import COLUMNS, Load


def replayed(load: Load, records: int) -> tuple[dict[int, dict[str, dict[str, Any]]], dict[str, int]]:
    """(table -> key -> row, operation -> count), by reading the records alone."""
    tables: dict[int, dict[str, dict[str, Any]]] = {}
    operations: dict[str, int] = {}
    for record in load.take(records, 1_763_000_000_000):
        message = json.loads(record.value)
        assert message["table"] == f"t{record.table}"
        assert message["id"] == record.number
        operations[message["type"]] = operations.get(message["type"], 0) + 1
        rows = tables.setdefault(record.table, {})
        [row] = message["data"]
        assert list(row) == list(COLUMNS)
        if message["type"] == "INSERT":
            assert row["id"] not in rows
            rows[row["id"]] = row
        elif message["type"] == "UPDATE":
            [old] = message["old"]
            assert old.items() <= rows[row["id"]].items()
            rows[row["id"]] = row
        else:
            assert rows.pop(row["id"]) == row
    return tables, operations


def test_the_truth_is_what_the_records_leave() -> None:
    load = Load(3)
    tables, operations = replayed(load, 6_000)
    for table, truth in enumerate(load.truth()):
        rows = tables[table].values()
        assert truth.rows == len(rows)
        assert truth.checksum == sum(zlib.crc32("|".join(row.values()).encode()) for row in rows)
    assert 0.58 < operations["INSERT"] / 6_000 < 0.62
    assert 0.28 < operations["UPDATE"] / 6_000 < 0.32
    assert sum(load.changes()) == 6_000


def test_the_truth_tells_a_changed_row() -> None:
    one, other = Load(1), Load(1)
    list(one.take(500, 0))
    list(other.take(501, 0))
    assert one.truth() != other.truth()


def test_two_loads_are_the_same_whatever_the_steps() -> None:
    at_once, in_steps = Load(5), Load(5)
    expected = list(at_once.take(300, 7))
    assert [record for _ in range(30) for record in in_steps.take(10, 7)] == expected


def test_a_larger_table_begins_with_inserts_of_its_own() -> None:
    load = Load(4, bigger=200)
    records = list(load.take(200, 0))
    assert {record.table for record in records} == {0}
    assert load.truth()[0].rows == 200


def test_each_table_changes_once_in_their_order_before_the_others_are_drawn() -> None:
    load = Load(300, each_once=True)
    assert [record.table for record in load.take(300, 0)] == list(range(300))
    assert set(load.changes()) == {1}
    list(load.take(300, 0))
    assert len(set(load.changes())) > 2
