"""Two reloads of a table, one after the other or at once: neither has part in what the other builds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from reload_lab import PLACE, TYPES, batch, made, model, reloading, reloading_after, tables
from sql_lab import SqlLab, orders

from handlers.reloading import Hindered, Refused
from handlers.sql.reloading import reload as reload_module
from handlers.sql.reloading.reload import SqlReload


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def lab(make_sql: Callable[[str], SqlLab], request: pytest.FixtureRequest) -> SqlLab:
    return make_sql(request.param)


def begun(lab: SqlLab, end: int) -> SqlReload:
    reload = made(lab)
    reload.begin()
    reload.apply(batch(0, end))
    return reload


def cut(lab: SqlLab, reload: SqlReload) -> None:
    """Its lock is gone, and it has not heard of that."""
    if lab.dialect == "sqlite":
        for file in lab.folder.glob("*.reload"):
            file.unlink()
        return
    with reload._connected.begin():
        own = "pg_backend_pid()" if lab.dialect == "postgresql" else "connection_id()"
        session = reload._connected.exec_driver_sql(f"SELECT {own}").scalar_one()
    lab.run(f"SELECT pg_terminate_backend({session})" if lab.dialect == "postgresql" else f"KILL {session}")


def test_what_a_killed_reload_has_left_is_no_part_of_the_next(lab: SqlLab) -> None:
    with lab.handler() as worker:
        worker.handle(batch(0, 5))
        before = tables(lab)
        killed = made(lab)
        killed.begin()
        killed.handler.handle(orders({"id": 50, "n": 50}, types=TYPES, offset=3))
        killed._open.close()  # as the end of its process would
        assert tables(lab) != before
        with reloading(lab) as reload:
            assert tables(lab) == before, "the next one clears away"
            reload.handler.handle(batch(0, 5))
            reload.take_over({PLACE: 5})
        assert lab.rows() == model(5)
        assert tables(lab) == before
        assert lab.run("SELECT DISTINCT handler FROM binlane_marks WHERE worker <> ''") == [("SqlHandler",)]


def test_two_reloads_of_a_table_do_not_meet(lab: SqlLab) -> None:
    with lab.handler() as worker, reloading_after(worker, lab) as reload:
        reload.handler.handle(batch(0, 5))
        with pytest.raises(Refused, match=r"another reload of shop\.orders"), reloading(lab):
            pass
        other = made(lab)
        with pytest.raises(Refused):
            other.begin()
        other.end()
        assert reload.take_over({PLACE: 5}).after == 3, "the other one has left ours alone"


@pytest.mark.parametrize("lab", ["sqlite"], indirect=True)
def test_a_link_to_the_file_is_no_way_round(lab: SqlLab, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "linked.db").symlink_to(tmp_path / "target.db")
    with lab.handler() as worker, reloading_after(worker, lab):
        linked = SqlLab(f"sqlite:///{folder / 'linked.db'}", folder)
        with pytest.raises(Refused, match=r"another reload of shop\.orders"), reloading(linked):
            pass


def test_a_reload_that_has_lost_its_lock_takes_nothing_from_the_next_one(lab: SqlLab) -> None:
    with lab.handler() as worker:
        worker.handle(batch(0, 9))
        first = begun(lab, 3)
        cut(lab, first)
        second = begun(lab, 2)
        first.apply(batch(3, 7))
        second.apply(batch(2, 9))
        with pytest.raises(Refused, match=r"lock against other reloads of shop\.orders is lost"):
            first.take_over({PLACE: 9})
        assert first.end() == ""
        assert second.take_over({PLACE: 9}).after == 3
        assert second.end() == ""
        assert lab.rows() == model(9)
        worker.handle(batch(5, 12))
    assert lab.rows() == model(12)


def test_a_reload_that_has_lost_its_lock_puts_nothing_in_after_the_next_one(lab: SqlLab) -> None:
    with lab.handler() as worker:
        worker.handle(batch(0, 9))
        first = begun(lab, 3)
        cut(lab, first)
        with reloading(lab) as second:  # which removes what the first has built
            second.apply(batch(0, 9))
            second.take_over({PLACE: 9})
        first.apply(batch(3, 9))
        for _ in range(2):  # also by the session that SQLAlchemy has begun anew
            with pytest.raises(Refused, match="is lost"):
                first.take_over({PLACE: 9})
        first.end()
    assert lab.rows() == model(9)
    assert not {one for one in tables(lab) if "binlane_reload" in one}


def test_a_lost_lock_is_heard_of_while_the_topic_is_read(
    lab: SqlLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload_module, "_PING_SECONDS", 0.0)
    with lab.handler() as worker, reloading_after(worker, lab) as reload:
        reload.apply(batch(0, 2))
        cut(lab, reload)
        with pytest.raises(Refused, match="is lost"):
            reload.apply(batch(2, 5))


def test_new_rows_that_the_marks_do_not_tell_of_are_not_put_in(lab: SqlLab) -> None:
    with lab.handler() as worker, reloading_after(worker, lab) as reload:
        reload.apply(batch(0, 5))
        lab.run("UPDATE binlane_marks SET kafka_offset = 3 WHERE handler <> 'SqlHandler' AND topic <> ''")
        marks = lab.marks()
        with pytest.raises(Hindered, match="does not show the changes that were applied"):
            reload.take_over({PLACE: 5})
        assert (lab.rows(), lab.marks()) == (model(5), marks)


def test_a_source_table_of_such_a_name_keeps_its_rows(lab: SqlLab) -> None:
    with lab.handler() as worker:
        worker.handle(batch(0, 1))
        alike = "shop.orders__binlane_reload_0a1b2c3d"
        worker.handle(orders({"id": 7, "n": 7}, types=TYPES, table=alike, offset=3))
        with reloading(lab) as reload:
            reload.apply(batch(0, 1))
            reload.take_over({PLACE: 4})
            taken = f"shop.{reload._building.table[1].removeprefix('shop.')}"
        assert lab.rows(alike) == [{"id": 7, "n": 7}]
        worker.handle(orders({"id": 7, "n": 7}, types=TYPES, table=taken, offset=4))
        with pytest.raises(Refused, match=f"has the rows of {taken}"):
            reload.begin()
        reload.end()
        assert lab.rows(taken) == [{"id": 7, "n": 7}]


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_session_that_idles_for_longer_than_the_server_lets_others_is_not_ended(
    make_sql: Callable[[str], SqlLab], kind: str
) -> None:
    lab = make_sql(kind)
    if kind == "postgres":
        for name in ("idle_session_timeout", "idle_in_transaction_session_timeout"):
            lab.run(f"ALTER DATABASE target SET {name} = '500ms'")
        lab.engine.dispose()
    with lab.handler() as worker:
        worker.handle(batch(0, 6))
    if kind == "mariadb":
        first = "SET wait_timeout = 1, idle_transaction_timeout = 1, idle_write_transaction_timeout = 1"
        url = sa.make_url(lab.url).update_query_dict({"init_command": first})
        lab.url = url.render_as_string(hide_password=False)

    def catch_up(_: Any) -> Any:
        time.sleep(1.5)
        reload.apply(batch(4, 7))
        return {PLACE: 7}

    with reloading(lab) as reload:
        reload.apply(batch(0, 2))
        time.sleep(1.5)
        reload.apply(batch(2, 4))
        assert reload.take_over({PLACE: 4}, catch_up).after == 3
    assert lab.rows() == model(7)


@pytest.mark.parametrize("lab", ["postgres"], indirect=True)
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_what_is_caught_up_with_is_seen_at_any_isolation_that_sessions_begin_with(
    lab: SqlLab, level: str
) -> None:
    lab.run(f"ALTER DATABASE target SET default_transaction_isolation = '{level}'")
    lab.engine.dispose()
    with lab.handler() as worker, reloading_after(worker, lab) as reload:
        reload.apply(batch(0, 5))
        worker.handle(batch(5, 8))

        def catch_up(_: Any) -> Any:
            reload.apply(batch(5, 8))
            return {PLACE: 8}

        reload.take_over({PLACE: 5}, catch_up)
        assert lab.rows() == model(8)
