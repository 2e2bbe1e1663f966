"""The public API of binlane, for users' handlers, notebooks and jobs.

`binlane.testing` tests a handler without Kafka. `binlane.spark` reads tables including unmerged rows.
"""

from binlane._before_imports import come_first, take_early_signals

take_early_signals()  # the imports below take about a second
come_first()

from handlers import (  # noqa: E402 - `handlers` is binlane's own only after come_first
    Batch,
    BeyondCalendar,
    Change,
    Handler,
    HandlerContext,
    Operation,
    PartialFailure,
    Rejected,
    StopWorker,
    TargetUnavailable,
)

__all__ = [
    "Batch",
    "BeyondCalendar",
    "Change",
    "Handler",
    "HandlerContext",
    "Operation",
    "PartialFailure",
    "Rejected",
    "StopWorker",
    "TargetUnavailable",
]
