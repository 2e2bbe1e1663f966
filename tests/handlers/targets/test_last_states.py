"""What a batch leaves of each row in targets that keep versions of whole rows."""

from __future__ import annotations

from handlers.testing import make_batch
from handlers.versioned.last_states import last_states


def test_nothing_is_left_of_a_deleted_row_whatever_the_delete_tells() -> None:
    gone = {"before": {"id": 1, "a": 1}, "after": None, "lacks": None}
    again = {"op": "update", "after": {"id": 1, "b": 2}, "lacks": None}
    batch = make_batch("shop.t", [gone, again], key="id")
    [state] = last_states(batch, lambda change: change.offset, lambda row, _: str(row["id"]), range(2))
    assert (state.row, state.whole) == ({"id": 1, "b": 2}, True)
