"""When the newest change that came happened in its source: asked of few records, kept without them."""

from __future__ import annotations

from building import assignment, record

SECOND = 1_763_000_000_000


def test_the_newest_record_of_each_poll_tells_the_time_and_is_let_go_of() -> None:
    of = assignment()
    assert of.last_source_ms() is None
    of.came([record(0), record(1)])
    of.came([record(2), record(3)])
    assert (of.consumed, of.last_source_ms(), of.times.newest) == (4, SECOND + 3, None)
    assert of.last_source_ms() == SECOND + 3


def test_what_tells_no_time_or_an_earlier_one_changes_nothing() -> None:
    of = assignment()
    of.came([record(7)])
    assert of.last_source_ms() == SECOND + 7
    for later in (record(8, value=b"no JSON"), record(9, value=None), record(10, es=SECOND + 1)):
        of.came([later])
        assert of.last_source_ms() == SECOND + 7


def test_a_large_record_is_not_kept_until_somebody_asks() -> None:
    of = assignment()
    of.came([record(5, sql="x" * 70_000)])
    assert of.times.newest is None
    assert of.last_source_ms() == SECOND + 5


def test_a_time_that_no_calendar_has_is_not_told() -> None:
    of = assignment()
    of.came([record(7)])
    assert of.last_source_ms() == SECOND + 7
    for time_ms in (SECOND * 1_000, 10**20, 10**400):
        of.came([record(8, es=time_ms)])
        assert of.last_source_ms() == SECOND + 7
