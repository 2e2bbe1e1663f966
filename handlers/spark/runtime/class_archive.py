"""Java's class data sharing for Spark's driver: its classes are read and checked once per machine, then
mapped at each start (https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html).

The archive is in `<cache>/classes`, named by the Java, pyspark and jars that it was made from.
handlers.spark.training makes it. Java checks whether it fits, and continues without one that does not. But
Java trusts its content, so one that another user of the machine could have put there is not used."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from handlers.logs import get_logger
from handlers.spark.runtime.jars import cache_folder, spark_jars_folder
from handlers.spark.runtime.versions import find_java

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
_LONGEST_PATH = 4096

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
        if found is None or re.search(r"[\s\"'\\]", str(found)):  # the launcher would split the path
            return dict(conf)
        with suppress(OSError):  # the longest unused are removed first
            os.utime(lock_of(found))
    except OSError as error:
        _log.debug("spark_classes_not_used", error=str(error))
        return dict(conf)
    return {**conf, OPTIONS: f"-XX:SharedArchiveFile={found} {_USE} {own}".rstrip()}
