"""The first unfinished offset of a partition, and how much was fetched since."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offsets.run import Run
from offsets.tracker import OffsetTracker

POLLS = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=60), min_size=1, max_size=8)
"""For each poll how far each offset lies behind the one before it."""


@given(polls=POLLS, data=st.data(), enough=st.integers(0, 300))
def test_the_head_is_the_first_unfinished_offset_and_what_came_since_is_counted_by_polls(
    polls: list[list[int]], data: st.DataObject, enough: int
) -> None:
    tracker = OffsetTracker()
    runs: list[tuple[Run, list[int]]] = []
    last = 0
    for steps in polls:
        offsets = []
        for step in steps:
            last += step
            offsets.append(last)
        runs.append((tracker.register(offsets), offsets))
    left = [offset for _, offsets in runs for offset in offsets]
    for offset in data.draw(st.permutations(left)):
        if data.draw(st.booleans(), label="commit"):
            tracker.checkpoint()
        assert tracker.head == min(left)
        first = next(n for n, (_, offsets) in enumerate(runs) if min(left) in offsets)
        since = sum(len(offsets) for _, offsets in runs[first:])
        assert tracker.ahead(0) == since
        # Whoever only wants to know whether it is so many is told that rightly.
        assert (tracker.ahead(enough) >= enough) == (since >= enough)
        left.remove(offset)
        tracker.finish([offset])
    assert tracker.head is None
    assert tracker.ahead(0) == 0
