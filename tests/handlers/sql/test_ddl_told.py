"""What a statement does not change in the target is told, and meets nothing of another table."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ddl_lab import DDLLab
from structlog.testing import capture_logs

MakeLab = Callable[[str], DDLLab]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_rename_to_a_column_that_is_there_is_told(make_lab: MakeLab, kind: str) -> None:
    """The first row with the new name has made it, before the statement came."""
    lab = make_lab(kind)
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, a int, b int)")
    with capture_logs() as logs:
        lab.follow("ALTER TABLE t RENAME COLUMN a TO b", times=1)
    [told] = [log for log in logs if log["log_level"] == "warning"]
    assert (told["event"], told["column"], told["to"]) == ("ddl_column_not_renamed", "a", "b")
    assert lab.columns() == ["id", "a", "b"]


@pytest.mark.parametrize("kind", ["postgres", "sqlite", "mariadb"])
def test_indexes_of_tables_that_begin_alike_have_names_of_their_own(make_lab: MakeLab, kind: str) -> None:
    lab = make_lab(kind)
    for end in ("a", "\u00e9" * 5):
        table = "orders_of_the_year_two_thousand_and_twenty_" + end
        lab.follow(f"CREATE TABLE {table} (id int, n int)", table=table)
        lab.put({"id": "int", "n": "int"}, {"id": 1, "n": None}, table=table)
        with capture_logs() as logs:
            for _ in range(2):
                lab.follow(f"ALTER TABLE {table} ADD PRIMARY KEY (n)", table=table, times=1)
        assert "ddl_key_is_unique_only" in {log["event"] for log in logs}
