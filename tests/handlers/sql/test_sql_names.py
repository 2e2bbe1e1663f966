"""Names of tables and columns are the source's to the letter, or refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sql_lab import SqlLab, orders

from handlers import Batch, Rejected
from handlers.testing import make_batch

MakeLab = Callable[[str], SqlLab]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_names_that_end_in_a_line_break_are_kept(make_sql: MakeLab, kind: str) -> None:
    lab = make_sql(kind)
    table = "shop.fresh\n"
    with lab.handler() as handler:
        handler.handle(orders({"id\n": 1, "note\n": "a"}, key="id\n", table=table))
        handler.handle(orders({"id\n": 1, "note\n": "b", "more\n": "c"}, key="id\n", table=table, offset=1))
        handler.handle(
            make_batch(table, [{"sql": "ALTER TABLE `fresh\n` ADD `late\n` set('b','a')"}], offset=2)
        )
        retyped = "ALTER TABLE `fresh\n` MODIFY `late\n` set('a','b')"
        handler.handle(make_batch(table, [{"sql": retyped}], offset=3))
    assert lab.rows(table) == [{"id\n": 1, "note\n": "b", "more\n": "c", "late\n": None}]


@pytest.mark.parametrize("names", [("fresh\n", "note"), ("fresh", "note\n"), ("fresh", "note\n` int, `x")])
def test_names_with_a_line_break_are_refused_by_mysql(make_sql: MakeLab, names: tuple[str, str]) -> None:
    lab = make_sql("mariadb")
    table, column = names
    with lab.handler() as handler:
        for _ in range(2):
            with pytest.raises(Rejected, match="no name may have a line break"):
                handler.handle(orders({"id": 1, column: "a"}, table=f"shop.{table}"))
        escaped = column.replace("`", "``")
        sql = f"CREATE TABLE `{table}` (id int PRIMARY KEY, `{escaped}` int)"
        with pytest.raises(Rejected, match="no name may have a line break"):
            handler.handle(make_batch(f"shop.{table}", [{"sql": sql}], offset=1))
        handler.handle(orders({"id": 1, "note": "a"}, table="shop.orders", offset=2))
    made = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop'"
    assert [name for (name,) in lab.run(made)] == ["orders"]


def test_a_column_with_a_line_break_is_refused_and_the_table_goes_on(make_sql: MakeLab) -> None:
    lab = make_sql("mariadb")
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "note": "a"}))
        with pytest.raises(Rejected, match="no name may have a line break"):
            handler.handle(orders({"id": 2, "note\n": "a"}, offset=1))
        with pytest.raises(Rejected, match="no name may have a line break"):
            handler.handle(make_batch("shop.orders", [{"sql": "ALTER TABLE orders ADD `a\n` int"}], offset=2))
        handler.handle(orders({"id": 3, "note": "b"}, offset=3))
    assert [row["id"] for row in lab.rows()] == [1, 3]


@pytest.mark.parametrize("name", ["", "a\0b", "\ud83d"], ids=["empty", "NUL", "half of a character"])
def test_what_no_database_takes_for_a_name_is_refused(sql: SqlLab, name: str) -> None:
    with sql.handler() as handler:
        handler.handle(orders({"id": 1}))
        with pytest.raises(Rejected, match="no database accepts the name"):
            handler.handle(orders({"id": 2, name: "a"}, offset=1))
        with pytest.raises(Rejected, match="no database accepts the name"):
            handler.handle(orders({"id": 2, name: "a"}, table="shop.fresh"))
        handler.handle(orders({"id": 3}, offset=2))
    assert [row["id"] for row in sql.rows()] == [1, 3]


@pytest.mark.parametrize("name", ["n" * 65, "note "])
def test_names_that_mysql_does_not_take_are_refused(make_sql: MakeLab, name: str) -> None:
    lab = make_sql("mariadb")
    with lab.handler() as handler, pytest.raises(Rejected, match="MySQL accepts names"):
        handler.handle(orders({"id": 1, name: "a"}))


@pytest.mark.parametrize("what", ["table", "column"])
def test_emoji_are_refused_by_mysql(make_sql: MakeLab, what: str) -> None:
    lab = make_sql("mariadb")
    table, column = ("shop.\U0001f600", "note") if what == "table" else ("shop.orders", "\U0001f600")
    with lab.handler() as handler:
        with pytest.raises(Rejected, match=r"no name may have characters beyond U\+FFFF"):
            handler.handle(orders({"id": 1, column: "a"}, table=table))
        handler.handle(orders({"id": 1, "\u00e4\uffe5": "a"}, table="shop.fine"))


def test_columns_that_differ_in_case_are_two_or_told(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders({"id": 1, "n": "a"}))
        both = orders({"id": 1, "n": "b", "N": "c"}, {"id": 2, "N": "d", "n": "e"}, offset=1)
        if sql.dialect == "postgresql":
            handler.handle(both)
            assert [(one["n"], one["N"]) for one in sql.rows()] == [("b", "c"), ("e", "d")]
            return
        with pytest.raises(Rejected, match="differ only in case"):
            handler.handle(both)
        handler.handle(orders({"id": 1, "N": "f"}, offset=1))  # alone it is found, as before
    assert [one["n"] for one in sql.rows()] == ["f"]


@pytest.mark.parametrize("has_value", [True, False])
def test_databases_that_are_gathered_may_spell_a_column_differently(sql: SqlLab, *, has_value: bool) -> None:
    def both(name: str, offset: int) -> Batch:
        first = {"id": offset, **({name: 1} if has_value else {})}
        parts = (
            make_batch("shop.orders", [row], key="id", types={"id": "int", own: "int"}, offset=row["id"])
            for own, row in ((name, first), (name.upper(), {"id": offset + 1, name.upper(): 2}))
        )
        changes = [one for part in parts for one in part.changes]
        return Batch("shop.orders", changes, database="shop", name="orders")

    with sql.handler() as handler:
        for offset, name in enumerate("nm"):
            handler.handle(both(name, 2 * offset))
    value = 1 if has_value else None
    assert sorted((one["id"], one["n"], one.get("m")) for one in sql.rows()) == [
        *((0, value, None), (1, 2, None), (2, None, value), (3, None, 2))
    ]
