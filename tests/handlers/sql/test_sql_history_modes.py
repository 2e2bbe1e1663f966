"""A table stays a replica or a history, and no statement of the source changes what a history adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from sql_lab import SqlLab, orders

from handlers import Batch, Rejected
from handlers.values.native_types import SchemaTypes

TYPES = {"id": "int", "name": "varchar(20)", "qty": "int"}
ROW = {"id": 1, "name": "a", "qty": 1}
NAMED = {"start_column": "valid_from", "end_column": "valid_to"}


def update(name: str, offset: int, table: str = "shop.orders") -> Batch:
    change = {"op": "update", "before": ROW, "after": {**ROW, "name": name}, "lacks": frozenset()}
    return orders(change, types=TYPES, offset=offset, table=table)


def stated(statement: str, offset: int, table: str = "shop.orders") -> Batch:
    return orders({"op": "ddl", "sql": statement, "source_time_ms": 9_000}, offset=offset, table=table)


def history(sql: SqlLab, **options: Any) -> None:
    with sql.handler(mode="history", **options) as handler:
        handler.handle(orders(ROW, types=TYPES))
        handler.handle(update("b", 1))


@pytest.mark.parametrize("names", [{}, NAMED], ids=["usual", "named"])
def test_a_replica_neither_changes_nor_empties_a_history(sql: SqlLab, names: Mapping[str, str]) -> None:
    """The line `mode: history` is gone, or another handler has none."""
    history(sql, **names)
    before = sql.rows()
    refused = [
        update("c", 2),
        *map(
            stated,
            (
                "TRUNCATE TABLE orders",
                "DROP TABLE orders",
                "ALTER TABLE orders DROP COLUMN qty",
                "ALTER TABLE orders RENAME TO items",
            ),
            (3, 4, 5, 6),
        ),
    ]
    for worker in ("w", "other"):
        with sql.handler(worker, ddl=True) as handler:
            for batch in refused:
                with pytest.raises(Rejected, match=r"is a history .* set its mode"):
                    handler.handle(batch)
    assert sql.rows() == before
    with sql.handler(mode="history", **names) as handler:
        handler.handle(update("c", 2))
    assert [row["name"] for row in sql.rows()] == ["a", "b", "c"]


@pytest.mark.parametrize("names", [{}, {"start_column": "valid_to", "end_column": "valid_from"}])
def test_a_history_keeps_its_names(sql: SqlLab, names: Mapping[str, str]) -> None:
    """With both names swapped, no version would be a current one."""
    history(sql, **NAMED)
    before = sql.rows()
    with sql.handler(mode="history", **names) as handler:
        for batch in (update("c", 2), stated("TRUNCATE TABLE orders", 3)):
            with pytest.raises(
                Rejected, match=r"no history|is a history \(columns valid_from and valid_to\)"
            ):
                handler.handle(batch)
    assert sql.rows() == before


def test_a_history_in_one_table_of_a_fixed_name_stays_one(sql: SqlLab) -> None:
    place = {"table": "all_orders"} if sql.dialect == "sqlite" else {"schema": "shop", "table": "all_orders"}
    with sql.handler(mode="history", **NAMED, **place) as handler:
        handler.handle(orders(ROW, types=TYPES))
    with sql.handler(**place) as handler, pytest.raises(Rejected, match="is a history"):
        handler.handle(stated("TRUNCATE TABLE orders", 1))
    with sql.handler(mode="history", **NAMED, **place) as handler:
        handler.handle(update("b", 1))


def test_a_table_that_is_renamed_or_set_aside_stays_a_history(sql: SqlLab) -> None:
    with sql.handler(mode="history", **NAMED) as handler:
        handler.handle(orders(ROW, types=TYPES))
        handler.handle(stated("DROP TABLE orders", 1))
        handler.handle(orders(ROW, types=TYPES, table="shop.items", offset=2))
        handler.handle(stated("RENAME TABLE shop.items TO shop.orders", 3, "shop.items"))
    with sql.handler(ddl=True) as handler:
        for table in ("orders", "orders_old"):
            with pytest.raises(Rejected, match=r"is a history|holds the rows of (shop|\*)\.o"):
                handler.handle(stated(f"TRUNCATE TABLE {table}", 4, f"shop.{table}"))
            assert len(sql.rows(f"shop.{table}")) == 1


def test_a_table_that_is_gone_may_become_the_other(sql: SqlLab) -> None:
    history(sql)
    sql.run(f"DROP TABLE {sql.ref('shop.orders')}")
    with sql.handler() as handler:
        handler.handle(update("c", 2))
    assert sql.rows() == [{**ROW, "name": "c"}]
    sql.run(f"DROP TABLE {sql.ref('shop.orders')}")
    with sql.handler(mode="history") as handler:
        handler.handle(update("d", 3))
    assert [row["name"] for row in sql.rows()] == ["d"]


@pytest.mark.parametrize(
    "statement",
    [
        "RENAME COLUMN qty TO __END_AT",
        "CHANGE name __start_at datetime",
        "ADD COLUMN note text, ADD COLUMN __END_AT int NOT NULL DEFAULT 5",
        "MODIFY __END_AT varchar(20)",
        "RENAME COLUMN __START_AT TO made",
    ],
)
def test_no_statement_changes_the_period_of_versions(sql: SqlLab, statement: str) -> None:
    history(sql)
    before = sql.rows()
    with sql.handler(mode="history") as handler:
        with pytest.raises(Rejected, match="a column of the source has the name of __START_AT or __END_AT"):
            handler.handle(stated(f"ALTER TABLE orders {statement}", 2))
        assert sql.rows() == before
        handler.handle(stated("ALTER TABLE orders DROP COLUMN __END_AT", 3))
        handler.handle(update("c", 4))
    assert [row["name"] for row in sql.rows()] == ["a", "b", "c"]
    assert [row["__END_AT"] is None for row in sql.rows()] == [False, False, True]


def test_a_replica_with_other_marks_knows_a_history_by_its_columns(sql: SqlLab) -> None:
    history(sql)
    before = sql.rows()
    told = "is a history: its past versions would be changed"
    with sql.handler(marks_table="other_marks") as handler, pytest.raises(Rejected, match=told):
        handler.handle(update("c", 2))
    assert sql.rows() == before


def test_no_schema_drops_a_column_of_a_history_with_other_marks(sql: SqlLab) -> None:
    """The replica's marks know the former table's columns."""
    with sql.handler(marks_table="other_marks") as handler:
        handler.handle(orders(ROW, types=SchemaTypes(TYPES)))
    sql.run(f"DROP TABLE {sql.ref('shop.orders')}")
    history(sql)
    before = sql.rows()
    without = orders({"id": 2, "name": "b"}, types=SchemaTypes({"id": "int", "name": "text"}), offset=2)
    with sql.handler(marks_table="other_marks") as handler, pytest.raises(Rejected, match="is a history"):
        handler.handle(without)
    assert sql.rows() == before


def test_a_history_that_is_set_aside_is_not_the_former_table_of_that_name(sql: SqlLab) -> None:
    with sql.handler(mode="history") as handler:
        handler.handle(orders(ROW, types=TYPES, table="shop.orders_old"))
    sql.run(f"DROP TABLE {sql.ref('shop.orders_old')}")
    history(sql)
    with sql.handler(mode="history") as handler:
        handler.handle(stated("DROP TABLE orders", 2))
        handler.handle(orders(ROW, types=TYPES, table="shop.items", offset=3))
        handler.handle(stated("RENAME TABLE shop.items TO shop.orders", 4, "shop.items"))
        with pytest.raises(Rejected, match=r"orders_old of the target holds the rows of (shop|\*)\.orders:"):
            handler.handle(update("c", 5, "shop.orders_old"))
    assert [row["name"] for row in sql.rows("shop.orders_old")] == ["a", "b"]


def test_no_rename_sets_the_history_of_another_table_aside(sql: SqlLab) -> None:
    """It has no current version only now."""
    place = "{database}.{table}_kept" if sql.dialect == "sqlite" else "{table}_kept"
    with sql.handler(mode="history", table=place) as handler:
        handler.handle(orders(ROW, types=TYPES))
        handler.handle(stated("TRUNCATE TABLE orders", 1))
    with sql.handler(mode="history") as handler:
        handler.handle(orders(ROW, types=TYPES, table="shop.items"))
        handler.handle(stated("RENAME TABLE shop.items TO shop.orders_kept", 1, "shop.items"))
    with sql.handler(mode="history", table=place) as handler:
        handler.handle(update("b", 2))
    assert [row["name"] for row in sql.rows("shop.orders_kept")] == ["a", "b"]


def moved(old: int, new: Mapping[str, Any], lacks: frozenset[str], offset: int) -> Batch:
    half = {"moves_key": True, "before_is_whole": False, "offset": offset}
    gone = {"op": "delete", "before": {"id": old}, "after": None, **half}
    made = {"op": "insert", "after": new, "lacks": lacks, "index": 1, **half}
    return orders(gone, made, types={"id": "int", "name": "varchar(20)"}, offset=offset)


def test_a_whole_row_opens_no_version_with_a_value_of_a_dropped_column(sql: SqlLab) -> None:
    """A change that lacks columns keeps what it does not name."""
    part = {"op": "update", "before": {"id": 1}, "after": {"id": 1}, "lacks": frozenset({"name"})}
    types = {"id": "int", "name": "varchar(20)"}
    with sql.handler(mode="history") as handler:
        handler.handle(orders(ROW, types=TYPES))
        handler.handle(stated("ALTER TABLE orders DROP COLUMN qty", 1))
        handler.handle(orders({**part, "source_time_ms": 9_001}, types=types, offset=2))
        handler.handle(moved(1, {"id": 2}, frozenset({"name"}), 3))
        handler.handle(moved(2, {"id": 3, "name": "c"}, frozenset(), 4))
    found = sorted((row["id"], row["name"], str(row["qty"])) for row in sql.rows())
    assert found == [(1, "a", "1"), (1, "a", "1"), (2, "a", "1"), (3, "c", "None")]


@pytest.mark.parametrize("options", [{"mode": "history"}, {"ddl": {"drop_columns": False}}])
def test_a_renamed_table_keeps_its_dropped_columns_under_a_fixed_name(
    sql: SqlLab, options: Mapping[str, Any]
) -> None:
    place = {"table": "shop.kept"} if sql.dialect == "sqlite" else {"schema": "shop", "table": "kept"}
    with sql.handler(**options, **place) as handler:
        handler.handle(orders(ROW, types=TYPES))
        handler.handle(stated("ALTER TABLE orders DROP COLUMN qty", 1))
        for offset in (2, 3):
            handler.handle(stated("RENAME TABLE orders TO items", offset, "shop.items"))
        handler.handle(stated("ALTER TABLE items ADD COLUMN qty int DEFAULT 7", 4, "shop.items"))
    [row] = sql.rows("shop.kept")
    assert (row["qty"], row["qty_old"]) == (7, 1)


@pytest.mark.parametrize("worker", ["w", "renamed"])
def test_versions_end_with_their_table_whoever_created_it_in_the_target(sql: SqlLab, worker: str) -> None:
    """Nothing is dropped, so it does not count who made the table."""
    history(sql)
    sql.run("UPDATE binlane_marks SET kafka_offset = 0 WHERE shard = -2")  # as if by somebody else
    with sql.handler(worker, mode="history") as handler:
        handler.handle(stated("DROP TABLE orders", 9))
    assert all(row["__END_AT"] is not None for row in sql.rows())


@pytest.mark.parametrize(
    ("ddl", "statements"),
    [
        (False, ["ALTER TABLE orders DROP COLUMN qty", "ALTER TABLE orders ADD COLUMN qty int"]),
        ({}, ["ALTER TABLE orders DROP COLUMN qty", "DROP TABLE orders", "CREATE TABLE orders LIKE others"]),
    ],
    ids=["switched off", "like"],
)
def test_a_column_that_the_source_has_again_is_no_longer_a_dropped_one(
    sql: SqlLab, ddl: Any, statements: Sequence[str]
) -> None:
    """Whatever statement is skipped, or does not name it: a change says that the source has it."""
    both = {"op": "update", "before": {"id": 2}, "after": {"id": 2, "name": "y"}, "source_time_ms": 9_002}
    with sql.handler(mode="history", ddl=ddl) as handler:
        handler.handle(orders(ROW, types=TYPES))
        for offset, statement in enumerate(statements, 1):
            handler.handle(stated(statement, offset))
        insert = {"after": {"id": 2, "name": "x", "qty": 5}, "source_time_ms": 9_001}
        handler.handle(orders({"op": "insert", **insert}, types=TYPES, offset=4))
        handler.handle(orders({**both, "lacks": frozenset({"qty"})}, offset=5))
        handler.handle(orders({**both, "lacks": None}, types=TYPES, offset=6))
    found = sorted((row["id"], row["name"], str(row["qty"])) for row in sql.rows())
    assert found == [(1, "a", "1"), (2, "x", "5"), (2, "y", "5"), (2, "y", "5")]


def test_a_copy_of_a_table_has_its_dropped_columns(sql: SqlLab) -> None:
    with sql.handler(ddl={"drop_columns": False}) as handler:
        handler.handle(orders(ROW, types=TYPES))
        handler.handle(stated("ALTER TABLE orders DROP COLUMN qty", 1))
        handler.handle(stated("CREATE TABLE items LIKE orders", 2, "shop.items"))
        handler.handle(orders({"id": 2, "name": "b"}, table="shop.items", offset=3))
        handler.handle(stated("ALTER TABLE items ADD COLUMN qty int DEFAULT 7", 4, "shop.items"))
    assert sql.rows("shop.items") == [{"id": 2, "name": "b", "qty": 7, "qty_old": None}]
