"""Histories: versions of rows in each target, and what statements and repeated changes do to them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Thread
from typing import Any

import pytest
from sql_lab import SqlLab, orders, ruled

from handlers import Rejected
from handlers.sql.options import SqlOptions

TYPES = {"id": "int", "name": "varchar(20)", "qty": "int"}
START, END = "__START_AT", "__END_AT"


def row(id_: int, name: str | None = "a", qty: int | None = 1) -> dict[str, Any]:
    return {"id": id_, "name": name, "qty": qty}


def at(second: int, **change: Any) -> dict[str, Any]:
    return {**change, "source_time_ms": second * 1000}


def insert(second: int, after: dict[str, Any], **more: Any) -> dict[str, Any]:
    return at(second, op="insert", after=after, **more)


def update(second: int, before: dict[str, Any], after: dict[str, Any], **more: Any) -> dict[str, Any]:
    return at(second, op="update", before=before, after=after, lacks=frozenset(), **more)


def delete(second: int, before: dict[str, Any], **more: Any) -> dict[str, Any]:
    return at(second, op="delete", before=before, after=None, **more)


def seconds(found: Any) -> int | None:
    if found is None:
        return None
    time = found if isinstance(found, datetime) else datetime.fromisoformat(str(found))
    return (time.replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(seconds=1)


def versions(sql: SqlLab, *names: str, table: str = "shop.orders") -> list[tuple[Any, ...]]:
    """(id, columns, start, end) in the order of time."""
    found = [
        (each["id"], *(each[name] for name in names or ("name",)), seconds(each[START]), seconds(each[END]))
        for each in sql.rows(table)
    ]
    return sorted(found, key=lambda each: (each[0], each[-2], each[-1] or 1e9, str(each)))


def test_each_change_opens_a_version_and_a_delete_ends_the_last(sql: SqlLab) -> None:
    with sql.handler(mode="history") as handler:
        handler.handle(
            orders(
                insert(10, row(1, "a")),
                insert(11, row(2, "x")),
                update(20, row(1, "a"), row(1, "b")),
                delete(30, row(2, "x")),
                update(40, row(1, "b"), row(1, "c", None)),
                types=TYPES,
            )
        )
        assert versions(sql) == [
            (1, "a", 10, 20),
            (1, "b", 20, 40),
            (1, "c", 40, None),
            (2, "x", 11, 30),
        ]
        handler.handle(
            orders(insert(50, row(2, "y")), delete(60, row(1, "c")), types=TYPES, offset=5),
        )
    assert versions(sql) == [
        (1, "a", 10, 20),
        (1, "b", 20, 40),
        (1, "c", 40, 60),
        (2, "x", 11, 30),
        (2, "y", 50, None),
    ]
    assert [each["qty"] for each in sql.rows() if each["name"] == "c"] == [None]


def test_milliseconds_and_own_names_are_kept(sql: SqlLab) -> None:
    with sql.handler(mode="history", start_column="valid_from", end_column="valid_to") as handler:
        first = {**insert(1, row(1)), "source_time_ms": 1_763_000_000_123}
        handler.handle(orders(first, types=TYPES))
    [found] = sql.rows()
    assert str(found["valid_from"]).startswith("2025-11-13 02:13:20.123")
    assert found["valid_to"] is None


def test_repeated_changes_and_equal_snapshots_add_nothing(sql: SqlLab) -> None:
    changes = [insert(10, row(1)), update(20, row(1), row(1, "b")), insert(20, row(2, None, None))]
    with sql.handler(mode="history") as handler:
        handler.handle(orders(*changes, types=TYPES))
        handler.handle(orders(*changes, types=TYPES))
    once = versions(sql)
    assert once == [(1, "a", 10, 20), (1, "b", 20, None), (2, None, 20, None)]
    with sql.handler(mode="history") as handler:  # another process
        handler.handle(orders(*changes, types=TYPES))
        again = [at(30, op="snapshot", after=each) for each in (row(1, "b"), row(2, None, None), row(3))]
        handler.handle(orders(*again, types=TYPES, offset=3))
        assert versions(sql) == [*once, (3, "a", 30, None)]
        handler.handle(orders(at(40, op="snapshot", after=row(1, "other")), types=TYPES, offset=6))
    assert versions(sql)[:3] == [(1, "a", 10, 20), (1, "b", 20, 40), (1, "other", 40, None)]


def test_a_delete_of_a_row_that_is_not_there_changes_nothing(sql: SqlLab) -> None:
    with sql.handler(mode="history") as handler:
        handler.handle(orders(insert(10, row(1)), delete(20, row(9)), types=TYPES))
        handler.handle(orders(delete(30, row(1)), delete(40, row(1)), types=TYPES, offset=2))
    assert versions(sql) == [(1, "a", 10, 30)]


def test_a_column_that_an_update_lacks_keeps_its_value(sql: SqlLab) -> None:
    partial = {"lacks": frozenset({"name"})}
    with sql.handler(mode="history") as handler:
        handler.handle(orders(insert(10, row(1, "kept", 1)), types=TYPES))
        changes = [{**update(20 + n, {"id": 1}, {"id": 1, "qty": n}), **partial} for n in (2, 3)]
        handler.handle(orders(*changes, types=TYPES, offset=1))
    assert versions(sql, "name", "qty") == [
        (1, "kept", 1, 10, 22),
        (1, "kept", 2, 22, 23),
        (1, "kept", 3, 23, None),
    ]


def test_a_key_that_changes_ends_one_row_and_opens_another(sql: SqlLab) -> None:
    moved = {"moves_key": True, "offset": 1}
    with sql.handler(mode="history") as handler:
        handler.handle(orders(insert(10, row(1, "a", 5)), types=TYPES))
        handler.handle(
            orders(
                delete(20, row(1, "a", 5), index=0, **moved),
                insert(20, {"id": 2, "name": "b"}, index=1, lacks=frozenset({"qty"}), **moved),
                types=TYPES,
                offset=1,
            )
        )
        assert versions(sql, "name", "qty") == [(1, "a", 5, 10, 20), (2, "b", 5, 20, None)]
        moved = {"moves_key": True, "offset": 2}
        handler.handle(
            orders(
                delete(15, row(2, "b", 5), index=0, **moved),
                insert(15, row(1, "c", 6), index=1, **moved),
                types=TYPES,
                offset=2,
            )
        )
    assert versions(sql, "name", "qty") == [
        (1, "a", 5, 10, 20),
        (1, "c", 6, 20, None),
        (2, "b", 5, 20, 20),
    ]


@pytest.mark.parametrize("deletes", ["apply", "mark", "ignore"])
def test_a_key_that_changes_in_an_unknown_row_opens_a_version(sql: SqlLab, deletes: str) -> None:
    """The history began after that row. With marked or kept rows, a known one gives its copy its values."""

    def moved(offset: int, before: dict[str, Any], after: dict[str, Any], lacks: frozenset[str]) -> Any:
        one, second = {"moves_key": True, "offset": offset}, offset * 10
        halves = delete(second, before, index=0, **one), insert(second, after, index=1, lacks=lacks, **one)
        return ruled(orders(*halves, types=TYPES, offset=offset), deletes=deletes)

    with sql.handler(mode="history") as handler:
        handler.handle(ruled(orders(insert(0, row(1, "a", 5)), types=TYPES), deletes=deletes))
        handler.handle(moved(1, row(7), row(8, "new", 6), frozenset()))
        handler.handle(moved(2, row(1, "a", 5), {"id": 2, "name": "b"}, frozenset({"qty"})))
    of_old = {
        "apply": [(1, "a", 5, 0, 20)],
        "mark": [(1, "a", 5, 0, 20), (1, "a", 5, 20, None)],
        "ignore": [(1, "a", 5, 0, None)],
    }
    found = [each for each in versions(sql, "name", "qty") if each[0] != 7]  # mark: a row known as deleted
    assert found == [*of_old[deletes], (2, "b", 5, 20, None), (8, "new", 6, 10, None)]


def test_a_truncate_and_a_dropped_table_end_all_versions(sql: SqlLab) -> None:
    with sql.handler(mode="history") as handler:
        handler.handle(
            orders(
                insert(10, row(1)), insert(50, row(2)), delete(60, row(2)), insert(90, row(3)), types=TYPES
            )
        )
        handler.handle(orders(at(70, op="truncate", sql="TRUNCATE TABLE orders"), offset=4))
        ended = [(1, "a", 10, 70), (2, "a", 50, 60), (3, "a", 90, 90)]
        assert versions(sql) == ended
        handler.handle(orders(insert(80, row(1, "new")), types=TYPES, offset=5))
        handler.handle(orders(at(100, op="ddl", sql="DROP TABLE orders"), offset=6))
    assert versions(sql) == sorted([*ended, (1, "new", 80, 100)])


def test_a_table_that_gets_a_former_name_leaves_the_ended_history_aside(sql: SqlLab) -> None:
    """As tools do that build a table anew, again and again."""
    swap = "RENAME TABLE shop.orders TO shop.old, shop.new TO shop.orders"
    with sql.handler(mode="history") as handler:
        handler.handle(orders(insert(1, row(0, "first")), types=TYPES))
        for number, offset in ((1, 1), (2, 5), (3, 9)):
            second = number * 10
            new = orders(insert(second, row(number, "new")), types=TYPES, offset=offset, table="shop.new")
            handler.handle(new)
            handler.handle(orders(at(second + 1, op="ddl", sql=swap), offset=offset + 1))
            handler.handle(orders(at(second + 2, op="ddl", sql="DROP TABLE shop.old"), offset=offset + 2))
            rows = orders(insert(second + 3, row(9, "later")), types=TYPES, offset=offset + 3)
            handler.handle(rows)
            assert versions(sql) == [(number, "new", second, None), (9, "later", second + 3, None)]
        assert not sql.has("shop.new")
        with pytest.raises(Rejected, match=r"old_old of the target holds the rows of (shop|\*)\.old"):
            handler.handle(orders(insert(90, row(5)), types=TYPES, table="shop.old_old", offset=90))
    assert versions(sql, table="shop.old_old") == [(0, "first", 1, 12)]
    assert versions(sql, table="shop.old_old2") == [(1, "new", 10, 22), (9, "later", 13, 22)]
    assert versions(sql, table="shop.old") == [(2, "new", 20, 32), (9, "later", 23, 32)]


def test_a_column_that_gets_a_kept_columns_name_leaves_that_one_aside(sql: SqlLab) -> None:
    with sql.handler(mode="history") as handler:
        handler.handle(orders(insert(10, row(1, "a", 5)), types=TYPES))
        dropped = "ALTER TABLE orders DROP COLUMN qty, CHANGE name qty varchar(20)"
        handler.handle(orders(at(20, op="ddl", sql=dropped), offset=1))
        types, one = {"id": "int", "qty": "varchar(20)"}, {"id": 1, "qty": "b"}
        handler.handle(orders(update(30, one, one), types=types, offset=2))
    assert versions(sql, "qty", "qty_old") == [(1, "a", 5, 10, 30), (1, "b", None, 30, None)]


def test_a_column_that_is_added_again_never_has_the_dropped_ones_values(sql: SqlLab) -> None:
    with sql.handler(mode="history") as handler:
        handler.handle(orders(insert(10, row(1, "a", 5)), insert(10, row(2, "b", 6)), types=TYPES))
        for offset, statement in enumerate(
            (
                "ALTER TABLE orders DROP COLUMN qty",
                "ALTER TABLE orders RENAME TO items",
                "ALTER TABLE items ADD COLUMN qty varchar(9) NOT NULL DEFAULT 'x'",
                "ALTER TABLE items ADD COLUMN IF NOT EXISTS qty varchar(9)",
            ),
            start=2,
        ):
            table = "shop.orders" if offset < 4 else "shop.items"
            handler.handle(orders(at(20, op="ddl", sql=statement), offset=offset, table=table))
        types, one = {**TYPES, "qty": "varchar(9)"}, {**row(1), "qty": "many"}
        part = {**update(40, {"id": 2}, {"id": 2, "name": "c"}), "lacks": frozenset({"qty"})}
        handler.handle(orders(update(30, one, one), part, types=types, offset=6, table="shop.items"))
    assert versions(sql, "qty", "qty_old", table="shop.items") == [
        (1, "x", 5, 10, 30),
        (1, "many", None, 30, None),
        (2, "x", 6, 10, 40),
        (2, "x", 6, 40, None),
    ]


@pytest.mark.parametrize("columns", ["(id int PRIMARY KEY, name varchar(20))", "LIKE others", "LIKE unknown"])
def test_a_table_that_is_made_again_continues_its_history(sql: SqlLab, columns: str) -> None:
    """Its former columns stay, and none gives its values to a new one."""
    with sql.handler(mode="history") as handler:
        types = {"id": "int", "name": "varchar(20)"}
        handler.handle(orders(insert(1, {"id": 1, "name": "b"}), types=types, table="shop.others"))
        handler.handle(orders(insert(10, row(1, "a", 5)), types=TYPES))
        for offset, statement in enumerate(
            (
                "CREATE TABLE IF NOT EXISTS orders (id int PRIMARY KEY, name varchar(20))",
                "ALTER TABLE orders ADD COLUMN IF NOT EXISTS qty int",
                "DROP TABLE orders",
                f"CREATE TABLE orders {columns}",
            ),
            start=1,
        ):
            handler.handle(orders(at(19 + offset, op="ddl", sql=statement), offset=offset))
        handler.handle(orders(insert(30, {"id": 1, "name": "b"}), types=types, offset=5))
        added = "ALTER TABLE orders ADD COLUMN qty varchar(9) NOT NULL DEFAULT 'x'"
        handler.handle(orders(at(31, op="ddl", sql=added), offset=6))
    assert versions(sql, "qty", "qty_old") == [(1, None, 5, 10, 22), (1, "x", None, 30, None)]
    assert "qty_old2" not in sql.rows()[0]


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_statement_that_did_nothing_sets_no_column_aside(sql: SqlLab, *, is_dropped: bool) -> None:
    """Whether IF NOT EXISTS did anything, no record says, nor what a refused statement created."""
    dropped = "DROP TABLE orders", "CREATE TABLE orders LIKE others"
    gone = [at(20, op="ddl", sql=one) for one in dropped] if is_dropped else [delete(20, row(1, "a", 5))]
    with sql.handler(mode="history") as handler:
        handler.handle(orders(insert(10, row(1, "a", 5)), types=TYPES))
        for offset, one in enumerate(
            (
                *gone,
                insert(30, row(1, "b", 6)),
                at(31, op="ddl", sql="CREATE TABLE IF NOT EXISTS orders (id int PRIMARY KEY)"),
                at(32, op="ddl", sql="ALTER TABLE orders ADD COLUMN IF NOT EXISTS qty int"),
                *gone[:1],
                at(41, op="ddl", sql="CREATE TABLE IF NOT EXISTS orders (id int PRIMARY KEY, qty int)"),
                at(42, op="ddl", sql="ALTER TABLE orders ADD COLUMN IF NOT EXISTS qty int"),
            ),
            start=1,
        ):
            handler.handle(orders(one, types=TYPES, offset=offset))
    assert versions(sql, "qty") == [(1, 5, 10, 20), (1, 6, 30, 30)]
    assert "qty_old" not in sql.rows()[0]


def test_a_new_column_is_filled_in_current_versions_alone(sql: SqlLab) -> None:
    with sql.handler(mode="history") as handler:
        handler.handle(orders(insert(10, row(1)), update(20, row(1), row(1, "b")), types=TYPES))
        added = "ALTER TABLE orders ADD COLUMN n int NOT NULL DEFAULT 5"
        handler.handle(orders(at(30, op="ddl", sql=added), offset=2))
    assert versions(sql, "n") == [(1, None, 10, 20), (1, 5, 20, None)]


def test_a_key_that_the_target_computes_is_never_written(make_sql: Callable[[str], SqlLab]) -> None:
    sql = make_sql("postgres")
    times = f'"{START}" timestamp, "{END}" timestamp'
    sql.make("shop.orders", f"base int, id int GENERATED ALWAYS AS (base + 1) STORED, name text, {times}")
    types = {"base": "int", "id": "int", "name": "text"}
    with sql.handler(mode="history") as handler:
        one, again = {"base": 0, "id": 1, "name": "a"}, {"base": 0, "id": 1, "name": "b"}
        handler.handle(orders(insert(10, one), update(20, one, again), types=types))
        moved = {"moves_key": True, "offset": 2, "lacks": frozenset({"name"})}
        halves = delete(30, again, **moved), insert(30, {"base": 6, "id": 7}, index=1, **moved)
        handler.handle(orders(*halves, types=types, offset=2))
    assert versions(sql) == [(1, "a", 10, 20), (1, "b", 20, 30), (7, "b", 30, None)]


def test_a_key_may_lose_its_columns(sql: SqlLab) -> None:
    with sql.handler(mode="history") as handler:
        handler.handle(orders(insert(10, row(1, "a")), types=TYPES))
        changed = "ALTER TABLE orders DROP PRIMARY KEY, DROP COLUMN id, ADD PRIMARY KEY (name)"
        handler.handle(orders(at(20, op="ddl", sql=changed), offset=1))
        types = {"name": "varchar(20)", "qty": "int"}
        new = insert(30, {"name": "x", "qty": 1}), delete(40, {"name": "a", "qty": 1})
        handler.handle(orders(*new, types=types, offset=2, key="name"))
    found = [(each["id"], each["name"], seconds(each[END])) for each in sql.rows()]
    assert sorted(found, key=str) == [(1, "a", 40), (None, "x", None)]


def test_an_ended_version_keeps_columns_that_the_target_renews(make_sql: Callable[[str], SqlLab]) -> None:
    sql = make_sql("mariadb")
    times = f"`{START}` datetime(3), `{END}` datetime(3)"
    renewed = "made datetime NULL ON UPDATE CURRENT_TIMESTAMP"
    sql.make("shop.orders", f"id int, name varchar(20), qty int, {renewed}, {times}")
    types, made = {**TYPES, "made": "datetime"}, datetime(2020, 1, 1)
    with sql.handler(mode="history") as handler:
        one = {**row(1), "made": made}
        handler.handle(orders(insert(10, one), update(20, one, one), delete(30, one), types=types))
    assert versions(sql, "made") == [(1, made, 10, 20), (1, made, 20, 30)]


def test_statements_about_columns_are_followed_in_all_versions(sql: SqlLab) -> None:
    with sql.handler(mode="history") as handler:

        def state(second: int, statement: str, offset: int) -> None:
            handler.handle(orders(at(second, op="ddl", sql=statement), offset=offset))

        handler.handle(orders(insert(10, row(1)), update(20, row(1), row(1, "b")), types=TYPES))
        state(30, "ALTER TABLE orders ADD COLUMN note varchar(10)", 2)
        state(31, "ALTER TABLE orders CHANGE qty amount bigint", 3)
        new = {"id": "int", "name": "varchar(20)", "amount": "bigint", "note": "varchar(10)"}
        noted = {"id": 1, "name": "b", "amount": 2**40, "note": "n"}
        handler.handle(orders(update(40, noted, noted), types=new, offset=4))
        assert versions(sql, "name", "amount", "note") == [
            (1, "a", 1, None, 10, 20),
            (1, "b", 1, None, 20, 40),
            (1, "b", 2**40, "n", 40, None),
        ]
        state(50, "ALTER TABLE orders DROP COLUMN note, DROP PRIMARY KEY, ADD PRIMARY KEY (id, name)", 5)
        del new["note"], noted["note"]
        batch = orders(update(60, noted, noted), types=new, offset=6, key=("id", "name"))
        handler.handle(batch)
        state(70, "ALTER TABLE orders RENAME TO items", 7)
    found = [(each["note"], seconds(each[START]), seconds(each[END])) for each in sql.rows("shop.items")]
    assert sorted(found, key=lambda each: each[1])[2:] == [("n", 40, 60), (None, 60, None)]


def test_a_statement_that_creates_a_table_leaves_that_to_its_first_row(sql: SqlLab) -> None:
    with sql.handler(mode="history") as handler:
        create = "CREATE TABLE orders (id int PRIMARY KEY, name varchar(20), qty int)"
        handler.handle(orders(at(1, op="ddl", sql=create)))
        assert not sql.has("shop.orders")
        handler.handle(orders(insert(10, row(1)), update(20, row(1), row(1)), types=TYPES, offset=1))
    assert versions(sql) == [(1, "a", 10, 20), (1, "a", 20, None)]


def test_keys_of_several_columns_and_of_texts_find_their_versions(sql: SqlLab) -> None:
    types = {"id": "int", "name": "varchar(20)", "qty": "int"}
    with sql.handler(mode="history") as handler:
        rows = [row(1, "A"), row(1, "a"), row(1, "a ")]
        handler.handle(
            orders(*(insert(10, each) for each in rows), types=types, key=("id", "name")),
        )
        handler.handle(
            orders(update(20, rows[1], {**rows[1], "qty": 7}), types=types, key=("id", "name"), offset=3)
        )
    assert versions(sql, "name", "qty") == sorted(
        [(1, "A", 1, 10, None), (1, "a", 1, 10, 20), (1, "a ", 1, 10, None), (1, "a", 7, 20, None)],
        key=lambda each: (each[0], each[-2], each[-1] or 1e9, str(each)),
    )


def test_spellings_of_one_key_are_one_row(sql: SqlLab) -> None:
    one, again = row(2, "a"), {**row(2, "b"), "id": "2"}
    with sql.handler(mode="history") as handler:
        handler.handle(orders(insert(10, row(3, "a")), types=TYPES))
        changes = insert(20, one), update(30, again, again), delete(40, one)
        handler.handle(orders(*changes, types=TYPES, offset=1))
        assert versions(sql) == [(2, "a", 20, 30), (2, "b", 30, 40), (3, "a", 10, None)]
        moved = {"moves_key": True, "offset": 4, "lacks": frozenset({"qty"})}
        halves = delete(50, row(3), **moved), insert(50, {"id": "3", "name": "b"}, index=1, **moved)
        handler.handle(orders(*halves, types=TYPES, offset=4))
    assert versions(sql, "name", "qty")[2:] == [(3, "a", 1, 10, 50), (3, "b", 1, 50, None)]


def test_writers_of_two_topics_never_overlap_a_rows_versions(server: SqlLab) -> None:
    """A replayed dead letter, beside the worker."""
    failed: list[BaseException] = []

    def write(topic: str) -> None:
        with server.handler(mode="history") as handler:
            for number in range(40):
                changes = [update(1 + number, row(id_), row(id_, f"{topic} {number}")) for id_ in range(4)]
                try:
                    handler.handle(orders(*changes, types=TYPES, topic=topic, offset=4 * number))
                except BaseException as error:
                    failed.append(error)

    with server.handler(mode="history") as handler:
        handler.handle(orders(insert(1, row(0)), types=TYPES))
    threads = [Thread(target=write, args=(topic,)) for topic in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    found = versions(server)
    assert len(found) == 1 + 4 * 2 * 40
    for id_ in range(4):
        periods = [each[2:] for each in found if each[0] == id_]
        assert [end for _, end in periods[:-1]] == [start for start, _ in periods[1:]], periods
        assert periods[-1][1] is None


def test_tables_that_cannot_hold_versions_are_told(sql: SqlLab) -> None:
    with sql.handler(mode="history") as handler:
        with pytest.raises(Rejected, match="the table has no primary key, and a history needs one"):
            handler.handle(orders(insert(1, row(1)), types=TYPES, key=None))
        with pytest.raises(Rejected, match="a column of the source has the name of __START_AT or __END_AT"):
            handler.handle(orders(insert(1, row(1)), insert(1, {**row(2), END: "2020-01-01"})))
        named = {**row(1), "__start_at": 1}
        with pytest.raises(Rejected, match="a column of the source has the name of __START_AT or __END_AT"):
            handler.handle(orders(insert(1, named), types={**TYPES, "__start_at": "int"}, offset=1))
        with pytest.raises(Rejected, match="a column of the source has the name of __START_AT or __END_AT"):
            handler.handle(orders(insert(1, named), types={"added": "int"}, offset=1))
    with sql.handler() as handler:
        handler.handle(orders(row(1), types=TYPES, table="crm.orders"))
    with sql.handler(mode="history", worker="other") as handler:
        with pytest.raises(Rejected, match="has no columns __START_AT and __END_AT, so it is no history"):
            handler.handle(orders(insert(1, row(1)), types=TYPES, table="crm.orders", offset=2))
        with pytest.raises(Rejected, match="has no columns __START_AT and __END_AT, so it is no history"):
            handler.handle(orders(at(3, op="truncate", sql="TRUNCATE orders"), table="crm.orders", offset=3))
    times = "__start_at timestamp NULL, __end_at timestamp NULL"
    sql.make("crm.small", f"id int, name varchar(20), qty int, {times}")
    with sql.handler(mode="history") as handler:
        with pytest.raises(Rejected, match="has no columns __START_AT and __END_AT, so it is no history"):
            handler.handle(orders(insert(1, row(1)), types=TYPES, table="crm.small"))
        # Ended versions are copies of the current one.
        for number, key in enumerate(("id", "qty", "id, __start_at", "own")):
            columns = f"id int, name varchar(20), qty int, {times}, own int DEFAULT 5, PRIMARY KEY ({key})"
            quote = "`" if sql.dialect == "mysql" else '"'
            for name in (START, END):
                columns = columns.replace(name.lower(), f"{quote}{name}{quote}")
            sql.make(f"crm.kept{number}", columns.replace("timestamp NULL", "timestamp", 1))
            with pytest.raises(Rejected, match="has a unique key, so it cannot hold several versions"):
                handler.handle(orders(insert(1, row(1)), types=TYPES, table=f"crm.kept{number}"))


def test_columns_of_versions_need_two_names() -> None:
    with pytest.raises(ValueError, match="start_column and end_column need two names"):
        SqlOptions(url="sqlite:///x", mode="history", start_column="at", end_column="AT")
