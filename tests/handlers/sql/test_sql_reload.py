"""A table that is built again while a worker goes on: whole or as it was, and each change in it once."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from reload_lab import PLACE, TYPES, batch, model, reloading, reloading_after, tables
from sql_lab import SqlLab, orders

from handlers import HandlerContext
from handlers.reloading import Behind, Differs, Hindered, Refused
from handlers.sql import SqlHandler
from handlers.sql.reloading.building import Building
from handlers.sql.reloading.reload import SqlReload


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def lab(make_sql: Callable[[str], SqlLab], request: pytest.FixtureRequest) -> SqlLab:
    return make_sql(request.param)


def test_the_table_is_as_the_topic_tells_and_the_worker_goes_on_behind_it(lab: SqlLab) -> None:
    with lab.handler() as worker:
        worker.handle(batch(0, 10))
        worker.handle(orders({"id": 1, "n": 1}, types=TYPES, table="shop.others", offset=20))
        before = tables(lab)
        lab.run(f"UPDATE {lab.ref('shop.orders')} SET n = -1")
        lab.run(f"INSERT INTO {lab.ref('shop.orders')} (id, n) VALUES (99, 99)")
        with reloading(lab) as reload:
            reload.handler.handle(batch(0, 12))
            taken = reload.take_over({PLACE: 21})
        assert (taken.before, taken.after) == (4, 3)
        assert lab.rows() == model(12)
        # What the reload had already, and what comes next.
        worker.handle(batch(10, 12))
        worker.handle(batch(12, 15))
        assert lab.rows() == model(15)
        assert lab.rows("shop.others") == [{"id": 1, "n": 1}]
        assert tables(lab) == before, "nothing is left of it"
        assert [row[:4] for row in lab.marks()] == [
            ("shop.orders", -1, "test", 0),
            ("shop.others", -1, "test", 0),
        ]


def test_a_table_that_is_ahead_of_what_was_read_is_left_as_it_is(lab: SqlLab) -> None:
    with lab.handler() as worker, reloading_after(worker, lab) as reload:
        reload.handler.handle(batch(0, 5))
        worker.handle(batch(5, 6))
        with pytest.raises(Behind):
            reload.take_over({PLACE: 5})
        assert lab.rows() == model(6)
        reload.handler.handle(batch(5, 6))
        reload.take_over({PLACE: 6})
        assert lab.rows() == model(6)


def test_marks_of_a_partition_that_was_not_read_are_seen(lab: SqlLab) -> None:
    with lab.handler() as worker, reloading_after(worker, lab) as reload:
        reload.handler.handle(batch(0, 5))
        worker.handle(orders({"id": 7, "n": 7}, types=TYPES, partition=1))
        with pytest.raises(Behind):
            reload.take_over({PLACE: 5})
        with pytest.raises(Behind):
            reload.take_over({PLACE: 5, ("test", 1): 0})
        assert {"id": 7, "n": 7} in lab.rows()


def test_marks_of_shards_move_with_the_table(lab: SqlLab) -> None:
    with lab.handler() as worker:
        for shard in (0, 1):
            worker.handle(batch(3 * shard, 3 * shard + 1, shard=shard))
        with reloading(lab) as reload:
            reload.handler.handle(batch(0, 6))
            with pytest.raises(Behind):
                reload.take_over({PLACE: 3})
            reload.take_over({PLACE: 6})
        worker.handle(batch(4, 5, shard=1))
        assert lab.rows() == model(6), "the later row stays"


def test_other_columns_than_the_topic_tells_are_not_overwritten(lab: SqlLab) -> None:
    with lab.handler() as worker, reloading_after(worker, lab) as reload:
        lab.run(f"ALTER TABLE {lab.ref('shop.orders')} ADD COLUMN note int")
        before = lab.rows()
        reload.handler.handle(batch(0, 5))
        with pytest.raises(Differs, match=r"note is INTEGER.*, according to the topic not there"):
            reload.take_over({PLACE: 5})
        assert lab.rows() == before


def test_an_error_half_way_leaves_rows_and_marks(lab: SqlLab) -> None:
    with lab.handler() as worker, reloading_after(worker, lab) as reload:
        marks = lab.marks()
        reload.handler.handle(batch(0, 6))
        if lab.dialect == "sqlite":
            lab.run(
                'CREATE TRIGGER no_more BEFORE INSERT ON "shop.orders" WHEN NEW.id = 2 '
                "BEGIN SELECT RAISE(ABORT, 'no more'); END"
            )
        else:
            lab.run(f"ALTER TABLE {lab.ref('shop.orders')} ADD CONSTRAINT few CHECK (n < 5)")
        with pytest.raises(Refused, match=r"no more|few"):
            reload.take_over({PLACE: 6})
        assert lab.rows() == model(5)
        assert [row for row in lab.marks() if row[4] != 5] == marks


def test_a_target_table_of_several_source_tables_is_refused(lab: SqlLab) -> None:
    shared = {"table": "all_orders"}
    with lab.handler(**shared) as worker:
        worker.handle(batch(0, 1))
        worker.handle(orders({"id": 7, "n": 7}, types=TYPES, table="shop.older", offset=3))
        with pytest.raises(Refused, match=r"also has rows of shop\.older"), reloading(lab, **shared):
            pass


def test_a_source_table_that_comes_to_the_target_table_meanwhile_keeps_its_rows(lab: SqlLab) -> None:
    shared = {"table": "all_orders"}
    with lab.handler(**shared) as worker:
        worker.handle(batch(0, 1))
        with reloading(lab, **shared) as reload:
            reload.handler.handle(batch(0, 1))
            worker.handle(orders({"id": 7, "n": 7}, types=TYPES, table="shop.older", offset=3))
            with pytest.raises(Refused, match=r"also has rows of shop\.older"):
                reload.take_over({PLACE: 1})


def test_tables_that_a_foreign_key_would_empty_keep_their_rows(server: SqlLab) -> None:
    with server.handler() as worker, reloading_after(worker, server) as reload:
        server.make(
            "shop.lines",
            "id int, order_id int, FOREIGN KEY (order_id) "
            f"REFERENCES {server.ref('shop.orders')} (id) ON DELETE CASCADE",
        )
        server.run(f"INSERT INTO {server.ref('shop.lines')} VALUES (1, 1)")
        reload.handler.handle(batch(0, 5))
        with pytest.raises(Refused, match=r"shop\.lines .*ON DELETE CASCADE"):
            reload.take_over({PLACE: 5})
        assert server.rows("shop.lines") == [{"id": 1, "order_id": 1}]


@pytest.mark.parametrize("lab", ["postgres"], indirect=True)
def test_a_table_that_numbers_its_rows_itself_is_loaded_again(lab: SqlLab) -> None:
    lab.make("shop.orders", "id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n integer")
    with lab.handler() as worker, reloading_after(worker, lab) as reload:
        reload.handler.handle(batch(0, 5))
        assert reload.take_over({PLACE: 5}).after == 3
    assert lab.rows() == model(5)


@pytest.mark.parametrize("lab", ["sqlite"], indirect=True)
def test_a_handler_of_the_longest_name_has_room_for_the_new_marks(lab: SqlLab) -> None:
    context = HandlerContext(worker="w", handler="h" * 100, folder=lab.folder)
    worker = SqlHandler(url=lab.url)
    worker.open(context)
    worker.handle(batch(0, 5))
    worker.close()
    reload = SqlReload({"url": lab.url}, context, "shop", "orders")
    try:
        reload.begin()
        reload.handler.handle(batch(0, 5))
        assert reload.take_over({PLACE: 5}).after == 3
    finally:
        reload.end()


def test_replayed_dead_letters_are_no_topics_of_the_table(lab: SqlLab) -> None:
    with lab.handler() as worker, reloading_after(worker, lab) as reload:
        worker.handle(batch(2, 3, topic="letters@17"))
        assert reload.marks() == {PLACE: (4, 0)}
        reload.handler.handle(batch(0, 5))
        reload.take_over({PLACE: 5})
        assert lab.rows() == model(5)
        worker.handle(batch(2, 3, topic="letters@17"))
        assert lab.rows() == model(5), "it was applied already"


@pytest.mark.parametrize("lab", ["postgres"], indirect=True)
def test_rows_that_are_not_committed_yet_are_not_left_among_the_new_ones(lab: SqlLab) -> None:
    """As of a dead letter that is replayed: the table's marks do not lock it out."""
    with lab.handler() as worker, reloading_after(worker, lab) as reload:
        reload.handler.handle(batch(0, 5))
        thread = Thread(target=lambda: reload.take_over({PLACE: 5}), name="take over")
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        with lab.engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO shop.orders (id, n) VALUES (50, 50)")
            thread.start()
            while thread.is_alive() and not lab.run(waits)[0][0]:
                thread.join(0.02)
        thread.join()
        assert lab.rows() == model(5)


@pytest.mark.parametrize("lab", ["mariadb"], indirect=True)
def test_rows_of_a_topic_without_marks_until_then_are_not_lost(lab: SqlLab) -> None:
    """They come between the look at the marks and the delete. (PostgreSQL's table is locked.)"""
    with lab.handler() as worker, reloading_after(worker, lab) as reload:
        reload.handler.handle(batch(0, 5))
        move = reload._move_marks

        def moved(connection: sa.Connection, read: Any) -> None:
            move(connection, read)
            worker.handle(orders({"id": 7, "n": 7}, types=TYPES, topic="other"))

        reload._move_marks = moved  # type: ignore[method-assign]
        with pytest.raises(Behind):
            reload.take_over({PLACE: 5})
        assert {"id": 7, "n": 7} in lab.rows()


def test_a_deadlock_is_no_reason_to_give_up(server: SqlLab) -> None:
    with server.handler() as worker, reloading_after(worker, server) as reload:
        reload.handler.handle(batch(0, 5))
        is_mysql = server.dialect == "mysql"
        error = pymysql.err.OperationalError(1213, "") if is_mysql else psycopg.errors.DeadlockDetected()

        def met(_: Any) -> Any:
            raise sa.exc.OperationalError("DELETE", {}, error)

        replace, reload._replace = reload._replace, met  # type: ignore[method-assign]
        with pytest.raises(Hindered):
            reload.take_over({PLACE: 5})
        reload._replace = replace  # type: ignore[method-assign]
        assert reload.take_over({PLACE: 5}).after == 3


def test_a_table_of_which_nothing_was_applied_is_refused(lab: SqlLab) -> None:
    with pytest.raises(Refused, match="no worker has written here yet"), reloading(lab):
        pass
    with lab.handler() as worker:
        worker.handle(orders({"id": 7, "n": 7}, types=TYPES, table="shop.older"))
    with pytest.raises(Refused, match=r"applied nothing of shop\.orders"), reloading(lab):
        pass


def test_names_that_would_be_cut_stay_apart() -> None:
    new = [Building.of((None, f"{'ö' * 30}{end}"), f"{'h' * 99}{end}", "0a1b2c3d") for end in ("1", "2")]
    assert len({one.table for one in new}) == len({one.handler for one in new}) == 2
    assert max(len(one.table[1].encode()) for one in new) <= 63
    assert max(len(one.handler) for one in new) <= 100


def test_what_a_worker_had_first_is_caught_up_with_while_it_waits(server: SqlLab) -> None:
    with server.handler() as worker, reloading_after(worker, server) as reload:
        reload.handler.handle(batch(0, 4))

        def catch_up(marks: Any) -> Any:
            assert marks == {PLACE: (4, 0)}
            reload.handler.handle(batch(4, 7))
            return {PLACE: 7}

        reload.take_over({PLACE: 4}, catch_up)
        assert server.rows() == model(7)


def test_a_worker_that_applies_all_the_time_loses_nothing(server: SqlLab) -> None:
    """Threads meet in the database: the reload takes over between any two batches."""
    done: list[int] = []

    def work() -> None:
        with server.handler() as worker:
            for number in itertools.count(5):
                if done and number > done[0] + 20:
                    break
                worker.handle(batch(number, number + 1))
                applied[0] = number + 1

    applied = [5]
    with server.handler() as worker, reloading_after(worker, server) as reload:
        thread = Thread(target=work, name="worker")
        thread.start()
        try:
            read = 0
            for _ in range(1_000):
                end = applied[0] + 2
                reload.handler.handle(batch(read, end))
                read = end
                try:
                    reload.take_over({PLACE: read})
                except Behind:
                    continue
                break
        finally:
            done.append(applied[0])
            thread.join()
    assert server.rows() == model(applied[0])


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["work", "read", "again", "damage", "take"]), st.integers(1, 4)), max_size=25
)


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_in_whatever_order_both_go_on_the_table_is_whole(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lab = SqlLab(f"sqlite:///{folder}/target.db", Path(folder))
        with lab.handler() as worker:
            worker.handle(batch(0, 2))
            done, read, is_damaged = 2, 0, False
            with reloading(lab) as reload:
                for what, count in steps:
                    if what == "work":
                        worker.handle(batch(done, done + count))
                        done += count
                    elif what == "again":
                        worker.handle(batch(max(0, done - count), done))
                    elif what == "read":
                        reload.handler.handle(batch(read, read + count))
                        read += count
                    elif what == "damage":
                        lab.run('UPDATE "shop.orders" SET n = -n - 1')
                        is_damaged = True
                    else:
                        try:
                            reload.take_over({PLACE: read})
                        except (Behind, Differs):
                            assert read < done or read == 0
                        else:
                            assert lab.rows() == model(read)
                            is_damaged = False
                            # The worker has still to bring what the reload has had before it.
            reached = max(done, read)
            if not is_damaged:
                worker.handle(batch(done, reached + 5))
                assert lab.rows() == model(reached + 5)
        lab.close()
