"""What InnoDB bounds: rows of 65,535 bytes and keys of 3,072. Tables are made so that they fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sql_lab import SqlLab, orders

from handlers.testing import make_batch

MakeLab = Callable[[str], SqlLab]
WIDE = {"id": "int", **{f"c{place}": "varchar(255)" for place in range(64)}}
"""As wide as MySQL takes them in utf8mb4."""


@pytest.fixture
def lab(make_sql: MakeLab) -> SqlLab:
    return make_sql("mariadb")


def types_of(lab: SqlLab, table: str = "orders") -> dict[str, str]:
    """Column -> type."""
    found = (
        "SELECT column_name, column_type FROM information_schema.columns "
        f"WHERE table_schema = 'shop' AND table_name = '{table}'"
    )
    return {name: str(type_) for name, type_ in lab.run(found)}


@pytest.mark.parametrize("more", [0, 1, 100])
def test_a_row_of_many_varchars_fits(lab: SqlLab, more: int) -> None:
    types = {**WIDE, **{f"m{place}": "varchar(200)" for place in range(more)}, "long": "varchar(1000)"}
    row = {name: 1 if name == "id" else "x" * int(type_[8:-1]) for name, type_ in types.items()}
    with lab.handler() as handler:
        handler.handle(orders(row, types=types))
    assert lab.rows() == [row]
    assert types_of(lab)["long"] == "longtext"  # the longest first
    assert not {"varchar(200)", "varchar(255)"}.isdisjoint(types_of(lab).values())


@pytest.mark.parametrize(
    ("more", "type_"), [("varchar(255)", "longtext"), ("varbinary(900)", "longblob"), ("int", "int(11)")]
)
def test_a_column_that_does_not_fit_any_more_is_a_text(lab: SqlLab, more: str, type_: str) -> None:
    row = dict.fromkeys(WIDE, "x") | {"id": 1}
    with lab.handler() as handler:
        handler.handle(orders(row, types=WIDE))
        value = 5 if more == "int" else b"y" * 900 if "binary" in more else "y" * 255
        handler.handle(orders({**row, "more": value}, types={**WIDE, "more": more}, offset=1))
        for place, what in enumerate((f"ADD late {more}", "MODIFY c1 varchar(300)")):
            sql = f"ALTER TABLE orders {what}"
            handler.handle(make_batch("shop.orders", [{"sql": sql}], offset=2 + place))
    types = types_of(lab)
    assert (types["more"], types["late"], types["c1"]) == (type_, type_, "longtext")
    assert types["c2"] == "varchar(255)"
    assert lab.rows(columns="more, c1") == [{"more": value, "c1": "x"}]


@pytest.mark.parametrize(
    ("key", "made"),
    [
        ({"k": "varchar(1000)"}, ["varchar(768)"]),
        ({f"k{place}": "varchar(255)" for place in range(5)}, ["varchar(153)"] * 5),
        (
            {"a": "varchar(20)", "b": "varchar(2000)", "c": "bigint"},
            ["varchar(20)", "varchar(746)", "bigint(20)"],
        ),
        ({"a": "varbinary(4000)", "b": "int"}, ["varbinary(3068)", "int(11)"]),
        ({"a": "varchar(255)", "b": "varchar(255)"}, ["varchar(255)"] * 2),
    ],
)
def test_a_key_is_bounded_to_what_fits(lab: SqlLab, key: dict[str, str], made: list[str]) -> None:
    row = {name: 1 if "int" in type_ else b"x" if "binary" in type_ else "x" for name, type_ in key.items()}
    with lab.handler() as handler:
        handler.handle(orders(row, key=tuple(key), types=key))
        handler.handle(orders(row, key=tuple(key), types=key, offset=1))
    assert list(types_of(lab).values()) == made
    assert len(lab.rows()) == 1


def test_a_key_that_a_statement_makes_longer_fits(lab: SqlLab) -> None:
    types = {"a": "varchar(255)", "b": "varchar(255)", "c": "varchar(1000)"}
    with lab.handler() as handler:
        handler.handle(orders(dict.fromkeys(types, "x"), key=("a", "b"), types=types))
        sql = "ALTER TABLE orders MODIFY b varchar(2000), DROP PRIMARY KEY, ADD PRIMARY KEY (a, b, c)"
        handler.handle(make_batch("shop.orders", [{"sql": sql}], offset=1))
    assert types_of(lab) == {"a": "varchar(255)", "b": "varchar(256)", "c": "varchar(256)"}
