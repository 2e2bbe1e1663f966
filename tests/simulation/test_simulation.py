"""Whole workers in 150 simulated runs; `make simulate` has more. A failure names its seed: replay it with
`python -m tests.simulation --seed N`."""

from __future__ import annotations

import pytest

from .run import run_all

_SEEDS, _CHUNKS = 80, 4


@pytest.mark.parametrize("chunk", range(_CHUNKS))
def test_no_promise_is_broken_in_any_run(chunk: int) -> None:
    results = run_all(range(chunk * _SEEDS // _CHUNKS, (chunk + 1) * _SEEDS // _CHUNKS))
    assert {each.seed: each.violations for each in results if each.violations} == {}
    assert sum(each.handled for each in results) > 1000
