"""Mutations as parameters of tests."""

from __future__ import annotations

from typing import Any

import pytest
from patching import mutations

__all__ = ["cases"]


def cases(*subjects: str) -> list[Any]:
    """Those of these subjects, by their names; what needs a real Spark or Kafka is for `make soak`."""
    return [
        pytest.param(each, id=each.name, marks=[pytest.mark.soak] if each.soak else [])
        for subject in subjects
        for each in mutations(subject)
    ]
