"""A key column that the target computes, and one whose type takes texts for one that differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sql_lab import SqlLab, orders

from handlers import Rejected

MakeLab = Callable[[str], SqlLab]
KEY = ("tenant", "place")
COLUMNS = (
    "tenant int, n varchar(9), k int, place int GENERATED ALWAYS AS (k * 2) STORED, "
    "PRIMARY KEY (tenant, place)"
)


def row(k: int, n: str) -> dict[str, Any]:
    return {"tenant": 1, "n": n, "k": k, "place": 2 * k}


def found(lab: SqlLab, columns: str = "n") -> list[str]:
    return sorted(str(one[columns]) for one in lab.rows())


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_a_delete_by_a_computed_column_deletes_its_row_alone(make_sql: MakeLab, kind: str) -> None:
    lab = make_sql(kind)
    unique = COLUMNS.replace("PRIMARY KEY", "UNIQUE")  # the only key that SQLite and MariaDB take it in
    lab.make("shop.orders", COLUMNS if kind == "postgres" else unique)
    for k, n in ((1, "a"), (2, "b"), (3, "c")):
        lab.run(f"INSERT INTO {lab.ref('shop.orders')} (tenant, n, k) VALUES (1, '{n}', {k})")
    with lab.handler() as handler:
        handler.handle(orders({"before": row(1, "a"), "after": None}, key=KEY, offset=3))
    assert found(lab) == ["b", "c"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_a_row_is_updated_by_a_computed_column(make_sql: MakeLab, kind: str) -> None:
    lab = make_sql(kind)
    lab.make("shop.orders", COLUMNS if kind == "postgres" else COLUMNS.replace("PRIMARY KEY", "UNIQUE"))
    with lab.handler() as handler:
        handler.handle(orders(row(1, "a"), row(2, "b"), key=KEY))
        handler.handle(orders(row(1, "c"), key=KEY, offset=2))
        handler.handle(orders(row(1, "d"), row(3, "e"), key=KEY, offset=3))
    assert found(lab) == ["b", "d", "e"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
@pytest.mark.parametrize("unique", [", UNIQUE (place)", ""])
def test_a_row_is_found_by_a_computed_column_alone(make_sql: MakeLab, kind: str, unique: str) -> None:
    lab = make_sql(kind)
    lab.make("shop.orders", COLUMNS.replace(", PRIMARY KEY (tenant, place)", unique))
    with lab.handler() as handler:
        handler.handle(orders(row(1, "a"), row(2, "b"), key="place"))
        handler.handle(orders(row(1, "c"), key="place", offset=2))
        partial = {"before": {"place": 4}, "after": {"place": 4, "n": "d"}}
        handler.handle(orders(partial, row(3, "e"), key="place", offset=3))
        gone = {"before": {"place": 2}, "after": None, "offset": 5, "moves_key": True}
        made = {"before": None, "after": {"place": 8, "k": 4}, "offset": 5, "moves_key": True}
        handler.handle(orders(gone, made | {"lacks": frozenset({"n"})}, key="place"))
    assert sorted((one["n"], one["place"]) for one in lab.rows()) == [("c", 8), ("d", 4), ("e", 6)]


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_a_row_whose_key_the_target_would_compute_otherwise_is_rejected(make_sql: MakeLab, kind: str) -> None:
    lab = make_sql(kind)
    lab.make("shop.orders", COLUMNS.replace("PRIMARY KEY (tenant, place)", "UNIQUE (place)"))
    lacks_k = {"before": {"place": 2}, "after": {"place": 2, "n": "d"}}
    with lab.handler() as handler, pytest.raises(Rejected, match="column place: the target comp"):
        handler.handle(orders(lacks_k, key="place"))
    assert lab.rows() == []


@pytest.mark.parametrize("told", ["varchar(20)", pytest.param("text", marks=pytest.mark.soak)])
@pytest.mark.parametrize("of", ["decimal(10,2)", "double precision"])
def test_texts_that_are_one_number_to_the_target_are_never_one_row(sql: SqlLab, of: str, told: str) -> None:
    sql.make("shop.orders", f"id {of} PRIMARY KEY, n varchar(9)")
    types = {"id": told, "n": "varchar(9)"}
    with sql.handler() as handler:
        handler.handle(orders({"id": "1", "n": "a"}, {"id": "-0.25", "n": "b"}, types=types))
        for spelling in ("1.0", "01", "+1", "1e0", " 1", "1."):
            with pytest.raises(Rejected, match=r"column id: .* make it a text column"):
                handler.handle(orders({"id": spelling, "n": "c"}, types=types, offset=2))
            with pytest.raises(Rejected, match="column id: "):
                handler.handle(orders({"before": {"id": spelling}, "after": None}, types=types, offset=2))
    assert found(sql) == ["a", "b"]


@pytest.mark.parametrize(
    "types", [{"id": told, "n": "varchar(9)"} for told in ("decimal(10,2)", "longtext")] + [None]
)
def test_numbers_of_the_source_are_found_whatever_their_spelling(
    sql: SqlLab, types: dict[str, str] | None
) -> None:
    """A schema tells a decimal that comes as a string as a text without a length."""
    sql.make("shop.orders", "id decimal(10,2) PRIMARY KEY, n varchar(9)")
    with sql.handler() as handler:
        handler.handle(orders({"id": "1.0", "n": "a"}, types=types))
        handler.handle(orders({"id": "1.00", "n": "b"}, types=types, offset=1))
    assert found(sql) == ["b"]
