"""Statements that stop half way: MySQL and MariaDB commit each step; what comes again goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import Event, Thread
from typing import Any

import pytest
import sqlalchemy as sa
from sql_lab import SqlLab, orders

from handlers import Batch, Rejected, TargetUnavailable
from handlers.mysql.ddl import TableName
from handlers.sql import SqlHandler
from handlers.sql.handler import DatabaseError
from handlers.testing import make_batch

TYPES = {"id": "int", "price": "int", "price_new": "int"}
STATEMENTS = {
    "drop and rename": (
        "ALTER TABLE orders DROP COLUMN price, RENAME COLUMN price_new TO price",
        {"id": 1, "price": 200},
    ),
    "swap columns": (
        "ALTER TABLE orders RENAME COLUMN price TO price_new, RENAME COLUMN price_new TO price",
        {"id": 1, "price": 200, "price_new": 100},
    ),
    "swap tables": (
        "RENAME TABLE orders TO tmp, other TO orders, tmp TO other",
        {"id": 9, "price": 900, "price_new": 901},
    ),
    "add with a default": (
        "ALTER TABLE orders DROP price_new, ADD fresh int NOT NULL DEFAULT 7, MODIFY price bigint",
        {"id": 1, "price": 100, "fresh": 7},
    ),
}


class Gone(Exception):
    """The worker dies here."""


@contextmanager
def dying(
    handler: SqlHandler,
    after: int,
    *,
    before_the_statement: bool,
    verbs: tuple[str, ...] = ("ALTER", "RENAME"),
) -> Iterator[list[str]]:
    """The handler's worker dies at the DDL statement of this number."""
    seen: list[str] = []
    engine = handler._engine
    assert engine is not None

    def note(_connection: Any, _cursor: Any, sql: str, *_: Any) -> None:
        if sql.lstrip().startswith(verbs):
            seen.append(sql)
            if len(seen) == after:
                raise Gone

    event = "before_cursor_execute" if before_the_statement else "after_cursor_execute"
    sa.event.listen(engine, event, note)
    yield seen


def statement(sql: str, offset: int) -> Batch:
    return make_batch("shop.orders", [{"sql": sql}], offset=offset)


def filled(lab: SqlLab) -> None:
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "price": 100, "price_new": 200}, types=TYPES))
        handler.handle(orders({"id": 9, "price": 900, "price_new": 901}, table="shop.other", types=TYPES))


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.parametrize("before_the_statement", [True, False], ids=["before", "after"])
def test_a_statement_that_stopped_half_way_is_done_once(
    make_sql: Callable[[str], SqlLab], name: str, before_the_statement: bool
) -> None:
    lab = make_sql("mariadb")
    sql, expected = STATEMENTS[name]
    deaths = 0
    for after in range(1, 20):
        for table in ("shop.orders", "shop.other", "binlane_marks"):
            lab.run(f"DROP TABLE IF EXISTS {lab.ref(table) if '.' in table else table}")
        filled(lab)
        with (
            lab.handler() as handler,
            dying(handler, after, before_the_statement=before_the_statement) as seen,
        ):
            try:
                handler.handle(statement(sql, 1))
            except Gone:
                deaths += 1
        with lab.handler() as handler:
            handler.handle(statement(sql, 1))
            handler.handle(statement(sql, 1))
        assert lab.rows() == [expected], seen
        assert not lab.run("SELECT 1 FROM binlane_marks WHERE ddl_step IS NOT NULL")
        if len(seen) < after:
            break
    assert deaths >= 2


def test_a_rename_that_stopped_half_way_keeps_what_is_known_of_columns(
    make_sql: Callable[[str], SqlLab],
) -> None:
    lab = make_sql("mariadb")
    lab.make("shop.orders", "id int PRIMARY KEY, price int, price_new int")
    rename = make_batch("shop.items", [{"sql": "RENAME TABLE orders TO items"}])
    added = make_batch("shop.items", [{"sql": "ALTER TABLE items ADD price_new int DEFAULT 7"}], offset=1)
    for is_again in (False, True):
        with lab.handler(ddl={"drop_columns": False}) as handler:
            if not is_again:
                handler.handle(orders({"id": 1, "price": 100, "price_new": 200}, types=TYPES))
                handler.handle(statement("ALTER TABLE orders DROP price_new", 1))
                with dying(handler, 1, before_the_statement=False), pytest.raises(Gone):
                    handler.handle(rename)
            else:
                handler.handle(rename)
                handler.handle(added)
    assert lab.rows("shop.items") == [{"id": 1, "price": 100, "price_new_old": 200, "price_new": 7}]


@pytest.mark.parametrize("before_the_statement", [True, False], ids=["before", "after"])
def test_a_statement_that_stopped_half_way_is_done_once_in_a_history(
    make_sql: Callable[[str], SqlLab], before_the_statement: bool
) -> None:
    lab, row, deaths = make_sql("mariadb"), {"id": 1, "price": 100, "price_new": 200}, 0
    sql = (
        "ALTER TABLE orders DROP price_new, ADD fresh int NOT NULL DEFAULT 7, "
        "ADD price_new varchar(9) NOT NULL DEFAULT 'x', RENAME COLUMN price TO price_old"
    )
    for after in range(1, 40):
        for table in (lab.ref("shop.orders"), "binlane_marks"):
            lab.run(f"DROP TABLE IF EXISTS {table}")
        with lab.handler(mode="history") as handler:
            handler.handle(orders(row, {"before": row, "after": row}, types=TYPES))
            verbs = ("ALTER", "UPDATE", "INSERT", "DELETE")
            with dying(handler, after, before_the_statement=before_the_statement, verbs=verbs) as seen:
                try:
                    handler.handle(statement(sql, 2))
                except Gone:
                    deaths += 1
        with lab.handler(mode="history") as handler:
            handler.handle(statement(sql, 2))
            handler.handle(statement(sql, 2))
        names = "id, price_old, price_new, price_new_old, fresh"
        assert [tuple(one.values()) for one in lab.rows("shop.orders", names)] == [
            (1, 100, "x", 200, 7),
            (1, 100, None, 200, None),
        ], seen
        assert len(lab.rows()[0]) == 7
        if len(seen) < after:
            break
    assert deaths >= 8


@pytest.mark.parametrize("key", ["id", None], ids=["history", "replica without a key"])
def test_rows_before_a_statement_that_stopped_half_way_are_applied_once(
    make_sql: Callable[[str], SqlLab], key: str | None
) -> None:
    lab, row, types = make_sql("mariadb"), {"id": 1, "name": "a"}, {"id": "int", "name": "varchar(9)"}
    changes: list[dict[str, Any]] = [
        *({"after": row}, {"before": row, "after": {**row, "name": "b"}, "lacks": frozenset[str]()}),
        {"sql": "ALTER TABLE orders ADD COLUMN c int"},
        *({"after": {"id": 2, "name": "a"}}, {"sql": "ALTER TABLE orders ADD COLUMN d int"}),
    ]
    given = make_batch("shop.orders", changes, key=key, types=types, offset=5)
    mode = "replica" if key is None else "history"
    with lab.handler(mode=mode) as handler:
        handler.handle(make_batch("shop.orders", [{"id": 9, "name": "a"}], key=key, types=types))
    for told in (pytest.raises(Gone), pytest.raises(Gone), nullcontext()):
        with lab.handler(mode=mode) as handler, dying(handler, 1, before_the_statement=False), told:
            handler.handle(given)
    found = [(1, "b"), (2, "a"), (9, "a")] if key is None else [(1, "a"), (1, "b"), (2, "a"), (9, "a")]
    assert sorted((one["id"], one["name"]) for one in lab.rows()) == found


def test_what_is_written_down_of_one_statement_is_not_taken_for_another(
    make_sql: Callable[[str], SqlLab],
) -> None:
    lab = make_sql("mariadb")
    filled(lab)
    with lab.handler() as handler, dying(handler, 2, before_the_statement=False), pytest.raises(Gone):
        handler.handle(statement(STATEMENTS["drop and rename"][0], 1))
    with lab.handler() as handler:
        handler.handle(statement("ALTER TABLE orders ADD c int DEFAULT 3, DROP price", 1))
    assert lab.rows() == [{"id": 1, "c": 3}]


ONE = {"id": 1}
MAKING = {
    "by its statement": statement("CREATE TABLE orders (id int PRIMARY KEY)", 1),
    "like another": statement("CREATE TABLE orders LIKE other", 1),
    "by its first row": orders(ONE, types={"id": "int"}, offset=1),
}


@pytest.mark.parametrize("name", MAKING)
def test_a_table_whose_making_is_not_written_down_any_more_is_known_as_made(
    make_sql: Callable[[str], SqlLab], name: str
) -> None:
    lab = make_sql("mariadb")
    with lab.handler() as handler:
        handler.handle(orders(ONE, table="shop.other", types={"id": "int"}))
    with (
        lab.handler() as handler,
        dying(handler, 1, before_the_statement=False, verbs=("CREATE TABLE shop", "CREATE TABLE `shop")),
        pytest.raises(Gone),
    ):
        handler.handle(MAKING[name])
    assert lab.has("shop.orders")
    with lab.handler() as handler:
        handler.handle(MAKING[name])
        handler.handle(orders({"id": 2}, types={"id": "int"}, offset=2))
        handler.handle(statement("DROP TABLE orders", 3))
        assert not lab.has("shop.orders")
        handler.handle(statement("CREATE TABLE orders (id int PRIMARY KEY)", 4))
    assert lab.rows() == []


@pytest.mark.parametrize("name", MAKING)
def test_a_table_that_could_not_be_made_is_not_known_as_made(
    make_sql: Callable[[str], SqlLab], name: str
) -> None:
    lab = make_sql("mariadb")
    with lab.handler() as handler:
        handler.handle(orders(ONE, table="shop.other", types={"id": "int"}))
    with lab.handler() as handler:
        refuse_making(handler)
        with pytest.raises((DatabaseError, Rejected)):
            handler.handle(MAKING[name])
    lab.make("shop.orders", "id int PRIMARY KEY")
    lab.run("INSERT INTO shop.orders VALUES (7)")
    with lab.handler() as handler:
        handler.handle(MAKING[name])
        handler.handle(statement("DROP TABLE orders", 3))
    assert {"id": 7} in lab.rows()


def refuse_making(handler: SqlHandler) -> None:
    """The server has no such storage engine."""
    making = ("CREATE TABLE shop", "CREATE TABLE `shop")
    rewrite(handler, making, "CREATE TABLE shop.x (id int) ENGINE=none")


def rewrite(handler: SqlHandler, beginnings: tuple[str, ...], instead: str) -> None:
    """The server gets another statement in the place of those that begin so."""
    engine = handler._engine
    assert engine is not None

    def other(_connection: Any, _cursor: Any, sql: str, parameters: Any, *_: Any) -> tuple[str, Any]:
        return (instead if sql.lstrip().startswith(beginnings) else sql), parameters

    sa.event.listen(engine, "before_cursor_execute", other, retval=True)


def test_a_worker_that_has_lost_the_partition_ends_its_statement_before_another_goes_on(
    make_sql: Callable[[str], SqlLab],
) -> None:
    """MySQL and MariaDB let go of the marks' locks at each step."""
    lab = make_sql("mariadb")
    sql, row = STATEMENTS["swap columns"]
    filled(lab)
    reached, go_on = Event(), Event()

    def pause(_connection: Any, _cursor: Any, sql: str, *_: Any) -> None:
        if sql.startswith("ALTER") and not reached.is_set():
            reached.set()
            assert go_on.wait(30)

    with lab.handler() as old, lab.handler() as new:
        assert old._engine is not None
        sa.event.listen(old._engine, "after_cursor_execute", pause)
        first = Thread(target=old.handle, args=(statement(sql, 1),), name="old")
        first.start()
        assert reached.wait(30)

        def go_on_from_there() -> None:
            new.handle(statement(sql, 1))
            new.handle(orders({"id": 2, "price": 0, "price_new": 0}, types=TYPES, offset=2))

        second = Thread(target=go_on_from_there, name="new")
        second.start()
        waiting = "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'SELECT GET_LOCK(%'"
        while second.is_alive() and not lab.run(waiting):
            second.join(0.05)
        go_on.set()
        first.join(30)
        second.join(30)
    assert lab.marks()[0] == ("shop.orders", -1, "test", 0, 2, 0)
    assert lab.rows() == [row, {"id": 2, "price": 0, "price_new": 0}]


def test_a_statement_that_another_session_follows_for_long_is_waited_for(
    make_sql: Callable[[str], SqlLab], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handlers.sql.kept_tables._LOCK_SECONDS", 0)
    lab = make_sql("mariadb")
    sql, row = STATEMENTS["drop and rename"]
    filled(lab)
    with lab.handler() as handler:
        assert handler._applier is not None
        marks = handler._applier._marks
        with lab.engine.connect() as other, marks.kept(other).alone(TableName("shop", "orders")):
            with pytest.raises(TargetUnavailable, match=r"a statement of shop\.orders"):
                handler.handle(statement(sql, 1))
            handler.handle(make_batch("shop.other", [{"sql": "ALTER TABLE other DROP price"}]))
        handler.handle(statement(sql, 1))
    assert lab.rows() == [row]


def test_a_server_that_gives_no_such_locks_goes_without(make_sql: Callable[[str], SqlLab]) -> None:
    lab = make_sql("mariadb")
    sql, row = STATEMENTS["drop and rename"]
    filled(lab)
    with lab.handler() as handler:
        rewrite(handler, ("SELECT GET_LOCK",), failing(1235))
        handler.handle(statement(sql, 1))
    assert lab.rows() == [row]


def failing(code: int) -> str:
    return f"SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = %s"


def test_a_wait_for_the_lock_that_somebody_ends_gives_no_lock(make_sql: Callable[[str], SqlLab]) -> None:
    """With KILL QUERY; an error that is not known gives none either."""
    lab = make_sql("mariadb")
    sql, _ = STATEMENTS["drop and rename"]
    filled(lab)
    before = lab.rows()
    for code, error in ((1317, TargetUnavailable), (1305, DatabaseError)):
        with lab.handler() as handler:
            rewrite(handler, ("SELECT GET_LOCK",), failing(code))
            with pytest.raises(error):
                handler.handle(statement(sql, 1))
    assert lab.rows() == before


def test_a_wait_for_the_lock_beyond_the_time_of_a_statement_gives_no_lock(
    make_sql: Callable[[str], SqlLab],
) -> None:
    lab = make_sql("mariadb")
    sql, _ = STATEMENTS["drop and rename"]
    filled(lab)
    before = lab.rows()
    with lab.handler(timeout="1s") as handler:
        assert handler._applier is not None
        marks = handler._applier._marks
        with lab.engine.connect() as other, marks.kept(other).alone(TableName("shop", "orders")):
            with pytest.raises(TargetUnavailable, match=r"a statement of shop\.orders"):
                handler.handle(statement(sql, 1))
            assert lab.rows() == before
