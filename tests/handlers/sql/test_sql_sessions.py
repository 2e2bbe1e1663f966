"""What a database or an account has set for its sessions changes nothing of what is kept."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest
import sqlalchemy as sa
from sql_lab import SqlLab, orders

from handlers import Batch
from handlers.testing import make_batch

TYPES = {"id": "int", "n": "varchar(20)"}
SetForAll = Callable[[str, str], SqlLab]


@pytest.fixture
def set_for_all(make_sql: Callable[[str], SqlLab]) -> SetForAll:
    """`set_for_all(name, value)`: a PostgreSQL database whose sessions begin with this setting."""

    def made(name: str, value: str) -> SqlLab:
        lab = make_sql("postgres")
        lab.run(f"ALTER DATABASE target SET {name} = {value}")
        lab.engine.dispose()
        return lab

    return made


def beginning_with(lab: SqlLab, statement: str) -> SqlLab:
    """MariaDB as one whose sessions begin with this statement."""
    url = sa.make_url(lab.url).update_query_dict({"init_command": statement})
    lab.url = url.render_as_string(hide_password=False)
    return lab


def log_of(first: int, end: int, **more: Any) -> Any:
    rows = [{"n": number} for number in range(first, end)]
    return make_batch("shop.log", rows, key=None, types={"n": "int"}, offset=first, **more)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_two_workers_apply_a_change_of_a_table_without_a_key_once_at_any_isolation(
    set_for_all: SetForAll, level: str
) -> None:
    lab = set_for_all("default_transaction_isolation", f"'{level}'")
    with lab.handler() as new, lab.handler() as old:
        old.handle(log_of(0, 5))
        assert new._applier is not None
        marks = new._applier._marks
        advance, is_there, may_go = marks.advance, Event(), Event()

        def held(*arguments: Any) -> None:
            is_there.set()
            may_go.wait(20)
            advance(*arguments)

        marks.advance = held  # type: ignore[method-assign]
        first = Thread(target=new.handle, args=(log_of(5, 8, shard=0),), name="new")
        second = Thread(target=old.handle, args=(log_of(5, 8),), name="old")
        first.start()
        assert is_there.wait(20)
        second.start()
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        while second.is_alive() and not lab.run(waits)[0][0]:
            second.join(0.02)
        may_go.set()
        first.join()
        second.join()
    assert len(lab.rows("shop.log")) == 8


def test_a_null_is_no_text_where_arrays_have_none(set_for_all: SetForAll) -> None:
    lab = set_for_all("array_nulls", "off")
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "n": None}, {"id": 2, "n": "x"}, types=TYPES))
    assert lab.rows() == [{"id": 1, "n": None}, {"id": 2, "n": "x"}]


def test_a_sign_is_of_its_own_field_of_an_interval(set_for_all: SetForAll) -> None:
    lab = set_for_all("intervalstyle", "'sql_standard'")
    lab.make("shop.orders", "id int PRIMARY KEY, n interval")
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "n": "-1 days 02:00:00"}, types=TYPES))
    assert lab.run("SELECT n = interval '-1 days +02:00' FROM shop.orders")[0][0]


def test_a_number_that_becomes_a_text_keeps_its_digits(set_for_all: SetForAll) -> None:
    lab = set_for_all("extra_float_digits", "0")
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "n": 0.1 + 0.2}, types={"id": "int", "n": "double"}))
        handler.handle(orders({"sql": "ALTER TABLE orders MODIFY n varchar(40)"}, offset=1))
    assert lab.rows() == [{"id": 1, "n": "0.30000000000000004"}]


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_names_defaults_and_texts_are_spelled_as_the_session_reads_them(
    make_sql: Callable[[str], SqlLab], set_for_all: SetForAll, kind: str
) -> None:
    if kind == "postgres":
        lab = set_for_all("standard_conforming_strings", "off")
    else:
        lab = beginning_with(make_sql(kind), "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'")
    for _ in range(2):  # the second time by a handler that finds the tables
        with lab.handler() as handler:
            handler.handle(orders({"id": 1, "n": r"a\b'c\\"}, types=TYPES))
            add = r"ALTER TABLE orders ADD COLUMN `group` varchar(20) DEFAULT 'x\\y\'z'"
            handler.handle(orders({"sql": add}, offset=1))
            handler.handle(orders({"id": 2, "n": '"'}, types=TYPES, offset=2))
    assert lab.rows() == [
        {"id": 1, "n": r"a\b'c\\", "group": r"x\y'z"},
        {"id": 2, "n": '"', "group": None},
    ]


def test_what_guards_people_s_own_statements_is_not_in_the_way(make_sql: Callable[[str], SqlLab]) -> None:
    """As `mysql --safe-updates` has it."""
    lab = beginning_with(make_sql("mariadb"), "SET sql_safe_updates = 1, sql_select_limit = 1")
    of_each = [orders({"id": one, "n": "x"}, types=TYPES, partition=one) for one in range(3)]
    changes = tuple(change for batch in of_each for change in batch.changes)
    with lab.handler() as handler:
        handler.handle(Batch("shop.orders", changes, database="shop", name="orders"))
    assert len(lab.rows()) == 3


def test_names_are_found_where_the_server_quotes_none(make_sql: Callable[[str], SqlLab]) -> None:
    lab = beginning_with(make_sql("mariadb"), "SET sql_quote_show_create = 0")
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "n": "x"}, types=TYPES))
        handler.handle(orders({"id": 1, "n": "y"}, types=TYPES, offset=1))
    assert lab.rows() == [{"id": 1, "n": "y"}]


@pytest.mark.parametrize(("given", "kept"), [("off", "local"), ("remote_write", "remote_write")])
def test_a_commit_is_on_the_disk_when_it_is_answered(set_for_all: SetForAll, given: str, kept: str) -> None:
    """Else a server that crashes has lost rows that the worker will not read again."""
    lab = set_for_all("synchronous_commit", given)
    with lab.handler() as handler:
        assert handler._engine is not None
        with handler._engine.connect() as connection:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == kept
