"""How fast a worker is: when its lag will be gone, when its lanes will be empty, what a drain would cost."""

from __future__ import annotations

import math
from collections import deque

from worker.observing.overview.figures import lag_of
from worker.observing.status import Pace, WorkerStatus
from worker.observing.visible_text import count, duration

_LEAST_SECONDS = 10.0
_NORMAL_SECONDS = 10.0
"""A lag of so much work is normal: it also contains what is finished and not yet committed."""

_NOISE = 0.02
"""A lag that shrinks by less of the rate may as well grow: it is measured at two moments."""


class PaceMeter:
    """Measures over the last minute. One thread adds every five seconds, any thread reads."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int | None, float]] = deque(maxlen=13)
        self._partitions: object = ()

    def add(self, now: float, finished: int, lag: int | None, waited: float, partitions: object = ()) -> None:
        """`finished`: records so far; `lag`: of all partitions; `waited`: seconds so far for room. If the
        `partitions` are others than before, the measurement starts again."""
        if partitions != self._partitions:
            self._partitions = partitions
            self._seen.clear()
        self._seen.append((now, finished, lag, waited))

    def now(self) -> Pace | None:
        seen = self._seen.copy()
        seconds = seen[-1][0] - seen[0][0] if seen else 0.0
        if seconds < _LEAST_SECONDS:
            return None
        (_, finished, lag, waited), (_, finished_now, lag_now, waited_now) = seen[0], seen[-1]
        rate, growth = (finished_now - finished) / seconds, None
        lags = [each for _, _, each, _ in seen if each is not None]
        # If the lag was normal meanwhile, this one belongs to later records.
        if lag is not None and lag_now is not None and min(lags) > _NORMAL_SECONDS * rate:
            growth = round((lag_now - lag) / seconds, 3)
        return Pace(
            rate=round(rate, 3),
            lag_growth=growth,
            waiting=round((waited_now - waited) / seconds, 3),
        )


def caught_up_seconds(status: WorkerStatus) -> float | None:
    """Return in how many seconds the lag is gone at this rate; infinity: never. None: it is normal, or not
    known."""
    lag, pace = lag_of(status), status.pace
    if not lag or pace is None or pace.lag_growth is None or lag <= _NORMAL_SECONDS * pace.rate:
        return None
    shrinks = pace.lag_growth < -_NOISE * pace.rate
    return lag / -pace.lag_growth if shrinks else math.inf


def outlook(status: WorkerStatus) -> str:
    """Say when the lag will be gone. Empty: there is nothing to say."""
    seconds = caught_up_seconds(status)
    if seconds is None:
        return ""
    when = "never caught up" if seconds == math.inf else f"caught up in about {duration(seconds)}"
    return f"{when} at this rate"


def empty_seconds(status: WorkerStatus) -> float | None:
    """Return in how many seconds the queued records are finished at this rate; infinity: never."""
    queued = sum(lane.queued_records for lane in status.lanes)
    if not queued or status.pace is None:
        return None if queued else 0.0
    return queued / status.pace.rate if status.pace.rate else math.inf


def drain_seconds(status: WorkerStatus) -> float:
    """Return how long a stop would take now: until the longest running batch ends."""
    return max((lane.drain_seconds for lane in status.lanes), default=0.0)


def repeated_records(status: WorkerStatus) -> int:
    return sum(each.repeated for each in status.partitions)


def drain_cost(status: WorkerStatus) -> str:
    repeated = repeated_records(status)
    return f"drain {duration(drain_seconds(status))}" + (f", repeats {count(repeated)}" if repeated else "")
