"""The public API of binlane, for users' handlers, notebooks and jobs.

`read` returns a table of the `spark` handler as Arrow, including unmerged rows. `binlane.spark` reads such
tables with Spark. `binlane.testing` tests a handler without Kafka.
"""

from binlane._before_imports import come_first, leave_out_rich, take_early_signals

take_early_signals()  # the imports below take about a second
leave_out_rich()
come_first()

from binlane.reading import read  # noqa: E402 (as above)
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
    "read",
]
