"""Handlers apply the changes of a table to a target."""

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

__all__ = [
    "Batch",
    "Change",
    "Handler",
    "HandlerContext",
    "Operation",
    "PartialFailure",
    "Rejected",
    "StopWorker",
    "TargetUnavailable",
]
