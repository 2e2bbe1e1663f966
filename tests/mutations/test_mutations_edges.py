"""Each defect around the core that was ever found is caught by a test: formats, targets, commands, Spark."""

from __future__ import annotations

import pytest
from mutation_cases import cases
from patching import Mutation
from trying import Trials

pytestmark = pytest.mark.long


@pytest.mark.parametrize("mutation", cases("edges", "spark"))
def test_a_defect_around_the_core_is_caught(mutation: Mutation, trials: Trials) -> None:
    fault, _ = trials.run(mutation)
    assert not fault
