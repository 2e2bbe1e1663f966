"""How long to wait after a failure, and how a failure is told in one line."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

from worker.configuration import RetryRule

LONGEST_ASKED = 900.0
"""Seconds: a target that asks for a longer wait (`TargetUnavailable.retry_after`) is asked again by then."""
_LONGEST_TEXT = 500


def backoff(rule: RetryRule, attempt: int, random: Callable[[], float]) -> float:
    """Seconds to wait after the failed `attempt` (from 1): exponential with jitter, at most `max_delay`.

    `random` gives numbers from 0 to 1.
    """
    try:
        growth = rule.multiplier ** (attempt - 1)
    except OverflowError:
        growth = sys.float_info.max
    delay = min(rule.max_delay, rule.initial_delay * growth)
    return min(rule.max_delay, delay * (1 + rule.jitter * (2 * random() - 1)))


def seconds_to_wait(asked: object) -> float:
    """What a target asked for, made sensible: 0 for nothing, at most `LONGEST_ASKED`."""
    if not isinstance(asked, int | float) or math.isnan(asked):
        return 0.0
    return min(max(0.0, float(asked)), LONGEST_ASKED)


def describe(error: BaseException) -> str:
    """One line for status and log: the kind of error and its text, shortened."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """The error's own words in one line, shortened; empty if it has none."""
    try:
        text = " ".join(str(error).split())
        # The mark tells who redacts it that it is cut, perhaps within a secret.
        return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "..."
    except Exception:  # a handler's own error class may be faulty, too
        return ""
