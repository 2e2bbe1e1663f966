"""More tables than a worker keeps."""

from __future__ import annotations

from typing import Any

from integration.checkers import NeverTwoAtOnce, NothingLost, NothingTwice, TableOrder
from integration.process import eventually
from integration.stage import Stage

from worker.running.status_report import SHOWN_TABLES
from worker.units.table_book import KEPT_TABLES

TABLES, ROUNDS = KEPT_TABLES + 3_000, 2


def kept(status: dict[str, Any]) -> int:
    return len(status["tables"]) + status["tables_omitted"]


def test_tables_that_come_again_after_they_were_let_go_of_lose_nothing_and_stay_in_order(
    stage: Stage,
) -> None:
    source = stage.source()
    for _ in range(ROUNDS):
        for number in range(TABLES):
            source.insert(f"t{number}")
    source.flush()
    worker = stage.worker().start()
    stage.wait_rows(TABLES * ROUNDS)
    stage.wait_committed_to_the_end()
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwice(), NeverTwoAtOnce())
    eventually(lambda: worker.status()["finished_records"] == TABLES * ROUNDS)
    eventually(
        lambda: kept(worker.status()) <= KEPT_TABLES + KEPT_TABLES // 10, what="those at rest are let go of"
    )
    source.insert("once_more")
    source.flush()
    stage.wait_rows(TABLES * ROUNDS + 1)
    # The worker may repeat an earlier status for a moment: this one costs a while.
    eventually(
        lambda: worker.status()["tables"][0]["table"] == "shop.once_more",
        what="the last one used is shown first",
    )
    assert len(worker.status()["tables"]) == SHOWN_TABLES
    eventually(
        lambda: worker.metric("binlane_records_finished_total") == TABLES * ROUNDS + 1,
        what="each record is counted once",
    )
    assert worker.metric("binlane_records_finished_total", table="__other__") > 2 * 12_000
