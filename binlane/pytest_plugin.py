"""A fixture: write `pytest_plugins = ["binlane.pytest_plugin"]` into conftest.py."""

from collections.abc import Callable
from pathlib import Path

import pytest

from binlane import testing


@pytest.fixture
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., testing.Played]:
    """As `binlane.testing.play`. Files are beside the test, and handlers' relative paths in `tmp_path`."""
    folder = request.path.parent
    return lambda config, records, **more: testing.play(
        folder / config, folder / records, **{"folder": tmp_path, **more}
    )
