"""How long a failure is waited after: longer each time, and never too long to compute."""

from __future__ import annotations

from handlers.failures import pause_after


def test_a_pause_doubles_up_to_its_bound_however_many_failures_there_were() -> None:
    assert [pause_after(number, first=2.0, longest=60.0) for number in (1, 2, 3, 6)] == [2.0, 4.0, 8.0, 60.0]
    assert pause_after(5_000, first=2.0, longest=60.0) == 60.0
