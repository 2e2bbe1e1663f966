from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_pytest import ForkedPytest


@pytest.fixture(scope="session")
def forked_pytest() -> Iterator[ForkedPytest]:
    with ForkedPytest() as forked:
        yield forked


@pytest.fixture
def copy() -> Iterator[Path]:
    """A folder for the code, gone afterwards: it holds many files."""
    with tempfile.TemporaryDirectory(prefix="binlane-mutant-") as folder:
        yield Path(folder)
