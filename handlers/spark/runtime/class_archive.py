"""Java's class data sharing for Spark's driver: its classes are read and checked once per machine, then
mapped at each start (https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html).

The archive is in `<cache>/classes`, named by the Java, pyspark and jars that it was made from.
handlers.spark.training makes it. Java checks whether it fits, and continues without one that does not. But
Java trusts its content, so one that another user of the machine could have put there is not used.

A worker makes it only with enough memory and CPUs, of its machine and in its control groups."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from handlers.logs import get_logger
from handlers.spark.runtime.conf import environment_has_files
from handlers.spark.runtime.jars import JarsError, cache_folder, spark_jars_folder
from handlers.spark.runtime.java import JavaError, find_java

OPTIONS = "spark.driver.extraJavaOptions"
QUIET = "-Xlog:cds*=off,class+path=off"
"""Prevents messages about an archive that is not used."""
# Checksums are verified, so a damaged archive is not used. The optimizing compiler, which takes half of the
# CPU of a start, begins later.
_USE = (
    "-XX:+VerifySharedSpaces -XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=4000 "
    f"-XX:Tier4CompileThreshold=40000 {QUIET}"
)
_OWN = ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare")
"""If the user sets one of these, they use their own archive, or none."""
_LATER_SECONDS = 60.0
"""After Spark's start: a worker that has just started has other work."""
_DISK = 1 << 30
_LONGEST_PATH = 4096
_MEMORY = 2 << 30
_CPUS = 2.0
"""CPUs of a quota: with less, even at low priority it would take the worker's share."""

_log = get_logger("spark")


def place(jars: Path | None = None) -> Path:
    """Return the path of the archive for this Java and pyspark, without the size at the end of its name.

    `jars`: the folder with another pyspark's. Raises JavaError, JarsError and OSError."""
    own = sorted(_jars_in(jars or spark_jars_folder()))
    return place_of("spark", own, metadata.version("pyspark"))


def place_of(what: str, jars: Sequence[Path], *versions: str) -> Path:
    """Return the path of the archive for this Java and these jars, without the size at the end of its name.
    Raises JavaError and OSError."""
    java = find_java()
    runtime = (java.home / "lib" / "modules").resolve()
    parts = [str(java.version), *versions]
    for file in (runtime if runtime.exists() else java.executable, *jars):
        found = file.stat()  # Java checks the same for each jar
        parts += [str(file), str(found.st_size), str(int(found.st_mtime))]
    digest = hashlib.sha256(os.fsencode("\n".join(parts))).hexdigest()[:16]
    return (cache_folder() / "classes").resolve() / f"{what}-{digest}"


def named(place: Path, size: int) -> Path:
    """Return the path of an archive of `size` bytes. Java would end with SIGBUS if one was cut off."""
    return place.with_name(f"{place.name}.{size}.jsa")


def lock_of(place: Path) -> Path:
    """The lock of an archive, or of its place. Held by its maker. Its time is the time of the last use."""
    return place.with_name(f"{place.name.partition('.')[0]}.lock")


def own_folder(place: Path) -> None:
    """Create a folder for it that only this user can change. Raises OSError."""
    place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not is_ours(place.parent):
        raise PermissionError(
            f"another user could change {place.parent}, or a folder above it: an archive there is not used. "
            "Set XDG_CACHE_HOME to a folder that belongs to this user"
        )


def is_whole(made: Path) -> bool:
    """Whether Java has finished the archive: it writes the header, which is not zeros, last."""
    try:
        with made.open("rb") as file:
            return any(file.read(4))
    except FileNotFoundError:
        return False


def keep(made: Path, place: Path) -> None:
    """Move a new archive, made in a folder beside `place`, to where `kept` finds it. Raises RuntimeError for
    an incomplete one."""
    if not is_whole(made):
        raise RuntimeError(f"Java created no archive of {place.name.partition('-')[0].title()}'s classes")
    made.chmod(0o644)
    for damaged in place.parent.glob(f"{place.name}.*.jsa"):
        damaged.unlink()
    made.rename(named(place, made.stat().st_size))


def kept(place: Path) -> Path | None:
    """Return the archive if it is complete and readable, and no other user can have put it there."""
    if not is_ours(place.parent):
        return None
    for found in place.parent.glob(f"{place.name}.*.jsa"):
        with suppress(FileNotFoundError):  # removed since
            whole = found == named(place, found.lstat().st_size)
            if whole and os.access(found, os.R_OK) and _is_safe(found):
                return found
    return None


def usable() -> Path | None:
    """Return the archive for this Java and pyspark, or one made from the same files elsewhere (an installer
    may link them from its cache). Raises JavaError, JarsError and OSError."""
    wanted = place()
    if (own := kept(wanted)) is not None or not is_ours(wanted.parent):
        return own
    jars = spark_jars_folder()
    for lock in wanted.parent.glob("spark-*.lock"):
        made_of, other = _made_of(lock), lock.with_suffix("")
        if made_of is None or not _are_one(made_of, jars) or place(made_of) != other:
            continue
        if (found := kept(other)) is not None:
            return found
    return None


def _made_of(lock: Path) -> Path | None:
    """Return the folder of jars that an archive was made from. None if its lock, which anybody may have put
    there, does not contain one."""
    try:
        found = lock.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LONGEST_PATH or not _is_safe(lock):
            return None
        made_of = Path(os.fsdecode(lock.read_bytes()))
    except OSError:
        return None
    return made_of if made_of.is_absolute() else None


def _jars_in(folder: Path) -> list[Path]:
    """The jars in Java's order for a class path that ends with `/*`."""
    return [each for each in folder.iterdir() if each.suffix in (".jar", ".JAR")]


def _are_one(one: Path, other: Path) -> bool:
    """Whether both folders contain the same files, in Java's order, which must be the archive's order. Java
    also checks for the files that the archive was made from."""
    try:
        names = [[each.name for each in _jars_in(folder)] for folder in (one, other)]
        return names[0] == names[1] and all((one / name).samefile(other / name) for name in names[0])
    except (OSError, ValueError):  # also for an invalid path
        return False


def is_ours(folder: Path) -> bool:
    """Whether only this user and root can put or change names in this folder and those above it. It must
    exist, without links in its path. A group's rights are allowed if it is the user's own group, or
    root's."""
    try:
        return all(_is_safe(each) for each in (folder, *folder.parents))
    except OSError:
        return False


def _is_safe(path: Path) -> bool:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode) or found.st_uid not in (0, os.geteuid()):
        return False
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:  # like /tmp: names belong to owners
        return True
    by_group = found.st_mode & stat.S_IWGRP and found.st_gid not in (0, os.getegid())
    return not by_group and not found.st_mode & stat.S_IWOTH


def with_archive(conf: Mapping[str, str]) -> dict[str, str]:
    """Return these properties of Spark with the archive, if it exists and they set none themselves.

    Raises JavaError and JarsError."""
    own = conf.get(OPTIONS, "")
    if any(word in own for word in _OWN):
        return dict(conf)
    try:
        found = usable()
        if found is None or _splits(found):
            return dict(conf)
        with suppress(OSError):  # the longest unused are removed first
            os.utime(lock_of(found))
    except OSError as error:
        _log.debug("spark_classes_not_used", error=str(error))
        return dict(conf)
    return {**conf, OPTIONS: f"-XX:SharedArchiveFile={found} {_USE} {own}".rstrip()}


def _has_room(folder: Path) -> bool:
    """Whether memory, disk and CPU are enough to make an archive beside a worker."""
    return free_memory() > _MEMORY and shutil.disk_usage(folder).free > _DISK and cpus() >= _CPUS


def make_later(conf: Mapping[str, str], ended: threading.Event) -> None:
    """Make the archive in the background, at the lowest priority, if it does not exist and these properties
    allow it. Stops when `ended` is set. Raises nothing."""
    threading.Thread(target=_make, args=(conf, ended), name="spark-classes", daemon=True).start()


def _make(conf: Mapping[str, str], ended: threading.Event) -> None:
    try:
        wanted = place()
        if any(word in conf.get(OPTIONS, "") for word in _OWN) or usable() or _splits(wanted):
            return
        if environment_has_files():  # Java keeps no classes if its class path contains folders
            return
        if ended.wait(_LATER_SECONDS):
            return
        wanted.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not os.access(wanted.parent, os.W_OK) or not is_ours(wanted.parent):
            return
        if not _has_room(wanted.parent):
            return
        # In a folder that contains nothing that Python could take for a module.
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
    """Whether Spark's launcher would split the path into several options."""
    return any(letter.isspace() or letter in "\"'\\" for letter in str(path))


_NONE = float("inf")


def free_memory(root: Path = Path("/")) -> float:
    """Bytes of available memory, of the machine and within each group's limit (cgroup v1 and v2). `root`:
    where `proc` and `sys` are."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    rooms = [float(found[1]) * 1024 if found else 0.0]
    for group in _groups(root, "memory"):
        for most, now in (("memory.max", "current"), ("memory.limit_in_bytes", "usage_in_bytes")):
            limit = _number(group / most)
            if limit is not None:
                rooms.append(limit - (_number(group / f"memory.{now}") or 0.0))
    return min(rooms)


def cpus(root: Path = Path("/")) -> float:
    """The number of CPUs that the groups' quotas allow. Infinite without a quota."""
    rates = [_NONE]
    for group in _groups(root, "cpu"):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        if not quota:
            quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
        if quota.strip().isdigit() and period.strip().isdigit() and int(period):
            rates.append(int(quota) / int(period))
    return min(rates)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of the groups with this controller, from the process's own to the outermost. In a
    container, a path may be the host's and not exist. An existing one is the container's."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        for base in (Path("sys/fs/cgroup", controller), Path("sys/fs/cgroup")):
            group = root / base / path.strip("/")
            while group != root / base:
                yield group
                group = group.parent
            yield group


def _number(file: Path) -> float | None:
    text = _text(file).strip()
    return float(text) if text.isdigit() else None


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
