"""A router that notes when records were fetched, for their traces."""

from __future__ import annotations

import time
from typing import Any

from worker.fetching.routing import Router
from worker.formats.interface import Record
from worker.tracing.fetch_times import FetchTimes
from worker.units.assigned_partition import Assignment
from worker.units.delivery import Delivery

__all__ = ["TimedRouter"]


class TimedRouter(Router):
    """Once for each poll of a partition."""

    def __init__(self, *arguments: Any, fetch_times: FetchTimes, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._fetch_times = fetch_times

    def route(self, assignment: Assignment, messages: list[Record], delivery: Delivery) -> None:
        self._fetch_times.note(assignment, messages[-1].offset(), time.time_ns())
        super().route(assignment, messages, delivery)
