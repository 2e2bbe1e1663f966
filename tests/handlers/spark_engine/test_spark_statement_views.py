"""What views show of a log with statements: nothing of what is behind one before it is followed."""

from __future__ import annotations

from typing import Any

import pytest
from spark_lake import TYPES, Lake, MakeLake, change
from test_spark_handovers import ddl
from test_spark_statements import RESULT, STREAM, raising, row, truncate

from handlers.spark.engine.merge_scheduler import Merger
from handlers.spark.engine.table.failures import SparkFailure
from handlers.spark.engine.table.log_end import LogEnd
from handlers.spark.engine.table.work import TableWork
from handlers.spark.read.current import create_views


@pytest.fixture
def lake(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """It merges when it is told to."""
    monkeypatch.setattr(Merger, "offer", lambda *_: None)
    return make_lake()


@pytest.mark.soak
def test_a_view_shows_what_is_behind_a_statement_when_it_is_followed(lake: Lake) -> None:
    lake.take(STREAM[0])
    lake.take(STREAM[1])
    assert lake.view() == [(1, "lost"), (2, "lost")]
    for each in STREAM[2:]:
        lake.take(each)
    [made] = create_views(lake.spark, str(lake.folder / "lake")).values()
    before = [(1, "lost"), (2, "lost")]
    assert lake.view() == before
    assert sorted(map(tuple, lake.spark.table(made).collect())) == before
    lake.sink().merge()
    assert lake.view() == lake.rows() == RESULT
    lake.take(row(8, 5, "f", stock=3))
    assert lake.view() == [*RESULT, (5, "f", 3)]
    assert lake.status()["waiting_rows"] == 1


@pytest.mark.soak
def test_a_view_shows_what_is_behind_a_statement_though_it_is_not_merged(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it does not fall behind while changes flow."""
    lake.take(STREAM[0])
    lake.sink().merge()
    [made] = create_views(lake.spark, str(lake.folder / "lake")).values()
    lake.take(truncate(1))
    lake.take(row(2, 7, "a"))
    with monkeypatch.context() as broken:
        broken.setattr(TableWork, "apply", raising)
        with pytest.raises(SparkFailure, match="cut here"):
            lake.sink().merge()
        assert [tuple(each) for each in lake.spark.table(made).collect()] == [(7, "a")]
        lake.take(row(3, 8, "b"))
        assert lake.view() == [(7, "a"), (8, "b")]
        assert sorted(map(tuple, lake.spark.table(made).collect())) == [(7, "a"), (8, "b")]
        assert lake.rows() == []
    lake.crash()
    lake.take(row(4, 7, "c"))
    assert lake.view() == [(7, "c"), (8, "b")]
    lake.sink().merge()
    assert lake.view() == lake.rows() == [(7, "c"), (8, "b")]


def followed_and_not_shown(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as cut:
        cut.setattr(TableWork, "apply", raising)
        cut.setattr(LogEnd, "show", lambda _: False)
        with pytest.raises(SparkFailure, match="cut here"):
            lake.sink().merge()


@pytest.mark.soak
def test_a_view_shows_nothing_from_before_a_truncate_when_it_is_followed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.take(row(0, 1, "lost"))
    lake.sink().merge()
    [made] = create_views(lake.spark, str(lake.folder / "lake")).values()
    lake.take(truncate(1))
    lake.take(row(2, 7, "a"))
    followed_and_not_shown(lake, monkeypatch)
    assert lake.view() == lake.spark.table(made).collect() == []
    lake.sink().merge()
    assert lake.view() == [(7, "a")]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("sql", "after", "shown"),
    [
        ("ALTER TABLE orders DROP COLUMN name", {"id": 2}, [(1,)]),
        ("ALTER TABLE orders RENAME COLUMN name TO title", {"id": 2, "title": "b"}, [(1, "a")]),
        ("ALTER TABLE orders ADD stock int DEFAULT 7", {"id": 2, "name": "b", "stock": 1}, [(1, "a", 7)]),
    ],
)
def test_what_is_shown_when_a_statement_is_followed_has_the_tables_columns(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, sql: str, after: dict[str, Any], shown: list[Any]
) -> None:
    lake.take(row(0, 1, "a"))
    lake.sink().merge()
    lake.take(ddl(1, sql))
    types = {**TYPES, "title": "varchar(20)", "stock": "int"}
    lake.take(change(2, after, {name: types[name] for name in after}))
    followed_and_not_shown(lake, monkeypatch)
    assert lake.view() == lake.rows() == shown
    made = create_views(lake.spark, str(lake.folder / "lake"))
    if "DROP" in sql:  # a view that is kept is to have all columns that are to come
        assert [tuple(each) for each in lake.spark.table(made["shop.orders"]).collect()] == shown
    else:
        assert not made
    lake.sink().merge()
    made = create_views(lake.spark, str(lake.folder / "lake"))
    found = sorted(tuple(each) for each in lake.spark.table(made["shop.orders"]).collect())
    assert found == lake.rows() == [*shown, tuple(after.values())]
