"""How fast a worker is, what a drain would cost now, and the last hour of each table."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import msgspec
import pytest
from example_worker import status_at
from test_troubles import calm

from offsets.metadata import decode, encode, left_out
from offsets.types import Checkpoint, OffsetRange, count_of
from worker.observing.overview.figures import (
    PaceMeter,
    caught_up_seconds,
    drain_cost,
    drain_seconds,
    outlook,
)
from worker.observing.overview.timeline import FIELDS, TableHours
from worker.observing.overview.troubles import troubles
from worker.observing.status import Pace, WorkerStatus


def queued(records: int, pace: Pace | None) -> WorkerStatus:
    status = calm()
    lanes = [msgspec.structs.replace(each, queued_records=0, drain_seconds=0.0) for each in status.lanes]
    lanes[0] = msgspec.structs.replace(lanes[0], queued_records=records, drain_seconds=7.5)
    return msgspec.structs.replace(status, lanes=lanes, pace=pace)


def test_the_pace_is_the_mean_of_the_last_minute() -> None:
    meter = PaceMeter()
    assert meter.now() is None
    for number in range(30):
        meter.add(5.0 * number, 1_000 * number, 50_000 - 100 * number, 4.5 * number)
        assert (meter.now() is None) == (number < 2), "ten seconds are the least"
    assert meter.now() == Pace(rate=200.0, lag_growth=-20.0, waiting=0.9)
    meter.add(150.0, 30_000, None, 135.0)
    assert meter.now() == Pace(rate=200.0, lag_growth=None, waiting=0.9)


def test_a_lag_is_caught_up_in_time_or_never_unless_it_is_what_is_always_on_its_way() -> None:
    status = calm()
    status = msgspec.structs.replace(
        status, partitions=[msgspec.structs.replace(each, lag=1_000) for each in status.partitions]
    )

    def told(pace: Pace | None) -> float | None:
        return caught_up_seconds(msgspec.structs.replace(status, pace=pace))

    assert told(Pace(rate=100.0, lag_growth=-30.0)) == 100
    assert told(Pace(rate=100.0, lag_growth=0.0)) == told(Pace(rate=0.0, lag_growth=5.0)) == math.inf
    assert told(Pace(rate=100.0, lag_growth=-1.5)) == math.inf, "it may as well grow"
    assert told(Pace(rate=300.0, lag_growth=0.0)) is None, "ten seconds of work"
    assert told(Pace(rate=100.0, lag_growth=None)) is told(None) is None
    assert outlook(calm()) == ""


@pytest.mark.parametrize(
    ("finished", "lags"),
    [
        ([0] * 13, [0] * 13),
        ([0] * 11 + [0, 1], [0] * 11 + [1, 0]),
        ([0] * 12 + [20_000], [0] * 11 + [1_000_000, 980_000]),
        ([0] * 12 + [60], [5 * n % 60 for n in range(13)]),
    ],
    ids=["idle", "one record, not committed yet", "a burst", "batch.max_wait of a minute"],
)
def test_a_lag_that_was_normal_within_the_last_minute_has_no_outlook_yet(
    finished: list[int], lags: list[int]
) -> None:
    """A quiet worker with one uncommitted record would else be said to be never caught up."""
    meter = PaceMeter()
    for number, (count, lag) in enumerate(zip(finished, lags, strict=True)):
        meter.add(5.0 * number, count, lag, 0.0)
    pace = meter.now()
    assert pace is not None
    assert pace.lag_growth is None
    status = msgspec.structs.replace(calm(), pace=pace)
    first, *others = status.partitions
    partitions = [msgspec.structs.replace(first, lag=max(*lags, 1)), *others]
    assert troubles(msgspec.structs.replace(status, partitions=partitions)) == []


def test_a_rebalance_begins_another_pace() -> None:
    """The lag of other partitions is no growth: it made a worker late for ever, or a late one quick."""
    meter = PaceMeter()
    for number in range(13):
        meter.add(5.0 * number, 5_000 * number, 50_000 + 100 * number, 0.0, partitions=frozenset({1, 2}))
    assert meter.now() is not None
    meter.add(65.0, 65_000, 900, 0.0, partitions=frozenset({1}))
    assert meter.now() is None
    for number in (14, 15):
        meter.add(5.0 * number, 65_000, 25_000 + 100 * number, 0.0, partitions=frozenset({1}))
    pace = meter.now()
    assert pace is not None
    assert pace.rate == 0.0


def test_a_drain_takes_as_long_as_the_longest_running_batch() -> None:
    status = queued(900, Pace(rate=300.0, lag_growth=None))
    assert drain_seconds(status) == 7.5
    assert drain_cost(status) == "drain 7.5 s"
    first, *others = status.partitions
    status = msgspec.structs.replace(
        status, partitions=[msgspec.structs.replace(first, repeated=127_000), *others]
    )
    assert drain_cost(status) == "drain 7.5 s, repeats 127,000"


@pytest.mark.parametrize(
    ("waiting", "among", "share"),
    [(1_000, 20_000, 1.0), (10_000, 200_000, 0.33), (10_000, 1_000_000, 0.21)],
)
def test_what_a_commit_has_no_room_for_is_counted(waiting: int, among: int, share: float) -> None:
    """The figures of docs/deployment.md: one table's waiting records, scattered over a partition."""
    gaps = sorted(random.Random(1).sample(range(1, among), waiting))
    ends = [0, *gaps]
    ranges = tuple(
        OffsetRange(begin + 1, end)
        for begin, end in zip(ends, [*gaps, among], strict=True)
        if end > begin + 1
    )
    checkpoint = Checkpoint(0, ranges)
    held = decode(encode(checkpoint), 0)
    assert held is not None
    assert left_out(checkpoint) == count_of(ranges) - count_of(held.ahead)
    assert 1 - left_out(checkpoint) / count_of(ranges) == pytest.approx(share, abs=0.02)


def test_a_table_has_a_point_a_minute_for_an_hour() -> None:
    now = [0.0]
    hours = TableHours(lambda: now[0], lambda: 1_000.0 + now[0])
    name = status_at(0).tables[0].table
    for second in range(0, 7_200, 5):
        now[0] = float(second)
        hours.look(lambda: status_at(now[0]).tables)
    found = [dict(zip(FIELDS, point, strict=True)) for point in hours.points(name)]
    assert len(found) == 60
    assert {later["time"] - earlier["time"] for earlier, later in pairwise(found)} == {60.0}
    assert found[-1]["finished"] - found[-2]["finished"] == 60 * 900
    assert hours.points("shop.no_such_table") == []
