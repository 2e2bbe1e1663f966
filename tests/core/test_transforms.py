"""`transform`: what a user's function sees of a table's rows, what it may return, and what handlers get."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from ast import literal_eval
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import row_functions
from columns.ruling import configured, hashed
from msgspec.structs import replace

from handlers import Batch, Change, Rejected, StopWorker, TargetUnavailable
from handlers.rows import is_move
from handlers.testing import make_batch
from worker.column_rules.applying import bring_under
from worker.column_rules.transforms import passed
from worker.configuration import Configuration, TableRule

ADA = {"id": 1, "name": "ada", "email": "ada@x", "words": "a b c"}


def rule_with(function: str, **keys: Any) -> TableRule:
    per_batch = keys.pop("per_batch", False)
    given = {"function": f"row_functions:{function}", "per_batch": per_batch}
    [rule] = configured({"transform": given, **keys}).tables
    return rule


def received(
    rule: TableRule, *changes: Mapping[str, Any], key: str | Sequence[str] | None = "id", by_row: bool = False
) -> list[Change]:
    """What handlers get of these changes, each of its own record."""
    batch = make_batch("shop.users", changes, key=key)
    decoded: list[Change] = []
    for change in batch.changes:
        first = len(decoded)
        decoded.append(change)
        bring_under(rule.row_rules, rule.statement_rules, decoded, first, database="shop", table="users")
    assert rule.transforming is not None
    return rule.transforming.applied(batch.having(decoded), by_row=by_row)[0]


def rows(changes: Sequence[Change]) -> list[Any]:
    return [change.after for change in changes]


# ---- one, none and several


def test_a_function_changes_leaves_out_and_splits_rows() -> None:
    assert rows(received(rule_with("upper"), {"id": 1, "name": "ada"})) == [{"id": 1, "name": "ADA"}]
    drafts = [{"id": 1, "name": "draft"}, {"id": 2, "name": "x"}]
    assert [change.offset for change in received(rule_with("without_drafts"), *drafts)] == [1]
    found = received(rule_with("lines"), {"id": 1, "words": "a b"}, {"id": 2, "words": "c"})
    assert [(change.offset, change.index, change.key) for change in found] == [
        (0, 0, {"id": 1, "n": 0}),
        (0, 0, {"id": 1, "n": 1}),
        (1, 0, {"id": 2, "n": 0}),
    ], "they keep their position"


def test_a_function_of_a_batch_gets_all_of_it_at_once() -> None:
    found = received(rule_with("double", per_batch=True), {"id": 1}, {"id": 2})
    assert [change.after["id"] for change in found if change.after] == [1, 101, 2, 102]
    last = received(rule_with("last_of_each", per_batch=True), {"id": 1, "n": 1}, {"id": 1, "n": 2})
    assert rows(last) == [{"id": 1, "n": 2}]


def test_the_function_gets_its_own_rows() -> None:
    row = {"id": 1, "name": "ada"}
    batch = make_batch("shop.users", [row], key="id")
    transform = rule_with("upper").transforming
    assert transform is not None
    transform.applied(batch)
    assert rows(batch.changes) == [row], "a retry begins with the row of the source"


def test_statements_and_truncates_pass_by_it() -> None:
    found = received(rule_with("nothing"), {"sql": "ALTER TABLE users ADD x int"})
    assert [change.op for change in found] == ["ddl"]
    found = received(rule_with("foreign", per_batch=True), {"op": "truncate", "sql": "TRUNCATE users"})
    assert [change.op for change in found] == ["truncate"]


def test_it_may_make_a_delete_of_an_update() -> None:
    before, after = {"id": 1, "gone": 0}, {"id": 1, "gone": 1}
    [change] = received(rule_with("softly"), {"before": before, "after": after})
    assert (change.op, change.before, change.after) == ("delete", after, None)


@pytest.mark.parametrize("function", ["marked", "again"])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_row_made_of_a_delete_replaces_no_values_that_the_delete_lacks(
    function: str, is_whole: bool
) -> None:
    """Many sources send only the key of a deleted row. The target has the other values."""
    gone = {"op": "delete", "before": {"id": 1}, "after": None, "before_is_whole": is_whole}
    [change] = received(rule_with(function), gone)
    assert change.is_whole is is_whole


@pytest.mark.parametrize("lacks", [frozenset(), frozenset({"name"}), None])
def test_a_delete_made_of_a_row_is_as_whole_as_the_row(lacks: frozenset[str] | None) -> None:
    update = {"op": "update", "before": None, "after": {"id": 1, "gone": 1}, "lacks": lacks}
    [change] = received(rule_with("softly"), update)
    assert (change.op, change.before_is_whole) == ("delete", lacks == frozenset())


def test_several_rows_of_one_take_no_values_from_each_others_old_rows() -> None:
    """A target completes a new key's row from the delete before it. Here that is another line's."""
    gone = {"op": "delete", "before": {"id": 1, "words": "a b", "doc": "x"}, "after": None, "offset": 0}
    new = {"after": {"id": 2, "words": "a b"}, "lacks": frozenset({"doc"}), "index": 1, "offset": 0}
    moving = {"moves_key": True}
    found = received(rule_with("lines"), {**gone, **moving}, {**new, **moving})
    assert [change.op for change in found] == ["delete", "delete", "insert", "insert"]
    assert not any(is_move(one, other) for one, other in pairwise(found))
    found = received(rule_with("upper"), {**gone, **moving}, {**new, **moving})
    assert is_move(*found)


def test_a_column_that_it_sets_is_not_lacking_any_more() -> None:
    update = {"op": "update", "before": None, "after": {"id": 1}, "lacks": frozenset({"told", "name"})}
    [change] = received(rule_with("tell_all"), update)
    assert change.lacks == {"name"}


# ---- with the other rules


def test_it_comes_after_the_filter_and_before_the_columns() -> None:
    rule = rule_with(
        "upper", filter="name = 'ada'", columns={"rename": {"name": "who"}, "add": {"t": "table"}}
    )
    found = received(rule, {"id": 1, "name": "ada"}, {"before": {"id": 2, "name": "ada"}, "after": None})
    assert [(change.op, change.before, change.after) for change in found] == [
        ("insert", None, {"id": 1, "who": "ADA", "t": "users"}),
        ("delete", {"id": 2, "who": "ADA"}, None),
    ]
    [gone] = received(rule, {"before": {"id": 2, "name": "ada"}, "after": {"id": 2, "name": "bob"}})
    assert (gone.op, gone.before) == ("delete", {"id": 2, "who": "ADA"}), "it sees rows that leave the filter"


HIDING: list[dict[str, Any]] = [
    {"exclude": ["email"]},
    {"include": ["id", "name", "told"]},
    {"mask": {"email": "hash"}},
    {"mask": {"EMAIL": "redact"}},
    {"mask": {"email": "null"}},
    {"mask": {"email": {"partial": {"first": 1}}}},
]


@pytest.mark.parametrize("columns", HIDING)
@pytest.mark.parametrize("deletes", ["apply", "mark", "ignore"])
def test_what_the_columns_hide_is_out_of_its_reach(columns: dict[str, Any], deletes: str) -> None:
    rule = rule_with("tell_all", columns=columns, deletes=deletes)
    before = {**ADA, "email": "old@x"}
    change = {"before": before, "after": ADA, "sql": None}
    [found] = received(rule, change)
    assert "@x" not in repr((found.before, found.after))
    assert found.after is not None
    assert "ada" in found.after["told"], "it sees the other columns"


def test_the_statement_of_a_row_is_hidden_too() -> None:
    """It contains the values of all columns."""
    row_functions.SEEN.clear()
    rule = rule_with("note", columns={"exclude": ["email"]})
    assert rule.transforming is not None
    [change] = make_batch("shop.users", [{"id": 1}], key="id").changes
    batch = Batch(
        "shop.users", [replace(change, sql="UPDATE users SET email = 'ada@x'")], database="shop", name="users"
    )
    [found] = rule.transforming.applied(batch)[0]
    assert (row_functions.SEEN[0].sql, found.sql) == (None, None)


def test_what_it_does_not_see_is_masked_afterwards() -> None:
    rule = rule_with("upper", columns={"mask": {"email": "hash"}})
    [found] = received(rule, {"before": {**ADA, "email": "old@x"}, "after": ADA})
    assert found.after == {**ADA, "name": "ADA", "email": hashed("ada@x")}
    assert found.before == {**ADA, "name": "ADA", "email": hashed("old@x")}


def test_a_hidden_key_comes_back_too() -> None:
    rule = rule_with("upper", columns={"mask": {"email": "hash"}})
    [found] = received(rule, {"before": ADA, "after": None}, key="email")
    assert found.key == {"email": hashed("ada@x")}


def test_the_rows_of_a_changed_operation_keep_their_hidden_columns() -> None:
    rule = rule_with("softly", columns={"mask": {"email": "redact"}})
    [found] = received(rule, {"id": 1, "gone": 1, "email": "ada@x"})
    assert found.before == {"id": 1, "gone": 1, "email": "***"}


@pytest.mark.parametrize(("function", "email"), [("softly", None), ("gone_as_it_was", "ada@x")])
def test_a_delete_made_of_an_update_has_the_hidden_values_of_its_own_row(
    function: str, email: str | None
) -> None:
    """A source may clear a row as it marks it."""
    rule = rule_with(function, columns={"mask": {"email": "hash"}}, deletes="mark")
    rows_ = [{"id": 1, "gone": gone, "email": one} for gone, one in ((0, "ada@x"), (1, None))]
    [found] = received(rule, {"before": rows_[0], "after": rows_[1]})
    assert (found.after or {})["email"] == (email and hashed(email))
    [again] = received(rule, {"before": {**rows_[1], "email": "ada@x"}, "after": rows_[1]})
    assert (again.after or {})["email"] is None


def test_deletes_are_marked_after_it() -> None:
    row_functions.SEEN.clear()
    [found] = received(rule_with("note", deletes="mark"), {"before": {"id": 1}, "after": None})
    assert [change.op for change in row_functions.SEEN] == ["delete"]
    assert (found.op, set(found.after or ())) == ("update", {"id", "deleted_at"})


def test_a_value_that_the_columns_refuse_is_its_rows_own_fault() -> None:
    rule = rule_with("upper", columns={"cast": {"name": "integer"}})
    with pytest.raises(Rejected, match="column name: a value cannot be cast to bigint") as refused:
        received(rule, {"id": 1, "name": "7"}, {"id": 2, "name": "ada"})
    assert refused.value.at == 1
    assert "ADA" not in str(refused.value)


# ---- what it may not return

WRONG = {
    "nothing": "returned NoneType, and not a Change or a list ([] leaves the change out)",
    "text": "returned str, and not a Change or a list",
    "number": "returned int, and not a Change or a list",
    "row_of_pairs": "returned a change whose after is no dict",
    "keys_of_a_list": "returned a change whose key_columns is no tuple",
    "lacks_of_a_list": "returned a change whose lacks is no frozenset",
    "row": "returned dict, and not a Change or a list",
    "row_or_empty": "returned dict, and not a Change or a list",
    "empty_text": "returned str, and not a Change or a list",
    "moved": "returned a change with another position",
    "other_index": "returned a change with another position",
    "other_transaction": "changed the transaction of a change",
    "as_statement": "returned a change with op ddl",
    "as_delete": "returned a change with op delete, which does not fit its before and after",
    "unlike": "made several changes of one, and they differ in key_columns or types",
}


@pytest.mark.parametrize("function", WRONG)
def test_a_wrong_answer_is_refused_with_its_place(function: str) -> None:
    with pytest.raises(Rejected, match=re.escape(f"{function} {WRONG[function]}")) as refused:
        received(rule_with(function), {"sql": "ALTER TABLE users ADD x int"}, {"id": 1})
    assert refused.value.at == 1


@pytest.mark.parametrize("function", ["backwards", "foreign"])
def test_a_batch_keeps_its_positions_and_their_order(function: str) -> None:
    with pytest.raises(Rejected, match="returned a change with another position, or not in their order"):
        received(rule_with(function, per_batch=True), {"id": 1}, {"id": 2})


def test_a_batch_is_no_answer() -> None:
    with pytest.raises(Rejected, match="row_functions:the_batch returned Batch, and not a Change or a list"):
        received(rule_with("the_batch", per_batch=True), {"id": 1})


def test_an_update_has_one_key() -> None:
    update = {"before": {"id": "A"}, "after": {"id": "A", "n": 1}}
    [found] = received(rule_with("lower_key"), update)
    assert (found.before, found.after) == ({"id": "a"}, {"id": "a", "n": 1})
    with pytest.raises(Rejected, match="one key in before and another in after: change both in the same way"):
        received(rule_with("lower_new_key"), update)


@pytest.mark.parametrize("op", ["update", "delete"])
def test_a_change_says_which_row_had_its_key(op: str) -> None:
    """Without the old row, another row's values would stay under the former key. NULL may be a filler."""
    row, rule = {"tenant": 1, "id": 7}, rule_with("with_tenant")
    change = {"op": op, "after": row if op == "update" else None, "before_is_whole": False}
    for before in (*([None] if op == "update" else []), {"id": 7}, {"id": 7, "tenant": None}):
        with pytest.raises(Rejected, match="a row without the key column tenant; an old row"):
            received(rule, {**change, "before": before})
    [found] = received(rule, {**change, "before": row})
    assert found.key == row
    [found] = received(rule, {"op": "snapshot", "after": row})
    assert found.key == row
    if op == "update":
        [found] = received(rule_with("lower_key"), {**change, "before": None})
        assert found.key == {"id": "7"}, "the source's key has not changed"


def test_an_old_row_that_it_makes_has_no_new_values() -> None:
    update = {"op": "update", "before": None, "after": {"id": 1, "email": "new@x"}}
    [found] = received(rule_with("with_old_row", columns={"mask": {"email": "redact"}}), update)
    assert (found.before, found.after) == ({"id": 1}, {"id": 1, "email": "***"})


def test_it_makes_no_delete_if_deletes_are_ignored() -> None:
    before, after = {"id": 1, "gone": 0}, {"id": 1, "gone": 1}
    assert received(rule_with("softly", deletes="ignore"), {"before": before, "after": after}) == []


@pytest.mark.parametrize("change", [{"id": 1}, {"before": {"id": 1}, "after": None}])
def test_a_row_has_the_columns_of_its_key(change: dict[str, Any]) -> None:
    """Without them, all rows would be one in a target."""
    with pytest.raises(Rejected, match="returned a row without the key column id"):
        received(rule_with("without_id"), change)
    assert received(rule_with("without_id"), change, key=None)


@pytest.mark.parametrize("function", ["lower_key", "lines"])
def test_in_row_order_rows_keep_their_keys(function: str) -> None:
    row = {"id": "A", "words": "a b"}
    assert received(rule_with(function), row)
    with pytest.raises(Rejected, match="or columns changed a key, but lanes"):
        received(rule_with(function), row, by_row=True)
    assert received(rule_with("upper"), row, by_row=True)


# ---- what it may raise


def test_its_errors_say_that_it_was_the_transform() -> None:
    with pytest.raises(RuntimeError, match="transform row_functions:fails: KeyError: 'no such country'"):
        received(rule_with("fails"), {"id": 7})
    with pytest.raises(RuntimeError, match="PartialFailure"):
        received(rule_with("says_done"), {"id": 7}, {"id": 8})
    with pytest.raises(Rejected, match="transform row_functions:rejects: no 7") as refused:
        received(rule_with("rejects"), {"id": 1}, {"id": 7})
    assert refused.value.at == 1
    with pytest.raises(Rejected, match="no 7") as refused:
        received(rule_with("rejects_in_batch", per_batch=True), {"id": 1}, {"id": 7})
    assert refused.value.at == 1
    with pytest.raises(StopWorker, match="no licence"):
        received(rule_with("stops"), {"id": 1})
    with pytest.raises(StopWorker, match="returned a generator, which has not run"):
        received(rule_with("lazily"), {"id": 1})


def test_what_it_asks_is_not_the_handlers_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROW_FUNCTIONS_FILE", "/nowhere")
    with pytest.raises(TargetUnavailable, match="the lookup is away") as away:
        received(rule_with("waits"), {"id": 1})
    assert (away.value.others_go_on, away.value.retry_after) == (True, 0.01)


# ---- the configuration


def test_the_short_form_is_the_function() -> None:
    [short] = configured({"transform": "row_functions:upper"}).tables
    assert short.transform is not None
    assert (short.transform.function, short.transform.per_batch) == ("row_functions:upper", False)
    assert short.is_as(rule_with("upper"))
    assert not short.is_as(rule_with("upper", per_batch=True))
    assert not short.shows_as(rule_with("fails"))


def test_another_process_makes_it_again() -> None:
    """It finds the function in the configuration's folder, and has the secrets of its masks."""
    keys = {"transform": "row_functions:upper", "columns": {"mask": {"email": "hash"}}}
    program = (
        "import pickle, sys; rule = pickle.load(sys.stdin.buffer); from handlers.testing import make_batch; "
        f"batch = make_batch('shop.users', [{ADA!r}], key='id'); "
        "print(rule.transforming.applied(batch)[0][0].after)"
    )
    made = configured(keys)
    made.read_from(Path(row_functions.__file__).parent / "shop.yaml", made.secrets)
    for found in (made.tables[0], pickle.loads(pickle.dumps(made)).tables[0]):
        run = subprocess.run(
            [sys.executable, "-c", program], input=pickle.dumps(found), capture_output=True, check=True
        )
        assert literal_eval(run.stdout.decode()) == {**ADA, "name": "ADA", "email": hashed("ada@x")}


@pytest.mark.parametrize("function", ["upper", None])
def test_a_row_that_never_matched_is_not_marked(function: str | None) -> None:
    """A mark would create it."""
    rule = rule_with("upper", filter="id > 1", deletes="mark")
    changes = [{"id": 1}, {"before": {"id": 1}, "after": None}, {"before": {"id": 2}, "after": None}]
    assert [change.op for change in received(rule, *changes)] == ["delete", "update"]


def test_a_ghost_table_has_the_transform_of_its_table() -> None:
    made: Configuration = configured(
        {"transform": "row_functions:upper"}, {"match": "shop.*"}, {"match": "*.*"}
    )
    assert made.rule_for("shop._users_gho") is made.tables[0]
    assert made.rule_for("shop._orders_gho") is made.tables[1]


def test_batches_without_results_are_not_passed_on() -> None:
    class Never:
        def handle(self, batch: Batch) -> None:
            raise AssertionError(batch)

    rule = rule_with("without_drafts")
    batch = make_batch("shop.users", [{"id": 1, "name": "draft"}], key="id")
    passed(Never(), batch, rule.transforming, by_row=False)  # type: ignore[arg-type]
