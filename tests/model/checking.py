"""The property that all examples have: a target holds what the model says, or the change is in an error."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from .run import Example, differences
from .targets.interface import Target

__all__ = ["check"]


def check(target: Target, examples: st.SearchStrategy[Example], *, first: int, count: int) -> None:
    """Try `count` of the examples, those of the seed `first`. Raises AssertionError with the smallest that is
    wrong."""

    @seed(first)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(example=examples)
    def holds(example: Example) -> None:
        wrong = differences(example, target)
        assert not wrong, "\n".join([f"{example}", *wrong])

    holds()
