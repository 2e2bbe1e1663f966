"""Format numbers and text from other systems for a terminal."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

# Letters and marks that show nothing: one name could pose as another.
_BLANK = "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"


def count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def size(value: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for limit, unit, name in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds // 86_400:.0f} d"


def age(moment: str | None, now: datetime) -> str:
    """Format how long ago an ISO 8601 moment was, in whole seconds, minutes, hours or days."""
    if moment is None:
        return "none yet"
    seconds = max(0, round((now - datetime.fromisoformat(moment)).total_seconds()))
    return f"{seconds} s ago" if seconds < 10 else f"{duration(seconds)} ago"


def moment(milliseconds: float | None) -> datetime | None:
    """Return the UTC time for milliseconds since 1970; None if there are none or no calendar has it."""
    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def printable(text: str) -> str:
    """Put text on one line without control characters: names and errors come from other systems."""
    return "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(text.split())
    )


def visible(text: str, *, lines: bool = False) -> str:
    """Write control characters and blanks as JSON escapes. With `lines`, line breaks and tabs stay.

    >>> print(visible("a\x1b[2J\u202e b\\n"))
    a\\u001b[2J\\u202e b\\n
    """
    shown = "".join(
        char if char.isprintable() or (lines and char in "\n\t") else json.dumps(char)[1:-1] for char in text
    )
    return re.sub(_BLANK, lambda found: json.dumps(found[0])[1:-1], shown)
