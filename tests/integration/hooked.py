"""A handler that tells and counts what a Spark handler does, in trouble: Spark is away and merges fail."""

from __future__ import annotations

from typing import Any

from handlers import Batch, Handler, HandlerContext

__all__ = ["Hooked"]


class Hooked(Handler):
    def open(self, context: HandlerContext) -> None:
        self.metrics = context.metrics

    def handle(self, batch: Batch) -> None:
        self.metrics.count("binlane_handler_passed_over_total", handler="hooked:Hooked")

    def status(self) -> dict[str, Any]:
        # Asked at each scrape: a merge fails each time.
        self.metrics.count("binlane_spark_merges_total", result="failure")
        self.metrics.observe("binlane_spark_merge_seconds", 0.25)
        table = {"table": "shop.orders", "waiting_rows": 70, "waiting_seconds": 400.0}
        return {"spark": {"up": False}, "tables": [table]}
