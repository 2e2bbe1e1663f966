"""A foreign key whose row another lane brings: the change is tried again, and holds up no other."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from sql_lab import SqlLab, orders, ruled

from handlers import Batch, Change, PartialFailure, Rejected
from handlers.sql.handler import DatabaseError, SqlHandler
from handlers.values.native_types import SchemaTypes

MakeLab = Callable[[str], SqlLab]
TYPES = {"id": "int", "customer": "int"}


@pytest.fixture(params=["postgres", "mariadb", "duckdb"])
def lab(make_sql: MakeLab, request: pytest.FixtureRequest) -> SqlLab:
    """Not SQLite, whose sessions look at no foreign key unless they are asked to."""
    lab = make_sql(request.param)
    lab.make("shop.customers", "id int PRIMARY KEY")
    lab.make(
        "shop.orders",
        "id int PRIMARY KEY, customer int, parent int, "
        f"FOREIGN KEY (customer) REFERENCES {lab.ref('shop.customers')} (id)",
    )
    return lab


def order(number: int, customer: int | None = None) -> dict[str, Any]:
    return {"id": number, "customer": customer}


def customers(*numbers: int, **fields: Any) -> Batch:
    rows = [{"id": number} for number in numbers]
    return orders(*rows, table="shop.customers", types={"id": "int"}, **fields)


def numbers(lab: SqlLab) -> list[int]:
    return sorted(one["id"] for one in lab.rows(columns="id"))


def waiting(handler: SqlHandler, batch: Batch) -> int:
    """How many changes of the batch are applied before the one that waits."""
    with pytest.raises((DatabaseError, PartialFailure), match=r"(?i)foreign key") as waits:
        handler.handle(batch)
    if isinstance(waits.value, PartialFailure):
        assert isinstance(waits.value.cause, DatabaseError)
        return waits.value.done
    return 0


@pytest.mark.parametrize("shard", [None, 1])
def test_a_row_that_comes_before_the_one_it_refers_to_is_tried_again(lab: SqlLab, shard: int | None) -> None:
    rows = [order(1, 7), order(2, 8), order(3), order(4, 8)]
    with lab.handler() as handler:
        handler.handle(customers(7))
        assert waiting(handler, orders(*rows, types=TYPES, shard=shard)) == 1
        assert waiting(handler, orders(*rows[1:], types=TYPES, shard=shard, offset=1)) == 0
        assert numbers(lab) == [1]
        handler.handle(customers(8, offset=1))
        handler.handle(orders(*rows[1:], types=TYPES, shard=shard, offset=1))
    assert numbers(lab) == [1, 2, 3, 4]


@pytest.mark.parametrize("shard", [None, 1])
def test_a_row_that_others_refer_to_still_is_deleted_later(lab: SqlLab, shard: int | None) -> None:
    gone = [{"before": {"id": number}, "after": None} for number in (9, 7)]
    with lab.handler() as handler:
        handler.handle(customers(7, 9))
        handler.handle(orders(order(1, 7), types=TYPES))
        deletes = orders(*gone, table="shop.customers", types={"id": "int"}, shard=shard, offset=2)
        assert waiting(handler, deletes) == 1
        handler.handle(orders({"before": order(1, 7), "after": None}, types=TYPES, offset=1))
        handler.handle(orders(gone[1], table="shop.customers", types={"id": "int"}, shard=shard, offset=3))
    assert lab.rows("shop.customers") == []


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_shards_whose_rows_refer_to_each_other_do_not_wait_for_ever(make_sql: MakeLab, kind: str) -> None:
    lab = make_sql(kind)
    lab.make("shop.tree", "id int PRIMARY KEY, above int, FOREIGN KEY (above) REFERENCES shop.tree (id)")

    def node(number: int, above: int | None = None) -> dict[str, Any]:
        return {"id": number, "above": above}

    fields: dict[str, Any] = {"table": "shop.tree", "types": {"id": "int", "above": "int"}}
    with lab.handler() as handler:
        first = orders(node(1), node(3, 2), **fields, shard=0)
        second = orders(node(2), node(4, 1), **fields, shard=1, offset=2)
        assert waiting(handler, first) == 1
        handler.handle(second)
        handler.handle(orders(node(3, 2), **fields, shard=0, offset=1))
    assert sorted(one["id"] for one in lab.rows("shop.tree")) == [1, 2, 3, 4]


@pytest.mark.parametrize("shard", [None, 1])
@pytest.mark.parametrize("constraint", ["UNIQUE (customer)", "EXCLUDE (customer WITH =)"])
def test_what_stands_before_a_unique_value_of_another_shard_is_applied(
    make_sql: MakeLab, constraint: str, shard: int | None
) -> None:
    lab = make_sql("postgres")
    lab.make("shop.orders", f"id int PRIMARY KEY, customer int, {constraint}")
    with lab.handler() as handler:
        handler.handle(orders(order(1, 7), types=TYPES, shard=0))
        batch = orders(order(2, 8), order(3, 7), order(4, 9), types=TYPES, shard=shard, offset=1)
        with pytest.raises((Rejected, PartialFailure), match=r"unique|exclusion") as refused:
            handler.handle(batch)
    if shard is None:
        assert (type(refused.value), numbers(lab)) == (Rejected, [1])
    else:
        assert (type(refused.value), numbers(lab)) == (PartialFailure, [1, 2])


def test_a_key_that_is_looked_at_by_the_commit_alone_is_tried_again(make_sql: MakeLab) -> None:
    lab = make_sql("postgres")
    lab.make("shop.customers", "id int PRIMARY KEY")
    reference = "REFERENCES shop.customers (id) DEFERRABLE INITIALLY DEFERRED"
    lab.make("shop.orders", f"id int PRIMARY KEY, customer int {reference}")
    with lab.handler() as handler:
        assert waiting(handler, orders(order(1), order(2, 8), types=TYPES)) == 0
        handler.handle(customers(8))
        handler.handle(orders(order(1), order(2, 8), types=TYPES))
    assert numbers(lab) == [1, 2]


def copied(change: Change) -> list[Change]:
    other = deepcopy(change)
    assert other.after is not None
    other.after["id"] += 100
    return [change, other]


@pytest.mark.parametrize("columns", [{}, {"exclude": ["customer"]}])
def test_types_of_changes_that_a_transform_made_of_one_are_one_object(
    make_sql: MakeLab, columns: dict[str, Any]
) -> None:
    """Where the types are others, the batch is cut. The mark of its first part covers the position of all."""
    lab = make_sql("sqlite")
    batch = orders(order(1), order(2), types=SchemaTypes(TYPES))
    with lab.handler() as handler:
        handler.handle(ruled(batch, transform=f"{__name__}:copied", columns=columns))
    assert numbers(lab) == [1, 2, 101, 102]


def test_a_transform_may_copy_both_halves_of_a_key_change(make_sql: MakeLab) -> None:
    """The new row takes what the source does not send from the old one."""
    lab = make_sql("sqlite")
    half = {"offset": 1, "moves_key": True}
    gone = {"before": order(1, 7), "after": None, **half}
    made = {"before": None, "after": {"id": 2}, "index": 1, "lacks": frozenset({"customer"}), **half}
    batch = orders(order(1, 7), gone, made, types=SchemaTypes(TYPES))
    with lab.handler() as handler:
        handler.handle(ruled(batch, transform="copy:deepcopy"))
    assert lab.rows() == [order(2, 7)]


def test_changes_that_a_transform_made_of_one_wait_together(lab: SqlLab) -> None:
    """They have one position. With the first of them, all would count as applied."""
    rows = [order(1, 7), order(2), order(3, 8), order(4)]
    made = [{"after": row, "offset": offset} for row, offset in zip(rows, (0, 1, 1, 1), strict=True)]
    with lab.handler() as handler:
        handler.handle(customers(7))
        assert waiting(handler, orders(*made, types=TYPES)) == 1
        assert numbers(lab) == [1]
        handler.handle(customers(8, offset=5))
        handler.handle(orders(*made, types=TYPES))
        assert numbers(lab) == [1, 2, 3, 4]
