"""Statements in the log that go wrong: what does not fit is refused before it is durable, a batch that comes
later has no part in it, and a worker that comes late undoes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from spark_lake import Lake, MakeLake, change
from test_spark_handovers import ddl, other_worker
from test_spark_statements import row, truncate

from handlers import Change, Rejected, TargetUnavailable
from handlers.spark.ddl.target import Target
from handlers.spark.engine.table.failures import LogFailure, SparkFailure
from handlers.spark.log.beside import ToldHeld

AB = {"id": "int", "a": "varchar(20)", "b": "int"}


pytestmark = pytest.mark.usefixtures("told_to_merge")


@pytest.fixture
def lake(make_lake: MakeLake) -> Lake:
    return make_lake()


def only_id(offset: int, id: int) -> Change:
    return change(offset, {"id": id}, {"id": "int"})


# ---- what does not fit is not durable


@pytest.mark.soak
def test_a_row_without_a_place_in_the_table_is_refused_though_a_statement_leads_to_it(
    make_lake: MakeLake,
) -> None:
    """The table has a column of somebody else."""
    lake = make_lake()
    lake.take(change(0, {"id": 1, "a": "x"}, {"id": "int", "a": "varchar(20)"}))
    lake.sink().merge()
    lake.sql("ALTER TABLE {t} ADD COLUMNS (b INT)")
    lake.crash()
    lake.take(change(2, {"id": 2, "a": "y"}, {"id": "int", "a": "varchar(20)"}))
    lake.take(ddl(3, "ALTER TABLE orders RENAME COLUMN a TO b"))
    with pytest.raises(Rejected, match=r"offset 4: column 'b' is int"):
        lake.take(change(4, {"id": 3, "b": "z"}, {"id": "int", "b": "varchar(20)"}))
    lake.take(only_id(5, 5))
    lake.sink().merge()
    assert lake.rows("id") == lake.view("id") == [(1,), (2,), (5,)]


@pytest.mark.soak
def test_rows_behind_statements_that_are_switched_off_by_now_are_refused_when_they_do_not_fit(
    make_lake: MakeLake,
) -> None:
    lake = make_lake()
    lake.take(change(0, {"id": 1, "a": "x", "b": 1}, AB))
    lake.sink().merge()
    lake.take(ddl(1, "ALTER TABLE orders DROP COLUMN b"))
    lake.take(ddl(2, "ALTER TABLE orders RENAME COLUMN a TO b"))
    assert lake.status()["waiting_rows"] == 2, "both are entries of the log"
    lake.options["ddl"] = {"drop_columns": False, "rename_columns": False}
    lake.crash()
    with pytest.raises(Rejected, match=r"offset 3: column 'b' is int"):
        lake.take(change(3, {"id": 3, "b": "z"}, {"id": "int", "b": "varchar(20)"}))
    lake.take(only_id(4, 4))
    lake.sink().merge()
    assert lake.rows() == [(1, "x", 1), (4, None, None)]


@pytest.mark.soak
def test_a_column_that_somebody_else_gave_the_table_is_seen_before_the_source_adds_its_own(
    lake: Lake,
) -> None:
    lake.sql("CREATE TABLE {t} (id INT, name STRING, stock STRING) USING delta")
    lake.take(row(0, 1, "a"))
    lake.sink().merge()
    lake.take(ddl(1, "ALTER TABLE orders ADD stock int"))
    with pytest.raises(Rejected, match=r"offset 2: column 'stock' is string"):
        lake.take(row(2, 2, "b", stock=5))
    lake.take(row(3, 3, "c"))
    lake.sink().merge()
    assert lake.rows() == [(1, "a", None), (3, "c", None)]


@pytest.mark.soak
def test_a_new_type_is_judged_by_the_tables_own(lake: Lake) -> None:
    lake.sql("CREATE TABLE {t} (id INT, name STRING, stock BIGINT) USING delta")
    lake.sql("INSERT INTO {t} VALUES (9, 'z', 99999999999)")
    lake.take(row(0, 1, "a", stock=1))
    lake.sink().merge()
    with pytest.raises(Rejected, match=r"offset 1: .*do not fit"):
        lake.take(ddl(1, "ALTER TABLE orders MODIFY stock decimal(12,2)"))
    lake.take(row(2, 2, "b", stock=2))
    lake.sink().merge()
    assert lake.rows() == [(1, "a", 1), (2, "b", 2), (9, "z", 99999999999)]


def test_a_worker_that_has_not_seen_the_table_looks_at_it_before_it_puts_a_statement(lake: Lake) -> None:
    """Somebody may have changed it while no worker ran."""
    lake.take(row(0, 1, "a"))
    lake.sink().merge()
    lake.crash()
    lake.sql("ALTER TABLE {t} ADD COLUMNS (stock STRING)")
    lake.take(ddl(1, "ALTER TABLE orders ADD stock int"))
    with pytest.raises(Rejected, match=r"offset 2: column 'stock' is string"):
        lake.take(row(2, 2, "b", stock=5))
    assert lake.rows() == [(1, "a", None)]


@pytest.mark.soak
def test_a_statement_whose_values_may_refuse_it_is_judged_before_its_batch_is_done(lake: Lake) -> None:
    """And all before it is followed then."""
    lake.take(row(0, 1, "a"))
    lake.take(ddl(1, "ALTER TABLE orders ADD stock int DEFAULT 7"))
    with pytest.raises(Exception, match="do not fit, such as 'a'"):
        lake.take(ddl(2, "ALTER TABLE orders MODIFY name int"))
    lake.take(row(3, 2, "b", stock=1))
    assert lake.view() == [(1, "a", 7), (2, "b", 1)]


# ---- a statement that cannot be followed


@pytest.mark.soak
def test_a_column_that_the_table_is_partitioned_by_fails_its_own_statement_alone(make_lake: MakeLake) -> None:
    lake = make_lake(partition_by=["name"])
    lake.take(row(0, 1, "a"))
    lake.sink().merge()
    with pytest.raises(SparkFailure, match=r"offset 1 .*Dropping partition columns \(name\)"):
        lake.take(ddl(1, "ALTER TABLE orders DROP COLUMN name"))
    for offset in (2, 3, 4):
        lake.take(only_id(offset, offset))
        lake.sink().merge()
    assert lake.rows() == [(1, "a"), (2, None), (3, None), (4, None)]


def held_by_a_constraint(lake: Lake) -> None:
    """Somebody declares, when binlane has looked, what Delta lets no column go for."""
    lake.take(row(0, 1, "a"))
    lake.sink().merge()
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT named CHECK (id > 0 OR name IS NOT NULL)")
    lake.take(ddl(1, "ALTER TABLE orders DROP COLUMN name"))
    lake.take(only_id(2, 2))
    for _ in range(3):
        with pytest.raises(LogFailure, match=r"^shop\.orders, cdc\[0\] offset 1: "):
            lake.sink().merge()


@pytest.mark.soak
def test_batches_behind_a_statement_that_cannot_be_followed_wait_and_are_no_failures(lake: Lake) -> None:
    held_by_a_constraint(lake)
    told = r"offset 1: .*\(ALTER TABLE orders DROP COLUMN name\) is in the table's log.* switch its kind off"
    for _ in range(3):
        with pytest.raises(TargetUnavailable, match=told) as held:
            lake.take(only_id(3, 3))
        assert held.value.others_go_on
        assert held.value.retry_after is not None
        assert held.value.retry_after > 1
    assert "offset 1" in str(lake.status()["error"])
    assert lake.view() == lake.rows() == [(1, "a")]
    lake.take(row(0, 1, "other"), table="shop.other")
    lake.sql("ALTER TABLE {t} DROP CONSTRAINT named")
    lake.take(only_id(3, 3))
    lake.sink().merge()
    assert lake.view() == lake.rows() == [(1,), (2,), (3,)]


@pytest.mark.soak
def test_a_statement_that_cannot_be_followed_is_set_aside_for_good_by_switching_its_kind_off_once(
    lake: Lake,
) -> None:
    held_by_a_constraint(lake)
    lake.options["ddl"] = {"drop_columns": False}
    lake.crash()
    lake.take(only_id(3, 3))
    lake.sink().merge()
    assert lake.rows() == [(1, "a"), (2, None), (3, None)]
    lake.options["ddl"] = True
    lake.crash()
    lake.sql("ALTER TABLE {t} DROP CONSTRAINT named")
    lake.take(only_id(4, 4))
    lake.sink().merge()
    assert lake.rows() == lake.view() == [(1, "a"), (2, None), (3, None), (4, None)]


# ---- workers that come late


@pytest.mark.parametrize("told_by", ["notes of commits", "the mark"])
@pytest.mark.soak
def test_a_worker_that_slept_before_it_dropped_a_column_leaves_the_one_that_was_added_since(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, told_by: str
) -> None:
    lake.take(row(0, 1, "a", stock=5))
    lake.sink().merge()
    lake.take(ddl(1, "ALTER TABLE orders DROP COLUMN stock"))
    late = other_worker(lake)
    late.load()
    lake.take(row(2, 2, "b"))
    lake.take(ddl(3, "ALTER TABLE orders ADD stock int"))
    lake.take(row(4, 3, "c", stock=77))
    whole = Target.allow

    def asleep(target: Target, ref: Any, *what: str) -> None:
        """It has looked what is done, and not dropped the column yet."""
        monkeypatch.setattr(Target, "allow", whole)
        lake.sink().merge()
        assert lake.rows("id, stock") == [(1, None), (2, None), (3, 77)]
        whole(target, ref, *what)
        if told_by == "the mark":  # the notes are of newer commits by now
            monkeypatch.setattr("handlers.spark.ddl.target.notes_in_files", lambda *_: [])

    monkeypatch.setattr(Target, "allow", asleep)
    late.merge()
    lake.take(row(5, 4, "d", stock=8))
    lake.sink().merge()
    assert lake.rows("id, stock") == lake.view("id, stock") == [(1, None), (2, None), (3, 77), (4, 8)]


def test_a_worker_that_slept_behind_a_statement_brings_no_column_back(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.take(row(0, 1, "a", stock=5))
    lake.sink().merge()
    lake.take(truncate(1))
    late = other_worker(lake)
    late.load()
    lake.take(ddl(2, "ALTER TABLE orders DROP COLUMN stock"))
    lake.take(row(3, 2, "b"))
    whole = ToldHeld.tell_followed

    def asleep(told: ToldHeld, number: int) -> None:
        monkeypatch.setattr(ToldHeld, "tell_followed", whole)
        lake.sink().merge()
        whole(told, number)

    monkeypatch.setattr(ToldHeld, "tell_followed", asleep)
    late.merge()
    assert lake.rows() == [(2, "b")]


@pytest.mark.soak
def test_a_table_that_lost_a_column_gets_it_again_when_a_merge_has_failed(lake: Lake) -> None:
    lake.take(row(0, 1, "a"))
    lake.sink().merge()
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    lake.sql("ALTER TABLE {t} DROP COLUMN name")
    lake.take(row(1, 2, "b"))
    with pytest.raises(SparkFailure):
        lake.sink().merge()
    lake.sink().merge()
    assert lake.rows() == lake.view() == [(1, None), (2, "b")]
