"""Rows that leave the filter: by whatever operation, the target holds them no more."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from captured import CapturedRecord
from ruling import changes_of, rule_of, ruled

from handlers import Batch, Change
from handlers.rows import is_move
from handlers.sql import SqlHandler
from handlers.testing import opened
from worker.column_rules.plan import RuleFault
from worker.configuration import TableRule
from worker.formats.own_json.format import Json
from worker.formats.own_json.layout import JsonLayout

TAKEN = {"id": 1, "mail": "ada@example.org", "consent": True}
LEFT = {**TAKEN, "consent": False}
TYPES = {"id": "int", "mail": "text", "consent": "boolean", "doc": "text"}
FILTER = "consent = TRUE"
GONE_KEY = frozenset({"doc"})


@contextmanager
def target(folder: Path) -> Iterator[Any]:
    """Gives a function that applies what handlers see of changes, and one that reads the table."""
    url = f"sqlite:///{folder / 'target.db'}"
    engine = sa.create_engine(url)
    with opened(SqlHandler(url=url), folder) as handler:

        def apply(rule: TableRule, changes: Sequence[Change]) -> None:
            if left := ruled(rule, changes):
                handler.handle(Batch("shop.users", left, database="shop", name="users"))

        def rows(columns: str = "*") -> list[dict[str, Any]]:
            with engine.connect() as connection:
                found = connection.exec_driver_sql(f'SELECT {columns} FROM "shop.users" ORDER BY 1')
                return [dict(row) for row in found.mappings()]

        yield apply, rows
    engine.dispose()


@pytest.mark.parametrize("op", ["insert", "snapshot"])
def test_a_row_leaves_by_an_upsert_or_by_a_second_snapshot(op: str, tmp_path: Path) -> None:
    rule = rule_of(filter=FILTER)
    with target(tmp_path) as (apply, rows):
        apply(rule, changes_of({"op": op, "after": dict(TAKEN)}, types=TYPES))
        assert [row["id"] for row in rows()] == [1]
        apply(rule, changes_of({"op": op, "after": dict(LEFT)}, types=TYPES, offset=1))
        assert rows() == []


def test_a_row_of_the_format_json_leaves_by_its_next_record() -> None:
    rule = rule_of(filter=FILTER)
    record = CapturedRecord("cdc", 0, 0, 1, None, json.dumps(LEFT).encode(), [])
    for key, seen in ((["id"], [("delete", {"id": 1})]), (None, [])):  # without a key no row is changed
        layout = {"database": "=shop", "table": "=users", **({"key": key} if key else {})}
        changes: list[Change] = []
        Json(JsonLayout.model_validate(layout)).decode(record, changes)
        assert [(change.op, change.before) for change in ruled(rule, changes)] == seen


def test_a_row_that_is_not_taken_is_no_row_with_a_mark(tmp_path: Path) -> None:
    """Else the target had a row for each one that the filter keeps back."""
    rule = rule_of(filter=FILTER, deletes="mark")
    with target(tmp_path) as (apply, rows):
        apply(rule, changes_of(dict(TAKEN), {**LEFT, "id": 2}, types=TYPES))
        assert [(row["id"], row["deleted_at"]) for row in rows()] == [(1, None)]
        apply(rule, changes_of({"before": dict(TAKEN), "after": dict(LEFT)}, types=TYPES, offset=2))
        assert [(row["id"], row["deleted_at"] is None) for row in rows()] == [(1, False)]
        apply(rule, changes_of(dict(LEFT), types=TYPES, offset=3))  # an upsert leaves no mark
        assert rows() == []


def test_what_left_the_filter_stays_if_deletes_are_ignored() -> None:
    rule = rule_of(filter=FILTER, deletes="ignore")
    assert ruled(rule, changes_of(dict(LEFT), {"before": dict(TAKEN), "after": dict(LEFT)})) == []
    # Nor does the key come to stand of a row that was perhaps never taken.
    assert ruled(rule, moved({"id": 1}, {**LEFT, "id": 2})) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"id": 1, "consent": None}, {"id": 1, "consent": False}),
        ({"id": 1}, {"id": 1, "consent": False}),
        ({"id": 1, "consent": False}, {"id": 1, "consent": False}),
    ],
)
def test_an_old_row_that_is_not_whole_tells_nothing(before: dict[str, Any], after: dict[str, Any]) -> None:
    told = {"before": before, "after": after, "before_is_whole": False}
    [change] = ruled(rule_of(filter=FILTER), changes_of(told))
    assert (change.op, change.before) == ("delete", {"id": 1})


def test_a_null_of_a_whole_old_row_is_a_value() -> None:
    told = {"before": {**LEFT, "consent": None}, "after": None}
    assert ruled(rule_of(filter=FILTER), changes_of(told)) == []


def moved(old: dict[str, Any], new: dict[str, Any], lacks: frozenset[str] = GONE_KEY) -> list[Change]:
    """A row that gets another key, without its large value."""
    return changes_of(
        {"before": old, "after": None, "moves_key": True, "before_is_whole": "consent" in old, "offset": 5},
        {"before": None, "after": new, "moves_key": True, "lacks": lacks, "offset": 5, "index": 1},
        types=TYPES,
    )


@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        (TAKEN, {**TAKEN, "id": 2}, [("delete", 1, True), ("insert", 2, True)]),
        ({"id": 1}, {**TAKEN, "id": 2, "doc": ""}, [("delete", 1, True), ("insert", 2, True)]),
        (LEFT, {**TAKEN, "id": 2, "doc": ""}, [("insert", 2, True)]),
        (TAKEN, {**LEFT, "id": 2}, [("delete", 1, True), ("delete", 2, False)]),
        (LEFT, {**LEFT, "id": 2}, [("delete", 2, False)]),
    ],
)
def test_halves_of_a_moved_key_are_a_pair_only_if_both_leave(
    old: dict[str, Any], new: dict[str, Any], seen: list[tuple[str, int, bool]]
) -> None:
    left = ruled(rule_of(filter=FILTER), moved(dict(old), dict(new), GONE_KEY - new.keys()))
    keys = [change.key for change in left]
    assert [
        (change.op, key and key["id"], change.moves_key) for change, key in zip(left, keys, strict=True)
    ] == seen
    assert is_move(*left[:2]) is (seen[0][0] == "delete" and seen[-1][0] == "insert")


@pytest.mark.parametrize("deletes", ["mark", "ignore", "apply"])
@pytest.mark.parametrize(("filter_", "old"), [(FILTER, TAKEN), ("id < 9", {"id": 1})])
def test_a_moved_row_keeps_what_its_change_lacks(
    filter_: str, old: dict[str, Any], deletes: str, tmp_path: Path
) -> None:
    rule = rule_of(filter=filter_, deletes=deletes)
    with target(tmp_path) as (apply, rows):
        apply(rule, changes_of({**TAKEN, "doc": "large"}, types=TYPES))
        apply(rule, moved(dict(old), {**TAKEN, "id": 2}))
        stays = [] if deletes == "apply" else [{"id": 1, "doc": "large"}]
        assert rows("id, doc") == [*stays, {"id": 2, "doc": "large"}]
        if deletes == "mark":
            assert [row["deleted_at"] is None for row in rows("id, deleted_at")] == [False, True]


@pytest.mark.parametrize("old", [{"id": 1}, LEFT, None])
@pytest.mark.parametrize("deletes", ["mark", "ignore", "apply"])
def test_a_row_is_not_taken_without_the_values_that_its_change_lacks(
    deletes: str, old: dict[str, Any] | None
) -> None:
    """The target may never have had the row: it would hold NULL in place of its large value."""
    rule = rule_of(filter=FILTER, deletes=deletes)
    whole = old is not None and "consent" in old
    update = {"op": "update", "before": old, "after": TAKEN, "lacks": GONE_KEY, "before_is_whole": whole}
    gone = moved(dict(old or {"id": 1}), {**TAKEN, "id": 2})
    for told in (changes_of(update), gone if old else gone[1:]):
        with pytest.raises(RuleFault, match="does not send the row's value of doc"):
            ruled(rule, told)


def test_an_update_that_may_lack_anything_needs_an_old_row_that_tells_whether_its_row_was_taken() -> None:
    update = {"op": "update", "before": None, "after": TAKEN, "lacks": None}
    rule = rule_of(filter=FILTER)
    with pytest.raises(RuleFault, match="does not send the row's value of all columns"):
        ruled(rule, changes_of(update))
    [left] = ruled(rule, changes_of({**update, "before": TAKEN}))
    assert (left.op, left.lacks) == ("update", None)


@pytest.mark.parametrize(("old", "is_told"), [(TAKEN, True), (LEFT, False), ({"id": 1}, False)])
def test_a_moved_row_of_a_partial_update_is_taken_if_its_old_row_was(
    old: dict[str, Any], is_told: bool
) -> None:
    layout = {"database": "db", "table": "t", "before": "old", "after": "new", "key": ["id"]}
    json_format = Json(JsonLayout.model_validate({**layout, "updates": "partial"}))
    value = {"db": "shop", "t": "users", "old": old, "new": {**TAKEN, "id": 2}}
    told: list[Change] = []
    json_format.decode(CapturedRecord("t", 0, 0, 1, None, json.dumps(value).encode(), []), told)
    if is_told:
        left = ruled(rule_of(filter=FILTER), told)
        assert [(change.op, change.lacks) for change in left] == [("delete", frozenset()), ("insert", None)]
        assert is_move(*left)
    else:
        with pytest.raises(RuleFault, match="does not send the row's value of all columns"):
            ruled(rule_of(filter=FILTER), told)


def test_a_row_that_the_filter_had_taken_or_of_which_nothing_is_lacking_is_taken() -> None:
    update = {"op": "update", "before": None, "after": dict(TAKEN), "lacks": GONE_KEY}
    [left] = ruled(rule_of(filter="id < 9"), changes_of(update))
    assert (left.op, left.lacks) == ("update", GONE_KEY)
    gone = {"before": {"id": 1}, "after": None, "before_is_whole": False}
    assert ruled(rule_of(filter="id > 9"), changes_of(gone)) == []
    hidden = rule_of(filter=FILTER, columns={"exclude": ["doc"]})
    [left] = ruled(hidden, changes_of(update))
    assert (left.op, left.lacks) == ("update", frozenset())
    [left] = ruled(hidden, changes_of({**update, "before": dict(LEFT)}))
    assert (left.op, left.before, left.lacks) == ("insert", None, frozenset())


def test_what_a_change_lacks_leaves_under_its_new_name() -> None:
    rule = rule_of(columns={"rename": {"doc": "text"}, "exclude": ["mail"]})
    told = {"before": None, "after": {"id": 1}, "op": "update", "lacks": frozenset({"doc", "mail"})}
    [change] = ruled(rule, changes_of(told, {**told, "lacks": None})[:1])
    assert change.lacks == frozenset({"text"})
    [change] = ruled(rule, changes_of({**told, "lacks": None}))
    assert change.lacks is None


def test_a_marked_row_says_what_it_lacks() -> None:
    rule = rule_of(deletes="mark", columns={"add": {"op": "op"}})
    gone = {"before": {"id": 1, "mail": None}, "after": None}
    [whole] = ruled(rule, changes_of(gone))
    assert whole.after is not None
    assert (whole.after.keys(), whole.lacks) == ({"id", "mail", "deleted_at", "op"}, frozenset())
    assert whole.after["op"] == "delete"  # added columns are the delete's
    [partial] = ruled(rule, changes_of({**gone, "before_is_whole": False}))
    assert partial.before == {"id": 1, "deleted_at": None}
    assert partial.after is not None
    assert (partial.after.keys(), partial.lacks) == ({"id", "deleted_at", "op"}, None)
    [unsure] = ruled(rule, changes_of({**gone, "lacks": None}))
    assert unsure.after is not None
    assert (unsure.after.keys(), unsure.lacks) == ({"id", "mail", "deleted_at", "op"}, None)


def test_a_mark_of_a_row_that_left_is_whole_only_if_its_update_was() -> None:
    update = {"op": "update", "before": dict(TAKEN), "after": dict(LEFT), "lacks": None}
    (marked,) = ruled(rule_of(filter=FILTER, deletes="mark"), changes_of(update))
    assert not marked.is_whole
    assert marked.after.keys() == {"id", "deleted_at"}
