"""Times as a status tells them."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(milliseconds: float | None) -> datetime | None:
    """The time so many milliseconds after 1970, in UTC; None where there is none, or no calendar has it."""
    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
