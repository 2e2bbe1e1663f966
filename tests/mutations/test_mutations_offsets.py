"""Each defect in what is remembered of partitions, and in how they come and go, is caught by a test."""

from __future__ import annotations

import pytest
from mutation_cases import cases
from patching import Mutation
from trying import Trials

pytestmark = pytest.mark.long


@pytest.mark.parametrize("mutation", cases("offsets"))
def test_a_defect_of_offsets_is_caught(mutation: Mutation, trials: Trials) -> None:
    fault, _ = trials.run(mutation)
    assert not fault
