"""MySQL's ON DUPLICATE KEY takes any unique index: none but the row's own key may decide."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sql_lab import SqlLab, orders

from handlers import Rejected

MakeLab = Callable[[str], SqlLab]
COLUMNS = "id varchar(20) PRIMARY KEY, email varchar(50), phone varchar(9)"


def row(id_: str, email: str, phone: str) -> dict[str, str]:
    return {"id": id_, "email": email, "phone": phone}


@pytest.fixture
def lab(make_sql: MakeLab) -> SqlLab:
    return make_sql("mariadb")


@pytest.mark.parametrize("id_type", ["int", "varchar(20)", "char(9)", "decimal(9,2)", "varbinary(9)"])
def test_a_unique_index_made_while_the_worker_runs_never_changes_another_row(
    lab: SqlLab, id_type: str
) -> None:
    lab.make("shop.orders", COLUMNS.replace("varchar(20)", id_type))
    with lab.handler() as handler:
        handler.handle(orders(row("2", "abc", "1234")))
        lab.run("CREATE UNIQUE INDEX email ON shop.orders (email)")
        # Legal in a source with the same index: each row has a value of its own at any moment.
        handler.handle(
            orders(
                row("44", "tmp", "5678"),
                {"before": row("2", "abc", "1234"), "after": row("2", "xyz", "1234")},
                {"before": row("44", "tmp", "5678"), "after": row("44", "abc", "5678")},
                offset=1,
            )
        )
        assert [(one["email"], one["phone"]) for one in lab.rows()] == [("xyz", "1234"), ("abc", "5678")]
        with pytest.raises(Rejected, match=r"Duplicate entry 'abc' for key 'email'.* offset 5") as refused:
            handler.handle(orders(row("3", "c", "c"), row("45", "abc", "9"), row("4", "d", "d"), offset=4))
    assert refused.value.at == 1
    assert ("abc", "5678") in [(one["email"], one["phone"]) for one in lab.rows()]
    assert len(lab.rows()) == 2


@pytest.mark.parametrize(
    "columns",
    [
        "id varchar(20), email varchar(50), phone varchar(9), PRIMARY KEY (id(3))",
        f"{COLUMNS}, UNIQUE (email(3))",
        f"{COLUMNS}, first char(3) AS (left(email, 3)) VIRTUAL, UNIQUE (first)",
    ],
    ids=["a prefix of the key", "of another column", "an expression"],
)
def test_an_index_of_a_part_never_makes_two_rows_one(lab: SqlLab, columns: str) -> None:
    lab.make("shop.orders", columns)
    with lab.handler() as handler:
        with pytest.raises(Rejected, match="Duplicate entry 'abc'") as refused:
            handler.handle(orders(row("abc1", "abc1", "1"), row("x", "x", "2"), row("abc2", "abc2", "3")))
        assert refused.value.at == 2
        handler.handle(orders(row("abc1", "abc1", "9"), row("x", "x", "8"), offset=3))
    assert [one["phone"] for one in lab.rows()] == ["9", "8"]


def test_rows_that_set_their_key_alone_are_no_others(lab: SqlLab) -> None:
    lab.make("shop.orders", COLUMNS)
    with lab.handler() as handler:
        handler.handle(orders({"id": "1"}, {"id": "2"}, {"id": "3"}))
        handler.handle(orders({"id": "1"}, {"id": "2"}, {"id": "4"}, offset=3))
    assert [one["id"] for one in lab.rows()] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE shop.orders ADD PRIMARY KEY (id) DEFERRABLE"],
        ["ALTER TABLE shop.orders ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED"],
        [
            "CREATE UNIQUE INDEX one ON shop.orders (id)",
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'shop.one'::regclass",
        ],
        ["CREATE UNIQUE INDEX one ON shop.orders (id) WHERE id <> '9'"],
        ["CREATE UNIQUE INDEX one ON shop.orders (lower(id))"],
    ],
    ids=["deferrable", "deferred", "invalid", "partial", "expression"],
)
def test_what_on_conflict_does_not_take_for_a_key_is_none(make_sql: MakeLab, statements: list[str]) -> None:
    """An index that CREATE INDEX CONCURRENTLY could not finish is invalid."""
    lab = make_sql("postgres")
    lab.make("shop.orders", "id text, email text, phone text")
    for statement in statements:
        lab.run(statement)
    with lab.handler() as handler:
        handler.handle(orders(row("1", "a", "1"), row("2", "b", "2")))
        handler.handle(orders(row("2", "c", "2"), row("3", "d", "3"), offset=2))
    assert [one["email"] for one in lab.rows()] == ["a", "c", "d"]
