"""The property that all examples have: a target holds what the model says, or the change is in an error."""

from __future__ import annotations

import sys

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from .run import Example, differences
from .targets.interface import Target

__all__ = ["check"]


def check(target: Target, examples: st.SearchStrategy[Example], *, first: int, count: int) -> None:
    """Try `count` of the examples, those of the seed `first`. Raises AssertionError with the smallest that is
    wrong."""

    found: list[list[str]] = []

    @seed(first)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(together=st.lists(examples, min_size=1, max_size=target.at_once))
    def holds(together: list[Example]) -> None:
        wrong = differences(together, target)
        if wrong and not found:
            found.append(wrong)
            sys.stderr.write(f"found one, and look for a smaller one: {wrong[-1]}\n")
        assert not wrong, "\n".join(wrong)

    holds()
