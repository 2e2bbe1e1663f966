"""No two columns leave under one name: of one of them the values would be lost."""

from __future__ import annotations

from typing import Any

import pytest
from ruling import changes_of, rule_of, ruled, statement

from worker.column_rules.plan import RuleFault


@pytest.mark.parametrize("is_typed", [True, False])
@pytest.mark.parametrize(
    ("rules", "row"),
    [
        # Short and well-known names are one object wherever they stand: it is the spelling that counts.
        ({"columns": {"rename": {"a": "b"}}}, {"id": 1, "a": 2, "b": 3}),
        ({"columns": {"rename": {"a": "B"}}}, {"id": 1, "a": 2, "b": 3}),
        ({"columns": {"rename": {"alt": "id"}}}, {"id": 1, "alt": 2}),
        ({"columns": {"rename": {"a": "x", "b": "y"}}}, {"id": 1, "a": 2, "x": 3}),
        ({"columns": {"add": {"v": {"value": 7}}}}, {"id": 1, "v": 2}),
        ({"columns": {"add": {"V": {"value": 7}}}}, {"id": 1, "v": 2}),
        ({"columns": {"rename": {"name": "full"}}}, {"id": 1, "name": "lower", "Name": "UPPER"}),
        ({"columns": {"mask": {"name": "redact"}}}, {"id": 1, "name": "lower", "Name": "UPPER"}),
        ({"columns": {"exclude": ["x"]}, "deletes": "mark", "deleted_column": "a"}, {"id": 1, "a": 2}),
    ],
)
def test_a_row_whose_columns_would_share_a_name_is_refused(
    rules: dict[str, Any], row: dict[str, Any], is_typed: bool
) -> None:
    more: dict[str, Any] = {"types": dict.fromkeys(row, "int")} if is_typed else {}
    with pytest.raises(RuleFault, match=r"already has|would both be named"):
        ruled(rule_of(**rules), changes_of(row, **more))


@pytest.mark.parametrize("spelled", ["b", "B"])
def test_a_table_is_not_made_with_two_columns_of_one_name(spelled: str) -> None:
    rule = rule_of(columns={"rename": {"a": "b"}})
    with pytest.raises(RuleFault, match=f"column {spelled} and column a would both be named {spelled}"):
        ruled(rule, [statement(f"CREATE TABLE users (id int PRIMARY KEY, a int, {spelled} int)")])


@pytest.mark.parametrize(
    ("columns", "row", "left"),
    [
        ({"rename": {"a": "b", "b": "a"}}, {"id": 1, "a": 2, "b": 3}, {"id": 1, "b": 2, "a": 3}),
        ({"rename": {"a": "b", "b": "c"}}, {"id": 1, "a": 2, "b": 3}, {"id": 1, "b": 2, "c": 3}),
        ({"rename": {"a": "A"}}, {"id": 1, "a": 2}, {"id": 1, "A": 2}),
        ({"rename": {"a": "a"}}, {"id": 1, "a": 2}, {"id": 1, "a": 2}),
        ({"rename": {"a": "b"}, "exclude": ["b"]}, {"id": 1, "a": 2, "b": 3}, {"id": 1, "b": 2}),
        ({"rename": {"a": "b"}, "include": ["id", "a"]}, {"id": 1, "a": 2, "b": 3}, {"id": 1, "b": 2}),
        ({"add": {"b": {"value": 7}}, "exclude": ["b"]}, {"id": 1, "b": 3}, {"id": 1, "b": 7}),
        ({"exclude": ["a"]}, {"id": 1, "a": 2, "A": 3}, {"id": 1}),
        ({"rename": {"a": "b"}}, {"id": 1, "b": 3}, {"id": 1, "b": 3}),
    ],
)
def test_a_name_that_one_column_alone_leaves_under_is_free(
    columns: dict[str, Any], row: dict[str, Any], left: dict[str, Any]
) -> None:
    [change] = ruled(rule_of(columns=columns), changes_of(row, types=dict.fromkeys(row, "int")))
    assert change.after == left
    assert set(change.types or ()) == set(left)


@pytest.mark.parametrize("columns", [{"add": {"Gone": "topic"}}, {"rename": {"a": "gone"}}])
def test_the_column_of_the_mark_has_its_name_for_itself(columns: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="gives a column the name gone, which is also deleted_column"):
        rule_of(columns=columns, deletes="mark", deleted_column="gone")
    rule_of(columns=columns, deleted_column="gone")
