"""What a handler raises to say more than that a batch failed."""

from __future__ import annotations

import errno

OF_THE_DISK = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO}
    | {errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EMFILE, errno.ENFILE}
)
"""Numbers of errors that are about all files: full, gone, or read-only since it found an error."""
_MENDED_BY_HAND = 5.0
"""Seconds between two looks at what only a person mends."""


class PartialFailure(Exception):
    """Raised by a handler that applied only the first `done` changes of its batch: those count as done."""

    def __init__(self, done: int, cause: BaseException | None = None) -> None:
        super().__init__(f"{done} changes done, then: {cause!r}")
        self.done = done
        self.cause = cause
        if cause is not None:
            self.__cause__ = cause


def behind(done: int, cause: Exception) -> Exception:
    """What to raise for `cause` when the first `done` changes are applied."""
    return PartialFailure(done, cause) if done else cause


class Rejected(Exception):
    """Raised by a handler for a change that no further attempt can make fit: it is never tried again.

    `at` is its place in `batch.changes`; nothing of the batch was applied. Without `at` the batch is split
    until the change that is rejected stands alone. Then the table's `on_failure` decides about it, and the
    others go on. As the cause of a PartialFailure it means the change at `done`."""

    def __init__(self, reason: str, *, at: int | None = None) -> None:
        super().__init__(reason)
        self.at = at


class TargetUnavailable(Exception):
    """Raised by a handler whose target is down: nothing is wrong with the batch, and nothing of it was
    applied.

    The batch is tried again until the target is back, without using up its attempts; its table shows as
    blocked meanwhile. `retry_after`: seconds that the target asked to wait, if it did. `others_go_on`: only
    this table's batches wait, and the handler's other tables are handled as before."""

    def __init__(self, reason: str, *, retry_after: float | None = None, others_go_on: bool = False) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.others_go_on = others_go_on


class UnfitPlace(TargetUnavailable):
    """Raised for a table that the target does not take as it is there: no change is to blame, and the table
    waits until somebody has mended the target."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, retry_after=_MENDED_BY_HAND, others_go_on=True)


class StopWorker(Exception):
    """Raised by a handler whose means are gone for good (a dead JVM): the worker stops with exit code 1."""
