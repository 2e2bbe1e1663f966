"""DDL about a name that the rules give another column: what it would do to that one's values is refused."""

from __future__ import annotations

from typing import Any

import pytest
from ruling import rule_of, ruled, statement

from worker.column_rules.plan import RuleFault

HEAD = "ALTER TABLE `shop`.`users` "


def left_of(clauses: str, **rules: Any) -> str | None:
    """The clauses that leave; None: none does."""
    found = ruled(rule_of(**rules), [statement(f"ALTER TABLE users {clauses}")])
    return (found[0].sql or "").removeprefix(HEAD) if found else None


OWNING: dict[str, Any] = {
    "columns": {"rename": {"name": "full"}, "exclude": ["out"], "add": {"Seen": "offset"}},
    "deletes": "mark",
    "deleted_column": "gone",
}
OWNED = [
    "ADD COLUMN {} int",
    "DROP COLUMN {}",
    "MODIFY COLUMN {} bigint",
    "RENAME COLUMN {} TO x",
    "RENAME COLUMN {} TO out",
    "RENAME COLUMN x TO {}",
    "CHANGE x {} int",
    "CHANGE {} {} int",
    "ADD PRIMARY KEY ({})",
]


@pytest.mark.parametrize("column", ["full", "FULL", "seen", "gone"])
@pytest.mark.parametrize("clause", OWNED)
def test_a_column_of_a_name_that_the_rules_give_another_is_not_let_at_that_one(
    clause: str, column: str
) -> None:
    with pytest.raises(RuleFault, match="would both be named"):
        left_of(clause.format(column, column), **OWNING)


@pytest.mark.parametrize(
    "clauses",
    [
        "RENAME COLUMN name TO full, RENAME COLUMN x TO name",
        "RENAME COLUMN name TO x, RENAME COLUMN full TO name",
        "RENAME COLUMN name TO full, ADD COLUMN name int",
        "DROP COLUMN name, RENAME COLUMN full TO name",
        "DROP COLUMN full, MODIFY COLUMN name int",
        "DROP COLUMN name, ADD COLUMN name int, ADD COLUMN full int",
    ],
)
def test_a_statement_of_two_columns_that_share_a_name_is_refused(clauses: str) -> None:
    with pytest.raises(RuleFault, match=r"and column .* would both be named"):
        left_of(clauses, **OWNING)


@pytest.mark.parametrize(
    ("clauses", "left"),
    [
        ("RENAME COLUMN name TO x", "RENAME COLUMN `full` TO `x`"),
        ("RENAME COLUMN x TO name", "RENAME COLUMN `x` TO `full`"),
        ("RENAME COLUMN name TO full", None),  # as it was called there before
        ("RENAME COLUMN full TO name", None),
        ("CHANGE name full bigint", "MODIFY COLUMN `full` bigint"),
        ("CHANGE name name bigint", "MODIFY COLUMN `full` bigint"),
        (
            "RENAME COLUMN name TO x, RENAME COLUMN y TO name",
            "RENAME COLUMN `full` TO `x`, RENAME COLUMN `y` TO `full`",
        ),
        ("DROP COLUMN name, ADD COLUMN full int", "DROP COLUMN `full`, ADD COLUMN `full` int"),
        ("DROP COLUMN name, ADD COLUMN name int", "DROP COLUMN `full`, ADD COLUMN `full` int"),
        ("DROP COLUMN name, RENAME COLUMN x TO full", "DROP COLUMN `full`, RENAME COLUMN `x` TO `full`"),
        ("ADD PRIMARY KEY (name)", "ADD PRIMARY KEY (`full`)"),
    ],
)
def test_a_name_that_is_given_up_or_taken_over_is_followed(clauses: str, left: str | None) -> None:
    found = left_of(clauses, **OWNING)
    assert sorted((found or "").split(", ")) == sorted((left or "").split(", "))


@pytest.mark.parametrize("columns", [{"exclude": ["full", "x", "out"]}, {"rename": {"full": "whole"}}])
@pytest.mark.parametrize("clause", OWNED[:-1])
def test_a_column_that_leaves_its_name_free_is_followed(clause: str, columns: dict[str, Any]) -> None:
    rules = {**columns, "rename": {"name": "full", **columns.get("rename", {})}}
    assert "`full`" not in (left_of(clause.format("full", "full"), columns=rules) or "")


def test_a_table_without_the_renamed_column_is_made_with_one_of_the_name_that_it_would_have() -> None:
    """All its columns are told, so that nothing is taken to be there."""
    create = statement("CREATE TABLE users (id int PRIMARY KEY, full int)")
    [left] = ruled(rule_of(columns=OWNING["columns"]), [create])
    assert "`full` int" in (left.sql or "")
