"""How long to wait after a failure, and the description of an error in one line."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

from worker.configuration import RetryRule

LONGEST_ASKED = 900.0
"""Seconds. The longest wait that a target can request (`TargetUnavailable.retry_after`)."""
_LONGEST_TEXT = 500


def backoff(rule: RetryRule, attempt: int, random: Callable[[], float]) -> float:
    """Return the seconds to wait after the failed `attempt` (from 1): exponential, jittered, bounded.

    `random` returns numbers from 0 to 1."""
    try:
        growth = rule.multiplier ** (attempt - 1)
    except OverflowError:
        growth = sys.float_info.max
    delay = min(rule.max_delay, rule.initial_delay * growth)
    return min(rule.max_delay, delay * (1 + rule.jitter * (2 * random() - 1)))


def seconds_to_wait(asked: object) -> float:
    """Limit the wait that a target requested: 0 for nothing, at most `LONGEST_ASKED`."""
    if not isinstance(asked, int | float) or math.isnan(asked):
        return 0.0
    return min(max(0.0, float(asked)), LONGEST_ASKED)


def describe(error: BaseException) -> str:
    """Return one line for status and log: the kind of error and its text, shortened."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """Return the error's own text in one line, shortened. Empty if it has none."""
    try:
        text = " ".join(str(error).split())
        # The mark shows the redaction that the text is cut, perhaps within a secret.
        return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "..."
    except Exception:  # a handler's own error class may fail too
        return ""
