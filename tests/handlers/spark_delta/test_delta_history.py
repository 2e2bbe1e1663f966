"""Histories: every version of a row, and when it was valid."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from delta_lab import MakeTable, Table, at, shape

ORDERS = shape(id=pa.int64(), name=pa.string(), price=pa.int32())


def change(op: str, second: int, **row: Any) -> dict[str, Any]:
    place = {"topic": "cdc", "partition": 0, "offset": second, "index": 0}
    return {"op": op, "source_time": at(second), **place, **row}


def versions(table: Table, columns: str = "id, name") -> list[tuple[Any, ...]]:
    """The columns, and from which second to which."""
    seconds = "CAST(unix_seconds({}) - unix_seconds(TIMESTAMP'2026-01-01T00:00:00Z') AS int)"
    began, ended = seconds.format("_valid_from"), seconds.format("_valid_to")
    return table.rows(f"{columns}, {began} AS _binlane_a, {ended} AS _binlane_b")


@pytest.mark.soak
def test_each_change_opens_a_version_and_ends_the_one_before(make_table: MakeTable) -> None:
    table = make_table(mode="history")
    table.put(ORDERS, change("insert", 1, id=1, name="a"), change("update", 2, id=1, name="b"))
    table.put(ORDERS, change("update", 3, id=1, name="c"), change("insert", 3, id=2, name="x"))
    table.merge()
    assert versions(table) == [(1, "a", 1, 2), (1, "b", 2, 3), (1, "c", 3, None), (2, "x", 3, None)]
    table.put(
        ORDERS, change("delete", 5, id=1), change("insert", 7, id=1, name="d"), change("delete", 8, id=9)
    )
    table.put(ORDERS, change("update", 9, id=2, name="y"), change("update", 9, id=2, name="z"))
    table.merge()
    assert versions(table) == [
        (1, "a", 1, 2),
        (1, "b", 2, 3),
        (1, "c", 3, 5),
        (1, "d", 7, None),
        (2, "x", 3, 9),
        (2, "y", 9, 9),
        (2, "z", 9, None),
    ]
    assert table.rows("id, name, _op, _topic, _partition, _offset, _index") [3] == (
        1, "d", "insert", "cdc", 0, 7, 0,
    )  # fmt: skip
    assert table.rows("id, name") == sorted(table.rows("id, name"), key=repr)
    assert {row[0] for row in table.rows("_current <=> (_valid_to IS NULL)")} == {True}
    assert list(table.types())[3:] == [
        "_valid_from", "_valid_to", "_current", "_op", "_topic", "_partition", "_offset", "_index",
    ]  # fmt: skip
    assert table.commits == 1


@pytest.mark.soak
def test_a_snapshot_that_tells_nothing_new_opens_no_version(make_table: MakeTable) -> None:
    table = make_table(mode="history")
    table.put(ORDERS, change("snapshot", 1, id=1, name="a"), change("snapshot", 1, id=2))
    table.put(ORDERS, change("snapshot", 2, id=1, name="a"), change("snapshot", 2, id=2, name="b"))
    table.merge()
    assert versions(table) == [(1, "a", 1, None), (2, "b", 2, None), (2, None, 1, 2)]
    again = [change("snapshot", 3, id=1, name="a"), change("snapshot", 3, id=2, name="c")]
    table.put(ORDERS, *again, change("delete", 4, id=1), change("snapshot", 5, id=1, name="a"))
    table.merge()
    assert versions(table) == [
        (1, "a", 1, 4),
        (1, "a", 5, None),
        (2, "b", 2, 3),
        (2, "c", 3, None),
        (2, None, 1, 2),
    ]


@pytest.mark.soak
def test_times_that_go_back_count_as_those_before(make_table: MakeTable) -> None:
    table = make_table(mode="history")
    table.put(ORDERS, change("insert", 5, id=1, name="a"), change("update", 3, id=1, name="b"))
    table.merge()
    table.put(ORDERS, change("update", 4, id=1, name="c"), change("update", 6, id=1, name="d"))
    table.merge()
    assert versions(table) == [(1, "a", 5, 5), (1, "b", 5, 5), (1, "c", 5, 6), (1, "d", 6, None)]


# In the random changes below, too.
@pytest.mark.soak
def test_what_an_update_does_not_carry_is_as_before(make_table: MakeTable) -> None:
    table = make_table(mode="history")
    table.put(ORDERS, change("insert", 1, id=1, name="a", price=1))
    table.merge()
    name, price = ["name"], ["price"]
    table.put(
        ORDERS,
        change("update", 2, id=1, price=2, absent=name),
        change("update", 3, id=1, name="b", absent=price),
        change("delete", 4, id=1),
        change("insert", 5, id=1, name="c"),
        change("update", 6, id=1, price=6, absent=name),
        change("update", 6, id=2, price=7, absent=name),
        partial=True,
    )
    table.merge()
    assert versions(table, "id, name, price") == [
        (1, "a", 1, 1, 2),
        (1, "a", 2, 2, 3),
        (1, "b", 2, 3, 4),
        (1, "c", 6, 6, None),
        (1, "c", None, 5, 6),
        (2, None, 7, 6, None),
    ]


@pytest.mark.parametrize(("seed", "merges"), [(1, 2), pytest.param(2, 8, marks=pytest.mark.soak)])
@pytest.mark.soak
def test_random_changes_come_to_what_a_model_says(make_table: MakeTable, seed: int, merges: int) -> None:
    chance = random.Random(seed)
    keyed = shape(("a", "b"), **{"a": pa.string(), "b": pa.int32(), "x y": pa.string()})
    table = make_table(mode="history")
    model: dict[tuple[str, int], list[list[Any]]] = {}  # versions: value, from, to
    second = 0
    for _ in range(merges):
        for _ in range(chance.randint(1, 3)):
            rows = []
            for _ in range(chance.randint(1, 30)):
                second = max(0, second + chance.choice((-1, 0, 1, 2)))
                key = (chance.choice("ab"), chance.randint(0, 3))
                op, value = chance.choice(("insert", "update", "snapshot", "delete")), chance.choice("pq")
                rows.append(change(op, second, a=key[0], b=key[1], **{"x y": value}))
                follow(model.setdefault(key, []), op, value, second)
            table.put(keyed, *rows)
        table.merge()
        expected = [(*key, *version[:3]) for key, found in model.items() for version in found]
        assert versions(table, "a, b, `x y`") == sorted(expected, key=repr)


def follow(known: list[list[Any]], op: str, value: str, second: int) -> None:
    current = known[-1] if known and known[-1][2] is None else None
    if current is not None:
        if op == "snapshot" and current[0] == value:
            return
        second = max(second, current[1])
        current[2] = second
    elif known:
        second = max(second, known[-1][2])
    if op != "delete":
        known.append([value, second, None])
