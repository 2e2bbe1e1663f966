"""Each defect of the core that was ever found, and each trap it was built around, is caught by a test."""

from __future__ import annotations

import pytest
from mutation_cases import cases
from patching import Mutation
from trying import Trials

pytestmark = pytest.mark.long


@pytest.mark.parametrize("mutation", cases("core"))
def test_a_defect_of_the_core_is_caught(mutation: Mutation, trials: Trials) -> None:
    fault, _ = trials.run(mutation)
    assert not fault
