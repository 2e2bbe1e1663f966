"""What does not fit is told with table, column and place, once, and nothing is lost over it."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sql_lab import SqlLab, orders

from handlers import HandlerContext, Rejected
from handlers.options.faults import check_options
from handlers.sql import SqlHandler
from handlers.sql.handler import DatabaseError

TYPES = {"id": "int", "name": "varchar(5)", "qty": "smallint"}


def row(id_: int, **values: Any) -> dict[str, Any]:
    return {"id": id_, "name": "a", "qty": 1} | values


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "too long": ({"name": "longer than five"}, "name|too long"),
    "out of range": ({"qty": 70000}, "qty|out of range"),
    "not a number": ({"qty": "many"}, "qty|many"),
    "lone surrogate": ({"name": "\ud83d"}, "surrogates"),
    "not a whole number": ({"qty": Decimal("1.5")}, "column qty: it is not a whole number"),
    "null key": ({"id": None}, "primary key is NULL"),
}


@pytest.mark.parametrize("kind", BAD)
def test_one_bad_row_among_500_is_told_by_its_place(server: SqlLab, kind: str) -> None:
    values, text = BAD[kind]
    rows = [row(number) for number in range(500)]
    rows[321] = row(321, **values)
    with server.handler() as handler:
        with pytest.raises(Rejected, match=text) as told:
            handler.handle(orders(*rows, types=TYPES, offset=1000))
        assert told.value.at == 321
        assert "shop.orders into shop.orders: " in str(told.value)
        assert "at test[0] offset 1321" in str(told.value)
        assert server.rows() == []
        # The worker goes on around it.
        handler.handle(orders(*rows[:321], types=TYPES, offset=1000))
        handler.handle(orders(*rows[322:], types=TYPES, offset=1322))
    assert len(server.rows()) == 499


def test_a_nul_character_is_refused_by_postgresql(make_sql: Any) -> None:
    lab = make_sql("postgres")
    with (
        lab.handler() as handler,
        pytest.raises(Rejected, match=r"column name: it contains the character NUL") as told,
    ):
        handler.handle(orders(row(1), row(2, name="a\0b"), types=TYPES))
    assert told.value.at == 1


@pytest.mark.parametrize(
    ("of", "text"),
    [
        ("ltree", "a..b c"),
        ("hstore", "a=>"),
        ("tsquery", "a & & b"),
        ("tsvector", "'a"),
        ("jsonpath", "$.."),
        ("seg", "abc"),
        ("regtype", "nope"),
        ("regclass", "nope"),
    ],
)
def test_a_text_that_a_type_cannot_read_is_the_rows_at_once(make_sql: Any, of: str, text: str) -> None:
    """Each says so by a code of its own, which is also one of a wrong statement, or of any fault."""
    lab = make_sql("postgres")
    if of in ("ltree", "hstore", "seg"):
        lab.run(f"CREATE EXTENSION {of}")
    lab.make("shop.orders", f"id int PRIMARY KEY, it {of}")
    with lab.handler() as handler:
        with pytest.raises(Rejected, match=r"at test\[0\] offset 1$") as told:
            handler.handle(orders({"id": 1, "it": None}, {"id": 2, "it": text}, {"id": 3, "it": None}))
        assert told.value.at == 1


def test_a_text_is_as_long_as_its_column_counts(make_sql: Any) -> None:
    """Of cp1251 a byte for each character, where UTF-8 has two."""
    lab = make_sql("mariadb")
    lab.make("shop.orders", "id int PRIMARY KEY, name tinytext CHARACTER SET cp1251")
    kept = [{"id": 1, "name": "я" * 255}, {"id": 2, "name": "я" * 200 + "\n"}]
    with lab.handler() as handler:
        handler.handle(orders(*kept))
        for long in ("я" * 256, "я" * 255 + "\n"):
            with pytest.raises(Rejected, match="name"):
                handler.handle(orders({"id": 3, "name": long}, offset=2))
    assert lab.rows() == kept


@pytest.mark.parametrize("charset", ["utf8mb4", "latin1", "gbk"])
def test_no_line_breaks_are_cut_off_a_text(make_sql: Any, charset: str) -> None:
    """Nor tabs: MySQL takes them for spaces."""
    lab = make_sql("mariadb")
    lab.make("shop.orders", f"id int PRIMARY KEY, name tinytext CHARACTER SET {charset}")
    full = "y" * 251 + "é"
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "name": f"{full}\r\n"}))
        for end in (" ", "\t", "\n", "\v", "\f", "\r"):
            with pytest.raises(Rejected, match="name"):
                handler.handle(orders({"id": 2, "name": full + end * 5}, offset=1))
    assert lab.rows() == [{"id": 1, "name": f"{full}\r\n"}]


def test_a_value_that_would_be_rounded_is_refused(server: SqlLab) -> None:
    server.make("shop.orders", "id int PRIMARY KEY, price decimal(9,2), at timestamp(3) NULL")
    with server.handler() as handler:
        handler.handle(orders({"id": 1, "price": Decimal("1.500000")}))
        with pytest.raises(Rejected, match=r"column price: 1\.505 has more than 2 digits after the point"):
            handler.handle(orders({"id": 2, "price": Decimal("1.505")}, offset=1))
    assert [str(one["price"]) for one in server.rows()] == ["1.50"]


def test_a_column_that_the_target_lacks_is_told(sql: SqlLab) -> None:
    sql.make("shop.orders", "id int PRIMARY KEY")
    with sql.handler(create=False) as handler, pytest.raises(Rejected) as told:
        handler.handle(orders({"id": 1}, row(2), offset=5))
    assert told.value.at == 1
    assert str(told.value).partition(": ")[2] == (
        "the target's table has no column name, qty; add it, or set new_columns to add or ignore, "
        "at test[0] offset 6"
    )


def test_a_table_that_the_target_lacks_is_told(sql: SqlLab) -> None:
    with sql.handler(create=False) as handler, pytest.raises(Rejected) as told:
        handler.handle(orders(row(1), offset=5))
    assert "create it, or set create: true, at test[0] offset 5" in str(told.value)


def test_a_change_without_its_key_is_told(sql: SqlLab) -> None:
    with sql.handler() as handler, pytest.raises(Rejected, match="does not have the key column id") as told:
        handler.handle(orders(row(1), {"before": {"name": "x"}, "after": None}, types=TYPES))
    assert told.value.at == 1


def test_a_key_that_the_target_does_not_know_as_one_still_works(sql: SqlLab) -> None:
    """Row by row, without a unique key to rely on."""
    sql.make("shop.orders", "id int, name varchar(5), qty int")
    with sql.handler() as handler:
        handler.handle(orders(row(1), row(2), types=TYPES))
        handler.handle(
            orders(
                {"before": row(1), "after": row(1, qty=5)},
                {"before": row(2), "after": None},
                row(3),
                types=TYPES,
                offset=2,
            )
        )
    assert [(one["id"], one["qty"]) for one in sql.rows()] == [(1, 5), (3, 1)]


def test_a_name_that_postgresql_would_cut_is_refused(make_sql: Any) -> None:
    lab = make_sql("postgres")
    with lab.handler() as handler, pytest.raises(Rejected, match="names of at most 63 bytes, not 表"):
        handler.handle(orders({"id": 1}, table=f"shop.{'表' * 22}", types={"id": "int"}))


def test_a_table_that_was_changed_behind_the_handlers_back_is_looked_at_anew(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders(row(1), types=TYPES))
        sql.run(f"ALTER TABLE {sql.ref('shop.orders')} DROP COLUMN qty")
        handler.handle(orders(row(2), types=TYPES, offset=1))
        sql.run(f"DROP TABLE {sql.ref('shop.orders')}")
        handler.handle(orders(row(3), types=TYPES, offset=2))
    assert sql.rows() == [row(3)]


# ---- options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "url: missing; required"),
        ({"url": "nonsense"}, "url: it is not a database URL"),
        ({"url": "oracle://u:hunter2@h/d"}, "url: there is no driver for such a database"),
        ({"url": "postgresql+asyncpg://u:hunter2@h/d"}, "url: there is no driver"),
        ({"url": "sqlite://"}, "url: SQLite needs a file, as in sqlite:///replica.db"),
        ({"url": "postgresql://u:hunter2@h"}, "url: the URL names no database"),
        ({"url": "mysql://u:hunter2@h"}, "the URL names no database: add one, or write marks_table as"),
        ({"url": "sqlite:///x", "schema": "a"}, "SQLite has no schemas"),
        ({"url": "sqlite:///x", "table": "{tabel}"}, "table: {tabel} is unknown in a name"),
        ({"url": "sqlite:///x", "without_key": "upsert"}, "without_key: allowed: match, append, refuse"),
        ({"url": "sqlite:///x", "shema": "a"}, "shema: unknown key; allowed: .*nearest: schema"),
        ({"url": "sqlite:///x", "timeout": "0s"}, "timeout: "),
    ],
)
def test_a_fault_in_the_options_is_told_without_the_url(options: dict[str, Any], text: str) -> None:
    told = [f"{'.'.join(map(str, one.path))}: {one.message}" for one in check_options(SqlHandler, options)]
    assert len(told) == 1
    assert re.search(text, told[0]), told
    assert "hunter2" not in told[0]


def test_check_reaches_the_target_and_changes_nothing(sql: SqlLab) -> None:
    context = HandlerContext(worker="w", handler="sql", folder=sql.folder)
    SqlHandler(url=sql.url).check(context)
    assert not sql.has("shop.orders")
    assert not [name for name in _tables(sql) if name == "binlane_marks"]


def _tables(sql: SqlLab) -> list[str]:
    return sa.inspect(sql.engine).get_table_names()


def test_check_tells_what_the_account_may_not_do(server: SqlLab) -> None:
    context = HandlerContext(worker="w", handler="sql", folder=server.folder)
    if server.dialect == "postgresql":
        server.run("DROP ROLE IF EXISTS reader")
        server.run("CREATE ROLE reader LOGIN PASSWORD 'hunter2'")
    else:
        server.run("DROP USER IF EXISTS reader")
        server.run("CREATE USER reader IDENTIFIED BY 'hunter2'")
        server.run("GRANT SELECT ON *.* TO reader")
    url = (
        sa.make_url(server.url)
        .set(username="reader", password="hunter2")
        .render_as_string(hide_password=False)
    )
    with pytest.raises(DatabaseError, match=r"may not create|lacks the right to INSERT") as told:
        SqlHandler(url=url).check(context)
    assert "hunter2" not in str(told.value)


def test_neither_open_nor_check_shows_the_password(server: SqlLab, tmp_path: Path) -> None:
    url = sa.make_url(server.url).set(password="hunter2").render_as_string(hide_password=False)
    context = HandlerContext(worker="w", handler="sql", folder=tmp_path)
    for reach in (SqlHandler(url=url).check, SqlHandler(url=url).open):
        with pytest.raises(DatabaseError) as told:
            reach(context)
        assert f"{server.dialect} at 127.0.0.1:" in str(told.value)
        assert "hunter2" not in str(told.value)
        assert "hunter2" not in repr(SqlHandler(url=url)._options)
