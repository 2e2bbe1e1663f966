"""Each defect around the core that was ever found is caught by a test: formats, targets, commands, Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from forked_pytest import ForkedPytest
from mutant import mutant, run_tests, verdict
from mutation_cases import cases
from patching import Mutation

pytestmark = pytest.mark.long


@pytest.mark.parametrize("mutation", cases("edges", "spark"))
def test_a_defect_around_the_core_is_caught(
    mutation: Mutation, copy: Path, forked_pytest: ForkedPytest
) -> None:
    mutant(mutation, copy)
    assert not verdict(mutation, run_tests(mutation.caught_by, copy, forked_pytest))
