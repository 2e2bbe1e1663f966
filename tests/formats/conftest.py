"""Readers of Maxwell's records: fresh, and with a reader of their own for the shape of `row()`."""

from __future__ import annotations

import pytest
from maxwell_messages import ORDERS, PRACTICE, decode, knowing, row

from worker.formats.maxwell.format import Maxwell


@pytest.fixture(params=["first record", "many records"])
def maxwell(request: pytest.FixtureRequest) -> Maxwell:
    """Knows the table."""
    return _practised(knowing(ORDERS), request.param)


@pytest.fixture(params=["first record", "many records"])
def unknowing(request: pytest.FixtureRequest) -> Maxwell:
    """Knows no table."""
    return _practised(Maxwell(), request.param)


def _practised(format_: Maxwell, how_far: str) -> Maxwell:
    if how_far == "many records":
        for _ in range(PRACTICE):
            decode(row(), format_)
    return format_
