"""Mutations as parameters of tests."""

from __future__ import annotations

from typing import Any

import pytest
from patching import mutations

__all__ = ["cases"]


def cases(*subjects: str) -> list[Any]:
    """Those of these subjects, by their names, and at the end what waits; what needs a real Spark or Kafka is
    for `make soak`."""
    found = [each for subject in subjects for each in mutations(subject)]
    return [
        pytest.param(each, id=each.name, marks=[pytest.mark.soak] if each.soak else [])
        for each in sorted(found, key=lambda each: each.waits)
    ]
