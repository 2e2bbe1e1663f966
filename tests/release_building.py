"""The wheel and the sdist as they are released."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["PROJECT", "build"]

PROJECT = Path(__file__).parents[1]

# What comes and goes there while other tests run: hatchling would not find again what it has seen.
_PASSING = shutil.ignore_patterns(".*", "__pycache__", "state", "lake", "build", "dist")


def build(target: str, folder: Path, project: Path = PROJECT) -> Path:
    """`target`: wheel or sdist; the only file in `folder` then."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), "-t", target]
    with tempfile.TemporaryDirectory() as copies:
        copy = shutil.copytree(project, Path(copies, "project"), ignore=_PASSING)
        done = subprocess.run(command, cwd=copy, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = folder.iterdir()
    return built
