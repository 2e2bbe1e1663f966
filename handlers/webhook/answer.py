"""What an HTTP answer means for the changes that were sent."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum

__all__ = ["Verdict", "retry_after", "verdict"]


class Verdict(Enum):
    DONE = "done"
    LATER = "later"
    """The service cannot take it now; nothing is wrong with it."""
    REFUSED = "refused"
    """One of the changes is refused, whenever it is sent."""
    WRONG_ADDRESS = "wrong address"
    """Whatever is sent like this is refused: the address, the method or the credentials are wrong."""


_LATER = frozenset((408, 425, 429))
_WRONG_ADDRESS = frozenset((401, 403, 404, 405, 407, 410, 411, 421, 426, 431, 451))


def verdict(status: int) -> Verdict:
    """Of a final status, from 200 on. https://www.rfc-editor.org/rfc/rfc9110#name-status-codes

    >>> verdict(204).name, verdict(503).name, verdict(422).name, verdict(301).name
    ('DONE', 'LATER', 'REFUSED', 'WRONG_ADDRESS')
    """
    if 200 <= status < 300:
        return Verdict.DONE
    if status >= 500 or status in _LATER:
        return Verdict.LATER
    if status < 400 or status in _WRONG_ADDRESS:
        return Verdict.WRONG_ADDRESS
    return Verdict.REFUSED


def retry_after(header: str | None, now: float) -> float | None:
    """The seconds that a Retry-After header asks to wait; `now`: seconds since 1970.

    It holds seconds or an HTTP date; None for anything else.
    https://www.rfc-editor.org/rfc/rfc9110#name-retry-after

    >>> retry_after("120", 0.0), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 50.0), retry_after("soon", 0.0)
    (120.0, 10.0, None)
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            moment = parsedate_to_datetime(header)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.fromtimestamp(now, UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
