"""The deployment files as they are shipped, copied so that a test may break them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """A folder with a copy of all that deploys binlane."""
    root = tmp_path / "project"
    root.mkdir()
    for name in ("Dockerfile", "docker-compose.yml"):
        shutil.copy(ROOT / name, root)
    for name in ("deploy", "k8s", "examples"):
        shutil.copytree(ROOT / name, root / name)
    return root


@pytest.fixture(scope="module", autouse=True)
def _checked_once() -> Iterator[None]:
    """`binlane check` takes a second, and most tests break something else than a configuration."""
    import check_deployment  # its folder is known by now

    check, told = check_deployment._configuration_faults, dict[tuple[object, ...], list[str]]()

    def once(root: Path, path: Path, environment: dict[str, str]) -> list[str]:
        same = (path.relative_to(root), path.read_text(), *sorted(environment.items()))
        if same not in told:
            told[same] = check(root, path, environment)
        return told[same]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_deployment, "_configuration_faults", once)
        yield
