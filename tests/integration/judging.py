"""A handler that applies a batch whole or not at all, and refuses what it is told to refuse.

It writes the same lines as the recording handler, so that a run's judges understand both.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from event_lines import EventLines, seq_of

from handlers import Batch, Change, PartialFailure, Rejected, TargetUnavailable

__all__ = ["Judging"]


class Judging(EventLines):
    """Applies batches, unless a row of them is refused or the target is away.

    file: where to.
    reject: {table: [seq, ...]}, or {table: "all"}; these rows are refused, as long as the file `reject_while`
        exists (always, if not set).
    how: `at`, `alone`, `partly`: Rejected with the row's place, without it, as a partial failure's cause;
        `error`: any other exception.
    down_while: TargetUnavailable as long as this file exists.
    stuck_while: every call waits as long as this file exists.
    """

    def __init__(
        self,
        *,
        file: str,
        reject: dict[str, Any] | None = None,
        reject_while: str | None = None,
        how: str = "at",
        down_while: str | None = None,
        stuck_while: str | None = None,
    ) -> None:
        super().__init__(file)
        self._reject = reject or {}
        self._reject_while = Path(reject_while) if reject_while else None
        self._how = how
        self._down = Path(down_while) if down_while else None
        self._stuck = Path(stuck_while) if stuck_while else None

    def _apply(self, batch: Batch, names: dict[str, Any]) -> None:
        while self._stuck is not None and self._stuck.exists():
            time.sleep(0.02)
        if self._down is not None and self._down.exists():
            self._write(event="down", **names)
            raise TargetUnavailable("connection refused")
        refuses = [self._refuses(batch.table, change) for change in batch.changes]
        refused = refuses.index(True) if True in refuses else None
        if refused is None:
            self._record(batch.changes, names)
            return
        reason = f"row {seq_of(batch.changes[refused])} of {batch.table} is refused"
        if self._how == "at":
            raise Rejected(reason, at=refused)
        if self._how == "alone":
            raise Rejected(reason)
        if self._how == "partly":
            self._record(batch.changes[:refused], names)
            raise PartialFailure(refused, Rejected(reason))
        raise RuntimeError(reason)

    def _refuses(self, table: str, change: Change) -> bool:
        if self._reject_while is not None and not self._reject_while.exists():
            return False
        rows = self._reject.get(table, ())
        return rows == "all" or seq_of(change) in rows
