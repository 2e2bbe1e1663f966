"""Finds a Java that runs Kafka and Spark."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

OLDEST = 17
"""Required by Kafka 4's broker and Spark 4.2."""


class JavaError(RuntimeError):
    """No Java of version 17 or later was found. The one-line message says what was found and what to do."""


class Java(NamedTuple):
    executable: Path
    version: int
    """The feature version: 17, 21 ..."""

    @property
    def home(self) -> Path:
        """JAVA_HOME for this Java."""
        return self.executable.resolve().parent.parent


def find_java() -> Java:
    """Return the Java in JAVA_HOME or, if that is unsuitable, the first `java` on PATH.

    Raises JavaError if neither is version 17 or later."""
    found = []
    for origin, executable in _candidates():
        version = _version(executable)
        if version is not None and version >= OLDEST:
            return Java(executable, version)
        found.append(f"{origin} gives {executable} ({f'version {version}' if version else 'does not run'})")
    raise JavaError(
        f"Java {OLDEST} or later is needed; {'; '.join(found) or 'JAVA_HOME is unset, PATH has no java'}. "
        f"Install one (Debian: apt-get install openjdk-17-jre-headless) or point JAVA_HOME to it."
    )


def _candidates() -> list[tuple[str, Path]]:
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java"):
        candidates.append(("PATH", Path(on_path)))
    return candidates


@functools.cache
def _version(executable: Path) -> int | None:
    """Return the feature version. None if it is not Java or does not run."""
    try:
        answer = subprocess.run(
            [executable, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Up to Java 8, the feature version is the second number: `version "1.8.0_412"`.
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match.group(1)) if match and answer.returncode == 0 else None
