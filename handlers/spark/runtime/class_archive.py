"""Java's class data sharing for Spark's driver: its classes, read and checked once per machine, are mapped at
each start (https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html).

The archive is in `<cache>/classes`, named by the Java, pyspark and jars that it was made of;
handlers.spark.training makes it. Java itself looks whether it fits, and goes on without one that does not.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from handlers.logs import get_logger
from handlers.spark.runtime.jars import JarsError, cache_folder, spark_jars_folder
from handlers.spark.runtime.java import JavaError, find_java

__all__ = ["OPTIONS", "QUIET", "kept", "make_later", "named", "place", "with_archive"]

OPTIONS = "spark.driver.extraJavaOptions"
QUIET = "-Xlog:cds*=off,class+path=off"
"""Says nothing about an archive that is not used."""
# With its sums checked, so that a damaged one is not used. The optimizing compiler, which takes half of the
# CPU of a start, begins later.
_USE = (
    "-XX:+VerifySharedSpaces -XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=4000 "
    f"-XX:Tier4CompileThreshold=40000 {QUIET}"
)
_OWN = ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare")
"""Whoever gives one of these has an archive of their own, or wants none."""
_LATER_SECONDS = 60.0
"""After Spark's start: a worker that has just started has other things to do."""
_DISK = 1 << 30
_MEMORY = 2 << 30

_log = get_logger("spark")


def place() -> Path:
    """The archive of this Java and this pyspark, without the size that its name ends with.

    Raises JavaError and JarsError."""
    java = find_java()
    runtime = java.home / "lib" / "modules"
    parts = [str(java.version), metadata.version("pyspark")]
    for file in (runtime if runtime.exists() else java.executable, *sorted(spark_jars_folder().iterdir())):
        stat = file.stat()  # Java looks at the same of each jar
        parts += [str(file), str(stat.st_size), str(int(stat.st_mtime))]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache_folder() / "classes" / f"spark-{digest}"


def named(place: Path, size: int) -> Path:
    """An archive of so many bytes: Java ends with SIGBUS where one was cut off."""
    return place.with_name(f"{place.name}.{size}.jsa")


def kept(place: Path) -> Path | None:
    """The archive, if there is a whole one that can be read."""
    for found in place.parent.glob(f"{place.name}.*.jsa"):
        if os.access(found, os.R_OK) and found == named(place, found.stat().st_size):
            return found
    return None


def with_archive(conf: Mapping[str, str]) -> dict[str, str]:
    """These properties of Spark, with the archive if there is one and they name none themselves.

    Raises JavaError and JarsError."""
    own = conf.get(OPTIONS, "")
    found = kept(place())
    if any(word in own for word in _OWN) or found is None or _splits(found):
        return dict(conf)
    return {**conf, OPTIONS: f"-XX:SharedArchiveFile={found} {_USE} {own}".rstrip()}


def _has_room(folder: Path) -> bool:
    """Whether there is memory and disk to make an archive beside a worker."""
    memory = min(_machine_room(), _container_room())
    return memory > _MEMORY and shutil.disk_usage(folder).free > _DISK


def make_later(conf: Mapping[str, str], ended: threading.Event) -> None:
    """Have the archive made in the background, at the lowest priority, if there is none and these properties
    leave it to that; unless it has `ended` before. Raises nothing."""
    threading.Thread(target=_make, args=(conf, ended), name="spark-classes", daemon=True).start()


def _make(conf: Mapping[str, str], ended: threading.Event) -> None:
    try:
        wanted = place()
        if any(word in conf.get(OPTIONS, "") for word in _OWN) or kept(wanted) or _splits(wanted):
            return
        if ended.wait(_LATER_SECONDS):
            return
        wanted.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(wanted.parent, os.W_OK) or not _has_room(wanted.parent):
            return
        # In a folder in which nothing lies that Python could take for a module.
        making = subprocess.Popen(
            [sys.executable, "-m", "handlers.spark.training", "--nice"],
            cwd=wanted.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while making.poll() is None:
            if ended.wait(1.0):
                making.terminate()
                making.wait(10)
        _log.debug("spark_classes_kept", archive=str(wanted), done=kept(wanted) is not None)
    except (JarsError, JavaError, OSError, subprocess.TimeoutExpired) as error:
        _log.debug("spark_classes_not_kept", error=str(error))


def _splits(path: Path) -> bool:
    """Whether Spark's launcher would take it for several options."""
    return any(letter.isspace() or letter in "\"'\\" for letter in str(path))


def _machine_room() -> float:
    """Bytes of memory that can be had."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return float(found[1]) * 1024 if found else 0.0


def _container_room() -> float:
    """Bytes that the container may still take (cgroup v2)."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text()
    except OSError:
        return float("inf")
    return float("inf") if limit == "max" else float(int(limit) - int(used))
