"""Exceptions with which a handler reports more than that a batch failed."""

from __future__ import annotations

import errno

OF_THE_DISK = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO}
    | {errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EMFILE, errno.ENFILE}
)
"""Error numbers that concern all files: the disk is full, gone, or read-only after it found an error."""
_MENDED_BY_HAND = 5.0
"""Seconds between two attempts if only a person can fix the cause."""


def pause_after(failures: int, *, first: float, longest: float) -> float:
    """Return the seconds to wait after this many failures in a row: `first`, then twice as long each time."""
    return min(longest, first * 2.0 ** min(failures - 1, 30))


class PartialFailure(Exception):
    """Raised by a handler that applied only the first `done` changes of its batch: those are finished."""

    def __init__(self, done: int, cause: BaseException | None = None) -> None:
        super().__init__(f"{done} changes done, then: {cause!r}")
        self.done = done
        self.cause = cause
        if cause is not None:
            self.__cause__ = cause


def behind(done: int, cause: Exception) -> Exception:
    """Return the exception to raise for `cause` when the first `done` changes are applied."""
    return PartialFailure(done, cause) if done else cause


class Rejected(Exception):
    """Raised by a handler for a change that cannot succeed. It is never retried.

    `at` is the change's index in `batch.changes`. Nothing of the batch was applied. Without `at`, the batch
    is split until the rejected change stands alone. The table's `on_failure` then decides about that change,
    and the others continue. As the cause of a PartialFailure, it means the change at index `done`."""

    def __init__(self, reason: str, *, at: int | None = None) -> None:
        super().__init__(reason)
        self.at = at


class TargetUnavailable(Exception):
    """Raised by a handler if its target is down: the batch is valid, and nothing was applied.

    The batch is retried until the target is back, without using up its attempts. Its table shows as blocked
    meanwhile. `retry_after`: the seconds that the target asked to wait, if any. `others_go_on`: only this
    table's batches wait, and the handler's other tables continue."""

    def __init__(self, reason: str, *, retry_after: float | None = None, others_go_on: bool = False) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.others_go_on = others_go_on


class UnfitPlace(TargetUnavailable):
    """Raised if the target's table, as it is, cannot take any change. The table waits until a person has
    corrected the target."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, retry_after=_MENDED_BY_HAND, others_go_on=True)


class StopWorker(Exception):
    """Raised by a handler that can never work again (its JVM died). The worker stops with exit code 1."""


class RowsLost(Exception):
    """The child process with the batch's rows has ended (see `handlers.rows.on_rows`). Let it pass."""


class AskAgain(Exception):
    """Raised by a handler that accepted the batch but does not know yet whether it is finished.

    The worker passes the same batch again after `seconds`, and the result of that call counts. This is not a
    failure: it uses up no attempt, and the thread serves other tables meanwhile. The batch may never be
    passed again, because its partition may be revoked or the worker may stop."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the answer is due in {seconds:.3f} s")
        self.seconds = seconds
