"""A handler's limit in a whole worker: over all lanes, through failures, changed without a restart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import pytest
from integration.checkers import Event, NeverTwoAtOnce, NothingLost, NothingTwice, TableOrder
from integration.process import eventually
from integration.stage import Stage
from integration.test_reload import rewrite

TABLES, RECORDS, BATCH = 12, 40, 5


class Within:
    """At no time more calls than these are inside the handlers."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def broken(self, events: Sequence[Event]) -> list[str]:
        most = most_at_once(events)
        return [f"{most} calls at once, {self.calls} allowed"] if most > self.calls else []


def most_at_once(events: Sequence[Event]) -> int:
    return max(accumulate((each["event"] == "start") - (each["event"] == "end") for each in events))


def inside(events: Sequence[Event]) -> int:
    return sum((each["event"] == "start") - (each["event"] == "end") for each in events)


@pytest.mark.parametrize("order_by", ["table", "row"])
def test_two_calls_run_at_once_in_eight_lanes_and_each_table_gets_on(stage: Stage, order_by: str) -> None:
    source = stage.source()
    for _ in range(RECORDS):
        for table in range(TABLES):
            source.insert(f"t{table}")
    source.flush()
    gate, target = stage.gate(), stage.gate("target")
    handler = stage.recording(
        row_sleep=0.002,
        hold={"shop.t0": str(target), "shop.t1": str(target)},
        fail={"shop.t3": [7]},
        fail_while=str(gate),
        partial=True,
        limit={"calls": 2},
    )
    retry = {"max_attempts": None, "initial_delay": "50ms", "max_delay": "100ms"}
    table = {"match": "*", "handlers": [handler], "retry": retry, "batch": {"max_records": BATCH}}
    worker = stage.worker(tables=[table], lanes={"count": 8, "order_by": order_by}).start()
    waiting = partial(worker.metric, "binlane_limit_waiting", handler="recording:Recording")
    eventually(lambda: inside(stage.run.events()) == 2 and waiting() >= TABLES - 2, what="the others wait")
    target.unlink()
    others = source.count - RECORDS
    eventually(lambda: stage.run.handled() >= others, within=60, what="a table that fails takes no permits")
    assert worker.metric("binlane_tables_blocked") == 1
    gate.unlink()
    eventually(lambda: stage.run.handled() == source.count, within=60)
    assert worker.metric("binlane_limit_wait_seconds_total", handler="recording:Recording") > 0
    eventually(lambda: waiting() == 0, what="nobody waits")
    assert most_at_once(stage.run.events()) == 2
    order = [TableOrder(), NeverTwoAtOnce(), NothingTwice()] if order_by == "table" else []
    stage.check(NothingLost(source.rows), Within(2), *order)
    assert worker.sigterm() == 0


def test_a_limit_changes_without_a_restart_and_the_handler_stays_open(stage: Stage) -> None:
    source = stage.source()

    def insert() -> None:
        for _ in range(RECORDS):
            for table in range(TABLES):
                source.insert(f"t{table}")
        source.flush()

    def tables(limit: dict[str, int] | None) -> list[dict[str, object]]:
        handler = stage.recording(row_sleep=0.002, **({} if limit is None else {"limit": limit}))
        return [{"match": "*", "handlers": [handler], "batch": {"max_records": BATCH}}]

    worker = stage.worker(tables=tables({"calls": 1})).start()
    for limit, calls in ({"calls": 1}, 1), ({"calls": 3}, 3), (None, 8), ({"calls": 2}, 2):
        if worker.config["tables"] != tables(limit):
            rewrite(worker, tables=tables(limit))
        mark = stage.run.mark()
        insert()
        eventually(lambda: stage.run.handled() == source.count, within=60)
        assert most_at_once(stage.run.events()[mark:]) == calls
    stage.check(NothingLost(source.rows), NothingTwice(), TableOrder())
    assert [event["event"] for event in stage.run.events()].count("open") == 1
    assert worker.sigterm() == 0
