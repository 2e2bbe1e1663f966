"""What is garbage in circles does not stay for ever, though Python is told to look for it seldom."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from building import Clock

from worker.running.process import Garbage


class Circle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_what_has_lived_long_is_found_within_a_minute() -> None:
    clock = Clock()
    garbage = Garbage(clock)
    garbage.settle()
    circle = Circle()
    gc.collect(0)
    gc.collect(1)  # among the oldest now
    known = weakref.ref(circle)
    del circle
    for _ in range(30):
        clock.now += 1
        garbage.look()
    assert known() is not None
    for _ in range(31):
        clock.now += 1
        garbage.look()
    assert known() is None


def test_what_was_there_at_the_start_is_not_looked_at_again() -> None:
    clock = Clock()
    garbage = Garbage(clock)
    circle = Circle()
    known = weakref.ref(circle)
    garbage.settle()
    del circle
    clock.now += 61
    garbage.look()
    assert known() is not None
