"""What a processor does where a transaction could not be kept whole."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from building import Scripted, record, seen, unit
from processing import BAD, NOW, Stage, raising
from structlog.testing import capture_logs

from handlers import PartialFailure

WHOLE = {"transactions": "whole", "max_records": 4}


def staged(*borders: int, **options: object) -> Stage:
    stage = Stage(**options)  # type: ignore[arg-type]
    known = stage.partition.transactions
    rows = [record(place, gtid=str(bisect_right(borders, place))) for place in range(borders[-1] + 1)]
    known.queued = known.read(rows, None)
    return stage


def test_a_cut_transaction_is_logged_and_counted() -> None:
    handler = Scripted()
    table = unit("orders", handler, batch=WHOLE)
    stage = staged(0, 6)
    stage.offer((table, range(6)))
    with capture_logs() as logs:
        stage.run(table)
    assert seen(handler) == [[0, 1, 2, 3], [4, 5]]
    [line] = [line for line in logs if line["event"] == "transaction_cut"]
    assert (line["table"], line["position"]) == ("shop.orders", "cdc.shop[0] offset 4")
    assert stage.counted('binlane_transactions_cut_total{table="shop.orders"} 1.0')


def test_whole_transactions_say_nothing() -> None:
    handler = Scripted()
    table = unit("orders", handler, batch=WHOLE)
    stage = staged(0, 3, 6)
    stage.offer((table, range(6)))
    with capture_logs() as logs:
        stage.run(table)
    assert seen(handler) == [[0, 1, 2], [3, 4, 5]]
    assert not logs


@pytest.mark.parametrize("done", range(5))
def test_a_part_of_a_transaction_is_not_finished(done: int) -> None:
    """A restart begins with all of it."""
    handler = Scripted(raising(PartialFailure(done, RuntimeError("away"))))
    table = unit("orders", handler, batch=WHOLE, retry=NOW | {"max_attempts": 1})
    stage = staged(0, 2, 4)
    stage.offer((table, range(4)))
    stage.run(table)
    checkpoint = stage.checkpoint()
    assert checkpoint is not None
    assert checkpoint.offset % 2 == 0


def test_whole_transactions_before_an_undecodable_record_are_handled_without_the_cut_one() -> None:
    handler = Scripted()
    table = unit("orders", handler, batch=WHOLE)
    stage = staged(0, 2, 4)
    stage.offer((table, [0, 1, 2, BAD]))
    stage.run(table)
    assert seen(handler)[0] == [0, 1]
