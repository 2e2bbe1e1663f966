"""Expectations: which rows meet them, what is refused when the file is read, and what a failure tells."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruling import changes_of, configured, rule_of, ruled

from handlers import Change
from worker.column_rules.filters import read_filter
from worker.column_rules.judging import Unmet
from worker.configuration import TableRule
from worker.processes.messages import packed_fault, unpacked_fault

TOAST = frozenset({"doc"})


def expecting(*checks: str, **keys: Any) -> TableRule:
    return rule_of(expect={f"r{number}": check for number, check in enumerate(checks)}, **keys)


def unmet(rule: TableRule, *changes: Any, **more: Any) -> Unmet | None:
    assert rule.expectations is not None
    sent = [one for one in changes if isinstance(one, Change)] or changes_of(*changes, **more)
    return rule.expectations.unmet(ruled(rule, sent), "shop.users")


@pytest.mark.parametrize(
    ("check", "row", "fails"),
    [
        ("total >= 0", {"total": -1}, True),
        ("total >= 0", {"total": 0}, False),
        ("total >= 0", {"total": None}, False),  # unknown, as in SQL's CHECK
        ("email IS NOT NULL", {"email": None}, True),
        ("Email LIKE '%@%'", {"email": "x"}, True),
        ("a < b", {"a": 1, "b": None}, False),
    ],
)
def test_a_row_is_judged_as_by_a_check_of_sql(check: str, row: dict[str, Any], fails: bool) -> None:
    found = unmet(expecting(check), {"id": 1, **row})
    assert (found is not None) is fails
    if found is not None:
        assert str(found) == (
            f"shop.users does not meet expectations: r0: {check} is false (at test[0] offset 0)"
        )


@given(a=st.one_of(st.none(), st.integers(-3, 3)), b=st.one_of(st.none(), st.integers(-3, 3)))
def test_only_false_fails(a: int | None, b: int | None) -> None:
    for check in ("a > b", "a = 1 OR b = 1", "NOT (a < b)", "a BETWEEN b AND 2"):
        row = {"a": a, "b": b}
        assert (unmet(expecting(check), {"id": 1, **row}) is not None) is (
            read_filter(check).on(("a", "b"))(row) is False
        )


def test_the_strictest_rule_that_fails_decides() -> None:
    expect = {
        "w": "a > 0",
        "d": {"check": "b > 0", "on_failure": "dead_letter"},
        "h": {"check": "c > 0", "on_failure": "halt"},
    }
    rule = configured({"expect": expect}, dead_letter={"topic": "dead"}).tables[0]
    for row, rules, action in (
        ({"a": 0, "b": 1, "c": 1}, ("w",), "warn"),
        ({"a": 0, "b": 0, "c": 1}, ("w", "d"), "dead_letter"),
        ({"a": 1, "b": 0, "c": 0}, ("d", "h"), "halt"),
    ):
        found = unmet(rule, {"id": 1, **row})
        assert found is not None
        assert (found.rules, found.action) == (rules, action)
        again = unpacked_fault(*pickle.loads(pickle.dumps(packed_fault(found))))
        assert isinstance(again, Unmet)
        assert again.parts() == found.parts()


def test_all_rows_of_a_record_are_judged_and_deletes_are_not() -> None:
    rule = expecting("total >= 0")
    assert unmet(rule, {"id": 1, "total": 1}, {"id": 2, "total": -1}) is not None
    assert unmet(rule, {"before": {"id": 1, "total": -1}, "after": None}) is None
    assert unmet(rule, {"before": {"id": 1, "total": -1}, "after": {"id": 1, "total": 1}}) is None
    assert unmet(rule, {"sql": "ALTER TABLE users ADD x int"}) is None
    marking = expecting("total >= 0", deletes="mark")
    assert unmet(marking, {"before": {"id": 1, "total": -1}, "after": None}) is None
    assert unmet(marking, {"id": 1, "total": -1}) is not None


def test_an_old_row_that_stays_is_not_judged_when_its_key_changes() -> None:
    """With `deletes: ignore`, an update that changes nothing stands for the delete of the old key."""
    content: Any = ("id",), None, 0, "test", 0, 0
    gone = Change("delete", {"id": 150, "doc": "x"}, None, *content, 0, None, None, moves_key=True)
    made = Change("insert", None, {"id": 50}, *content, 1, None, None, lacks=TOAST, moves_key=True)
    rule = expecting("id < 100", deletes="ignore")
    assert [each.op for each in ruled(rule, [gone, made])] == ["update", "insert"]
    assert unmet(rule, gone, made) is None
    assert unmet(expecting("id > 100", deletes="ignore"), gone, made) is not None


def test_rows_are_judged_as_they_leave() -> None:
    columns = {
        "rename": {"total": "gross"},
        "mask": {"email": "hash"},
        "add": {"net": "round(total / 2, 1)"},
    }
    rule = expecting("gross >= net", "email IS NOT NULL", "net < 10", columns=columns)
    found = unmet(rule, {"id": 1, "total": 30, "email": "secret@example.org"})
    assert found is not None
    assert found.rules == ("r2",)
    assert "secret" not in str(found)
    assert "15" not in str(found)


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"columns": {"exclude": ["Total"]}}, "r0 names total, which columns leaves out"),
        ({"columns": {"include": ["id"]}}, "r0 names total, which columns leaves out"),
        ({"columns": {"rename": {"total": "gross"}}}, "total, which columns.rename gives the name gross"),
    ],
)
def test_a_column_that_handlers_do_not_get_is_refused(keys: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        expecting("total > 0", **keys)
    expecting("total > 0", columns={"rename": {"x": "total"}, "exclude": ["total"]})


def test_rows_are_not_judged_before_a_function_changes_them() -> None:
    with pytest.raises(ValueError, match="let the function check its results"):
        expecting("total > 0", transform="own:clean")


def test_what_cannot_be_judged_because_a_column_is_gone_or_of_another_kind_fails() -> None:
    gone = unmet(expecting("total > 0"), {"id": 1})
    assert gone is not None
    assert "r0: the row has no column total" in str(gone)
    other = unmet(expecting("total > 0"), {"id": 1, "total": "secret"})
    assert other is not None
    assert "r0: a text cannot be compared with a number" in str(other)


@pytest.mark.parametrize("lacks", [TOAST, None])
def test_unchanged_values_that_are_not_sent_are_not_judged(lacks: frozenset[str] | None) -> None:
    told = {"op": "update", "before": None, "lacks": lacks, "before_is_whole": False}
    rule = expecting("doc <> ''", "a < doc", "a > 0")
    assert unmet(rule, {**told, "after": {"id": 1, "a": 1}}) is None
    found = unmet(rule, {**told, "after": {"id": 1, "a": 0}})
    assert found is not None
    assert found.rules == ("r2",)


@pytest.mark.parametrize(
    ("expect", "what"),
    [
        ({"a": "b + "}, "a condition on the row; it cannot be read"),
        ({"a": {"check": "b > 1", "on_failure": "skip"}}, "on_failure"),
        ({"a": {"on_failure": "halt"}}, "check"),
        ({"": "b > 1"}, "expect"),
        ({"a": {"check": "b > 1", "on_failure": "dead_letter"}}, None),
    ],
)
def test_a_fault_of_an_expectation(expect: dict[str, Any], what: str | None) -> None:
    if what is None:
        configured({"expect": expect}, dead_letter={"topic": "d"})
        return
    with pytest.raises(ValueError, match=what):
        configured({"expect": expect})


def test_a_rule_of_expectations_alone_changes_neither_rows_nor_statements() -> None:
    rule = expecting("total >= 0")
    assert (rule.row_rules, rule.statement_rules) == (None, None)
