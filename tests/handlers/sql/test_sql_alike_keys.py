"""Keys that a column's collation takes for one are two rows, or an error: never one row for two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sql_lab import SqlLab, orders
from structlog.testing import capture_logs

from handlers import HandlerContext, Rejected
from handlers.sql import SqlHandler

MakeLab = Callable[[str], SqlLab]

LACKING: dict[str, Any] = {"moves_key": True, "lacks": frozenset({"n"})}

COLUMNS = {
    "mariadb": "code varchar(20) COLLATE utf8mb4_general_ci PRIMARY KEY, n int",
    "mariadb by default": "code varchar(20) PRIMARY KEY, n int",
    "mariadb latin1": "code varchar(20) CHARACTER SET latin1 COLLATE latin1_swedish_ci PRIMARY KEY, n int",
    "postgres": 'code text COLLATE "alike" PRIMARY KEY, n int',
    "postgres citext": "code citext PRIMARY KEY, n int",
    "sqlite": "code text COLLATE NOCASE PRIMARY KEY, n int",
    "duckdb": "code text COLLATE NOCASE PRIMARY KEY, n int",
    "sqlite index": "code text, n int, UNIQUE (code COLLATE NOCASE)",
}


@pytest.fixture(params=list(COLUMNS))
def lab(make_sql: MakeLab, request: pytest.FixtureRequest) -> SqlLab:
    """With a table shop.orders whose key takes a and A for one."""
    lab = make_sql(request.param.split()[0])
    if request.param == "postgres":
        lab.run("CREATE COLLATION alike (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    elif request.param == "postgres citext":
        lab.run("CREATE EXTENSION citext")
    elif request.param == "mariadb by default":
        lab.run("CREATE DATABASE shop COLLATE utf8mb4_general_ci")
    lab.make("shop.orders", COLUMNS[request.param])
    return lab


def row(code: str, n: int) -> dict[str, str | int]:
    return {"code": code, "n": n}


def found(lab: SqlLab) -> list[tuple[str, int]]:
    return sorted((one["code"], one["n"]) for one in lab.rows())


@pytest.mark.parametrize("lab", [kind for kind in COLUMNS if kind != "duckdb"], indirect=True)
def test_a_row_whose_key_looks_like_anothers_is_rejected_alone(lab: SqlLab) -> None:
    with lab.handler() as handler:
        with pytest.raises(Rejected, match="collation of code") as told:
            handler.handle(orders(row("b", 0), row("resume", 1), row("RESUME", 2), row("c", 3), key="code"))
        assert told.value.at == 2
        handler.handle(orders(row("b", 0), row("resume", 1), row("c", 3), key="code"))
        handler.handle(orders(row("c", 4), row("d", 5), key="code", offset=4))
        with pytest.raises(Rejected, match="collation of code"):
            handler.handle(orders({"before": row("B", 7), "after": row("B", 8)}, key="code", offset=6))
    assert found(lab) == [("b", 0), ("c", 4), ("d", 5), ("resume", 1)]


@pytest.mark.parametrize("lab", [kind for kind in COLUMNS if kind != "sqlite index"], indirect=True)
def test_such_a_key_is_told_at_once_and_by_check(lab: SqlLab) -> None:
    def told(logs: list[Any]) -> list[Any]:
        return [log["columns"] for log in logs if log["event"] == "keys_look_alike"]

    with lab.handler() as handler, capture_logs() as logs:
        handler.handle(orders(row("a", 1), key="code"))
        handler.handle(orders(row("b", 1), key="code", offset=1))
    assert told(logs) == [["code"]]
    with capture_logs() as logs:
        SqlHandler(url=lab.url).check(HandlerContext(worker="w", handler="SqlHandler", folder=lab.folder))
    assert told(logs) == [["code"]]


def test_no_other_row_is_deleted(lab: SqlLab) -> None:
    with lab.handler() as handler:
        handler.handle(orders(row("a", 1), row("b", 2), key="code"))
        gone = [{"before": row("A", 1), "after": None}, {"before": row("b", 2), "after": None}]
        handler.handle(orders(*gone, key="code", offset=2))
    assert found(lab) == [("a", 1)]


def test_a_key_that_changes_by_its_case_alone_is_followed(lab: SqlLab) -> None:
    with lab.handler() as handler:
        handler.handle(orders(row("a", 1), row("b", 2), key="code"))
        moved = [
            {"before": row("a", 1), "after": None, "offset": 2, "moves_key": True},
            {"before": None, "after": row("A", 3), "offset": 2, "index": 1, "moves_key": True},
            {"before": {"code": "b"}, "after": None, "offset": 3, "moves_key": True},
            {"before": None, "after": {"code": "B"}, "offset": 3, "index": 1, **LACKING},
        ]
        handler.handle(orders(*moved, key="code"))
    assert found(lab) == [("A", 3), ("B", 2)]


def test_rows_without_a_key_are_told_apart_exactly(lab: SqlLab) -> None:
    key = "DROP PRIMARY KEY" if lab.dialect == "mysql" else "DROP CONSTRAINT IF EXISTS orders_pkey"
    if lab.dialect in ("sqlite", "duckdb"):
        lab.run(f"DROP TABLE {lab.ref('shop.orders')}")
        lab.make("shop.orders", "code text COLLATE NOCASE, n int")
    else:
        lab.run(f"ALTER TABLE {lab.ref('shop.orders')} {key}")
    with lab.handler() as handler:
        handler.handle(orders(row("a", 1), row("A", 1), key=None))
        handler.handle(orders({"before": row("A", 1), "after": row("A", 2)}, key=None, offset=2))
        assert found(lab) == [("A", 2), ("a", 1)]
        handler.handle(orders({"before": row("A", 1), "after": None}, key=None, offset=3))
        handler.handle(orders({"before": row("A", 2), "after": None}, key=None, offset=4))
    assert found(lab) == [("a", 1)]


def test_duckdb_keeps_both_rows(make_sql: MakeLab) -> None:
    lab = make_sql("duckdb")
    lab.make("shop.orders", COLUMNS["duckdb"])
    with lab.handler() as handler:
        handler.handle(orders(row("a", 1), row("A", 2), key="code"))
        handler.handle(orders(row("a", 3), key="code", offset=2))
    assert found(lab) == [("A", 2), ("a", 3)]


def test_a_key_of_two_columns_is_compared_in_both(make_sql: MakeLab) -> None:
    lab = make_sql("mariadb")
    lab.make("shop.orders", "n int, code varchar(9) COLLATE utf8mb4_general_ci, PRIMARY KEY (n, code)")
    with lab.handler() as handler:
        handler.handle(orders(row("a", 1), row("B", 1), row("c", 1), key=("n", "code")))
        gone = [{"before": row(code, 1), "after": None} for code in ("A", "B")]
        handler.handle(orders(*gone, key=("n", "code"), offset=3))
    assert found(lab) == [("a", 1), ("c", 1)]


def test_accents_tell_keys_apart(make_sql: MakeLab) -> None:
    lab = make_sql("mariadb")
    lab.make("shop.orders", "code varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, n int")
    with lab.handler() as handler, pytest.raises(Rejected, match="collation of code") as told:
        handler.handle(orders(row("resume", 1), row("résumé", 2), key="code"))
    assert told.value.at == 1


def test_spaces_at_the_end_tell_keys_apart(make_sql: MakeLab) -> None:
    """MySQL's collations but the newest pass over them."""
    lab = make_sql("mariadb")
    lab.make("shop.orders", "code varchar(20) COLLATE utf8mb4_bin PRIMARY KEY, n int")
    with lab.handler() as handler:
        handler.handle(orders(row("a", 1), key="code"))
        handler.handle(orders({"before": row("a ", 1), "after": None}, key="code", offset=1))
        with pytest.raises(Rejected, match="collation of code"):
            handler.handle(orders(row("a ", 2), key="code", offset=2))
    assert found(lab) == [("a", 1)]


def test_a_char_finds_its_row_however_it_is_padded(make_sql: MakeLab) -> None:
    lab = make_sql("mariadb")
    lab.make("shop.orders", "code char(5) COLLATE utf8mb4_general_ci PRIMARY KEY, n int")
    with lab.handler() as handler:
        handler.handle(orders(row("a    ", 1), row("b", 1), key="code"))
        handler.handle(orders(row("a    ", 2), key="code", offset=2))
        handler.handle(orders({"before": row("b    ", 1), "after": None}, key="code", offset=3))
    assert found(lab) == [("a", 2)]
