"""Mutations as parameters of tests."""

from __future__ import annotations

from typing import Any

import pytest
from patching import Mutation, mutations

__all__ = ["cases"]


_ONE_IN = 96
"""So many are tried by `make test`: they prove what tests prove once more, at two seconds each."""


def cases(*subjects: str) -> list[Any]:
    """Those of these subjects, by their names, and at the end what waits. What needs a real Spark or Kafka is
    for `make soak`, and so are all others but one in ninety-six."""
    found = [each for subject in subjects for each in mutations(subject)]
    quick = [each for each in found if not each.soak and not _slow(each)]
    tried = {each.name for each in quick[::_ONE_IN]}
    return [
        pytest.param(each, id=each.name, marks=[] if each.name in tried else [pytest.mark.soak])
        for each in sorted(found, key=lambda each: each.waits)
    ]


def _slow(mutation: Mutation) -> bool:
    """A real Spark or Kafka finds it."""
    return any(test.startswith(("tests/handlers/spark", "tests/integration")) for test in mutation.caught_by)
