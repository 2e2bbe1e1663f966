"""The Spark and Java versions that binlane works with, and the libraries for each. Nothing else lists them.

`make matrix` runs Spark's tests with each. A new version needs a line here, its jars' digests
(tools/jar_digests.py), its pyspark in tools/matrix.txt, and a passing `make matrix`."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

LIBRARIES: Final[Mapping[str, Mapping[str, str]]] = {
    "4.0": {"delta": "io.delta:delta-spark_4.0_2.13:4.4.0"},
    "4.1": {"delta": "io.delta:delta-spark_4.1_2.13:4.4.0"},
    "4.2": {"delta": "io.delta:delta-spark_4.2_2.13:4.4.0"},
}
"""Spark's major and minor version -> library -> its Maven coordinates, `group:artifact_SCALA:version`.
A library without a release for a version has no entry there."""

DEFAULT = "4.2"
"""The version that the image, constraints.txt and `make test` use."""


class UnknownSpark(ValueError):
    """No library is known for this Spark. The message lists the pairs that work."""


def coordinate(library: str, spark: str) -> str:
    """Return the Maven coordinates of `library` for this version of Spark (`4.1.4`).

    Raises UnknownSpark."""
    found = LIBRARIES.get(_minor(spark), {}).get(library)
    if found is None:
        raise UnknownSpark(f"binlane knows no {library.title()} for Spark {spark}. {pairs(library)}")
    return found


def check_server(server: str, client: str) -> None:
    """Raise UnknownSpark if this version of pyspark, the client, cannot use a Connect server of version
    `server`.

    Spark's rule: a server may be newer than its client. An older one does not have all settings that the
    client reads."""
    coordinate("delta", server)
    known = list(LIBRARIES)
    if _minor(client) not in known[: known.index(_minor(server)) + 1]:
        raise UnknownSpark(
            f"the server's Spark {server} is older than pyspark {client}. "
            f"Install its pyspark, or an older one: pip install 'pyspark~={_minor(server)}.0'"
        )


def _minor(version: str) -> str:
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else ""


def pairs(library: str) -> str:
    """Return a sentence with all versions of Spark that work with `library`."""
    known = [(spark, own[library].split(":")[2]) for spark, own in LIBRARIES.items() if library in own]
    listed = ", ".join(f"Spark {spark} with {library.title()} {version}" for spark, version in known)
    return f"These pairs work: {listed}"


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
