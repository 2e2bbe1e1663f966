"""Targets of changes: the handler interface (`api`), shared code, and one folder for each target. This
package does not depend on the worker or on offsets."""

from handlers.api import (
    Batch,
    Change,
    Handler,
    HandlerContext,
    Operation,
    PartialFailure,
    Rejected,
    StopWorker,
    TargetUnavailable,
)
from handlers.values.beyond_calendar import BeyondCalendar

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
