"""The deployment files as they are shipped, copied so that a test may break them."""

from __future__ import annotations

import shutil
import sys
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
    (root / "docs").mkdir()
    for name in ("command-line.md", "configuration-keys.md", "log-events.md", "metrics.md"):
        shutil.copy(ROOT / "docs" / name, root / "docs")
    return root
