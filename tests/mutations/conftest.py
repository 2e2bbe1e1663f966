from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_pytest import ForkedPytest
from patching import Mutation
from trying import Trials

_AT_A_TIME = 4


@pytest.fixture(scope="session")
def forked_pytest() -> Iterator[ForkedPytest]:
    with ForkedPytest() as forked:
        yield forked


@pytest.fixture
def copy() -> Iterator[Path]:
    """A folder for the code, gone afterwards: it holds many files."""
    with tempfile.TemporaryDirectory(prefix="binlane-mutant-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def _trials() -> Iterator[Trials]:
    with Trials(_AT_A_TIME) as trials:
        yield trials


@pytest.fixture(scope="module")
def trials(_trials: Trials, request: pytest.FixtureRequest) -> Trials:
    """`trials.run(mutation)`. Those of the module that wait are begun at once."""
    tests = [item for item in request.session.items if item.path == request.path]
    chosen: list[Mutation] = [
        test.callspec.params["mutation"] for test in tests if isinstance(test, pytest.Function)
    ]
    _trials.begin(each for each in chosen if each.waits)
    return _trials
