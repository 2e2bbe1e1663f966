"""Columns GENERATED ALWAYS AS IDENTITY, which no UPDATE of PostgreSQL sets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sql_lab import SqlLab, orders

MakeLab = Callable[[str], SqlLab]
BESIDE = "id int PRIMARY KEY, seq bigint GENERATED ALWAYS AS IDENTITY, n text, own text DEFAULT 'mine'"


@pytest.fixture
def lab(make_sql: MakeLab) -> SqlLab:
    return make_sql("postgres")


TYPES = {"id": "int", "seq": "int", "n": "text"}


def row(id_: int, seq: int, n: str) -> dict[str, object]:
    return {"id": id_, "seq": seq, "n": n}


def found(lab: SqlLab) -> list[tuple[object, ...]]:
    return [tuple(one.values()) for one in lab.rows()]


@pytest.mark.parametrize("key", ["PRIMARY KEY", "NOT NULL"])
def test_one_beside_the_key_is_written(lab: SqlLab, key: str) -> None:
    """By ON CONFLICT, or row by row where the target has no such key."""
    lab.make("shop.orders", BESIDE.replace("PRIMARY KEY", key))
    with lab.handler() as handler:
        handler.handle(orders(row(1, 70, "a"), row(2, 71, "b"), types=TYPES))
        lab.run("UPDATE shop.orders SET own = 'kept'")
        handler.handle(orders(row(1, 70, "c"), row(3, 72, "d"), offset=2, types=TYPES))
        assert found(lab) == [(1, 70, "c", "kept"), (2, 71, "b", "kept"), (3, 72, "d", "mine")]
        # Only the source's own DELETE and INSERT can do so; other databases have no such columns.
        handler.handle(orders(row(1, 80, "e"), row(2, 70, "f"), row(3, 90, "d"), offset=4, types=TYPES))
    assert found(lab) == [(1, 80, "e", "kept"), (2, 70, "f", "kept"), (3, 90, "d", "mine")]


def test_values_that_rows_exchange_meet_in_no_key(lab: SqlLab) -> None:
    lab.make("shop.orders", f"{BESIDE}, UNIQUE (seq)")
    with lab.handler() as handler:
        handler.handle(orders(row(1, 70, "a"), row(2, 71, "b")))
        handler.handle(orders(row(1, 72, "a"), row(2, 70, "b"), row(1, 71, "a"), offset=2))
    assert found(lab) == [(1, 71, "a", "mine"), (2, 70, "b", "mine")]


def test_one_that_is_the_key_moves(lab: SqlLab) -> None:
    lab.make("shop.orders", "id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n text UNIQUE, large text")
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "n": "a", "large": "L"}, {"id": 2, "n": "b", "large": "M"}))
        moved = [
            {"before": {"id": 1}, "after": None, "offset": 5, "moves_key": True},
            {
                "before": None,
                "after": {"id": 9, "n": "a"},
                "offset": 5,
                "index": 1,
                "moves_key": True,
                "lacks": frozenset({"large"}),
            },
        ]
        handler.handle(orders(*moved))
    assert found(lab) == [(2, "b", "M"), (9, "a", "L")]


def test_one_in_a_table_without_a_key(lab: SqlLab) -> None:
    lab.make("shop.orders", "seq int GENERATED ALWAYS AS IDENTITY, n text, own text DEFAULT 'mine'")
    old, new = {"seq": 1, "n": "a"}, {"seq": 2, "n": "b"}
    with lab.handler() as handler:
        handler.handle(orders(old, old, key=None))
        lab.run("UPDATE shop.orders SET own = 'kept'")
        handler.handle(
            orders({"before": old, "after": new}, {"before": {"n": "z"}, "after": old}, key=None, offset=2)
        )
    assert found(lab) == [(1, "a", "kept"), (1, "a", "mine"), (2, "b", "kept")]
