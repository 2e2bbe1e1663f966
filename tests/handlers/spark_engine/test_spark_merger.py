"""The threads that merge, with tables whose merging the test decides."""

from __future__ import annotations

import threading
import time

from handlers.api import StopWorker
from handlers.spark.merger import Merger
from handlers.spark.options import MergeOptions
from handlers.spark.waiting import Waiting


class LostTable:
    """Waits for a Spark that is gone."""

    name = "shop.orders"
    waiting = Waiting(1, 1, 100, time.time())
    faults = 1
    fault = "Spark is gone"

    def __init__(self) -> None:
        self.tried = threading.Event()

    def merge(self) -> None:
        self.tried.set()
        raise StopWorker(self.fault)


def test_a_worker_that_lost_its_spark_need_not_wait_for_what_can_no_longer_be_merged() -> None:
    merger = Merger(MergeOptions.model_validate({"max_age": "0s", "at_close": "10m"}), threads=2)
    merger.start()
    tables = [LostTable(), LostTable()]
    for table in tables:
        merger.offer(table)
    assert tables[0].tried.wait(10)
    closing = threading.Thread(target=merger.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
