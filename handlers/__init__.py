"""What changes are applied to: the interface of a handler (`api`), what all handlers share, and a folder
for each target. Nothing here knows of the worker or of offsets."""

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
from handlers.beyond_calendar import BeyondCalendar

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
