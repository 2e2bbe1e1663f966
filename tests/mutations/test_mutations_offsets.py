"""Each defect in what is remembered of partitions, and in how they come and go, is caught by a test."""

from __future__ import annotations

from pathlib import Path

import pytest
from forked_pytest import ForkedPytest
from mutant import mutant, run_tests, verdict
from mutation_cases import cases
from patching import Mutation

pytestmark = pytest.mark.long


@pytest.mark.parametrize("mutation", cases("offsets"))
def test_a_defect_of_offsets_is_caught(mutation: Mutation, copy: Path, forked_pytest: ForkedPytest) -> None:
    mutant(mutation, copy)
    assert not verdict(mutation, run_tests(mutation.caught_by, copy, forked_pytest))
