"""The public face of binlane: what handlers of one's own, notebooks and jobs import.

`binlane.testing` tests a handler without Kafka; `binlane.spark` reads tables as they are this moment.
"""

from binlane._early_stop import take_early_signals
from binlane._packages import come_first

take_early_signals()  # what follows takes about a second
come_first()

from handlers import (  # noqa: E402 - only now is `handlers` binlane's own, whatever lies on the path
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
