"""What a batch leaves of each row in targets that keep versions of whole rows."""

from __future__ import annotations

from msgspec.structs import replace

from handlers.testing import make_batch
from handlers.versioned.row_states import last_states


def test_nothing_is_left_of_a_deleted_row_whatever_the_delete_tells() -> None:
    gone = {"before": {"id": 1, "a": 1}, "after": None, "lacks": None}
    again = {"op": "update", "after": {"id": 1, "b": 2}, "lacks": None}
    batch = make_batch("shop.t", [gone, again], key="id")
    [state] = last_states(batch, lambda change: change.offset, lambda row, _: str(row["id"]), range(2))
    assert (state.row, state.whole) == ({"id": 1, "b": 2}, True)


def test_a_row_of_several_changes_has_the_types_of_each_value() -> None:
    first = {"op": "update", "after": {"id": 1, "a": 1}, "lacks": None}
    second = {"op": "update", "after": {"id": 1, "b": 2}, "lacks": None}
    batch = make_batch("shop.t", [first, second], key="id")
    types = ({"id": "int", "a": "bigint"}, {"id": "int", "b": "date"})
    batch.changes = [replace(change, types=each) for change, each in zip(batch.changes, types, strict=True)]
    [state] = last_states(batch, lambda change: change.offset, lambda row, _: str(row["id"]), range(2))
    assert state.types == {"id": "int", "a": "bigint", "b": "date"}
