"""Java libraries, which the Ivy inside pyspark resolves once into a cache outside the project.

A resolved set of jars is one folder: `<cache>/jars/<kind>-<digest of the request>`. It is made in a temporary
place and renamed when it is complete, so a folder with a manifest is always complete. Using it again needs no
network. The cache is `$XDG_CACHE_HOME/binlane`, else `~/.cache/binlane`.

Each jar's SHA-256 is checked at each use. Those of Kafka and Delta must be in `jars.sha256`, beside this
module (tools/jar_digests.py writes it, with those of `make stack`). Others must stay as they were when
downloaded."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from xml.sax.saxutils import quoteattr

import msgspec

from handlers.logs import get_logger
from handlers.spark.runtime import versions
from handlers.spark.runtime.versions import find_java

KAFKA_VERSION = "4.1.1"

KAFKA_COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    # Kafka's own dependencies contain only slf4j's interface. Without this, its log would go nowhere.
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
)
_ATTEMPTS = 2
_TIMEOUT_SECONDS = 600

_log = get_logger("binlane.jars")


class JarsError(RuntimeError):
    """The jars are neither cached nor available from a registry. The message says which and why."""


class _Jar(msgspec.Struct, frozen=True):
    name: str
    sha256: str = ""


class _Manifest(msgspec.Struct, frozen=True):
    coordinates: tuple[str, ...]
    without: tuple[str, ...]
    jars: tuple[_Jar, ...]


_read_manifest = msgspec.json.Decoder(_Manifest).decode


def kafka_jars() -> list[Path]:
    """Return the broker's jars: from BINLANE_KAFKA_HOME, else from the Kafka whose `kafka-server-start.sh` is
    on PATH, else resolved.

    Raises JarsError, also if BINLANE_KAFKA_HOME contains no Kafka."""
    if home := os.environ.get("BINLANE_KAFKA_HOME"):
        jars = _installed(Path(home))
        if not jars:
            raise JarsError(
                f"BINLANE_KAFKA_HOME={home} is not a Kafka installation: there is no {home}/libs/kafka_*.jar"
            )
        return jars
    if script := shutil.which("kafka-server-start.sh"):
        jars = _installed(Path(script).resolve().parent.parent)
        if jars:
            return jars
    return resolve(KAFKA_COORDINATES, kind="kafka", digests=known_digests())


def delta_jars() -> list[Path]:
    """Return Delta Lake's jars for the installed pyspark. Raises what `library_jars` raises."""
    return library_jars("delta")


def library_jars(library: str) -> list[Path]:
    """Return the jars of `library` (see versions.py) for the installed pyspark, without those that Spark
    ships.

    Raises JarsError, also if the library is not known for this Spark, and JavaError."""
    wanted = coordinate_here(library)
    names = (re.match(r"(.+?)-\d.*\.jar$", jar.name) for jar in spark_jars_folder().glob("*.jar"))
    shipped = {name.group(1) for name in names if name}
    return resolve([wanted], kind=library, without=shipped, digests=known_digests())


def coordinate_here(library: str) -> str:
    """Return the Maven coordinates of `library` for the installed pyspark. Raises JarsError for another."""
    try:
        return versions.coordinate(library, metadata.version("pyspark"))
    except versions.UnknownSpark as unknown:
        raise JarsError(
            f"{unknown}. Install one of them: pip install 'pyspark~={versions.DEFAULT}.0'"
        ) from None


def resolve(
    coordinates: Sequence[str],
    *,
    kind: str,
    without: Iterable[str] = (),
    digests: Mapping[str, str] | None = None,
) -> list[Path]:
    """Return the jars of Maven `coordinates` (`group:artifact:version`) and their dependencies, sorted by
    name.

    `kind` names the folder in the cache. `without`: names of artifacts to leave out everywhere. `digests`:
    file name -> the jar's required SHA-256. Without it, downloaded jars are trusted once and must not change.
    If several processes ask at once, one resolves and the others wait. Raises JarsError, also for a jar with
    another digest, and JavaError if something must be resolved."""
    wanted = _Manifest(tuple(coordinates), tuple(sorted(without)), ())
    digest = hashlib.sha256(msgspec.json.encode(wanted)).hexdigest()[:12]
    folder = cache_folder() / "jars" / f"{kind}-{digest}"
    jars = _complete(folder, digests)
    if jars is None:
        with _locked(folder.with_suffix(".lock"), wanted, kind):
            jars = _complete(folder, digests) or _fill(folder, wanted, kind, digests)
    return jars


def cache_folder() -> Path:
    """The folder for downloads. It is outside the project, so a second checkout uses it too."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "binlane"


def spark_jars_folder() -> Path:
    """pyspark's own `jars/`. Raises JarsError if pyspark is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsError("pyspark, which fetches jars, is missing: pip install '.[spark]' in binlane's folder")
    return Path(spec.origin).parent / "jars"


def _installed(home: Path) -> list[Path]:
    libs = home / "libs"
    return sorted(libs.glob("*.jar")) if any(libs.glob("kafka_*.jar")) else []


@cache
def known_digests() -> Mapping[str, str]:
    """Read `jars.sha256`: {a jar's file name: its required SHA-256}."""
    lines = Path(__file__).with_name("jars.sha256").read_text("utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _sha256(jar: Path) -> str:
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _complete(folder: Path, digests: Mapping[str, str] | None) -> list[Path] | None:
    """Return the folder's jars. None if it does not exist, or has changed since it was made."""
    try:
        manifest = _read_manifest((folder / "manifest.json").read_bytes())
        for jar in manifest.jars:
            expected = jar.sha256 if digests is None else digests.get(jar.name)
            if _sha256(folder / jar.name) != expected:
                return None
    except (OSError, msgspec.DecodeError):
        return None
    return [folder / jar.name for jar in manifest.jars]


def _checked(jars: Iterable[Path], kind: str, digests: Mapping[str, str] | None) -> tuple[_Jar, ...]:
    """Check downloaded jars. Raises JarsError for a jar whose digest differs from `digests`."""
    found = tuple(_Jar(jar.name, _sha256(jar)) for jar in jars)
    if digests is None:
        return found
    for jar in found:
        expected = digests.get(jar.name)
        if jar.sha256 != expected:
            what = "is not known" if expected is None else f"has another digest than {expected}"
            raise JarsError(
                f"the {kind} jars are not used: the downloaded {jar.name} {what} (SHA-256 {jar.sha256}; "
                "handlers/spark/runtime/jars.sha256 lists those that were tested). The Maven registry, or a "
                "proxy before it, returned another file; it is not kept"
            )
    return found


def _fill(folder: Path, wanted: _Manifest, kind: str, digests: Mapping[str, str] | None) -> list[Path]:
    if folder.exists():
        _log.warning("jars_damaged", kind=kind, folder=str(folder), action="resolving them again")
        shutil.rmtree(folder)
    _log.info("jars_resolving", kind=kind, coordinates=", ".join(wanted.coordinates), folder=str(folder))
    unfinished = f".{folder.name}-"
    for leftover in folder.parent.glob(f"{unfinished}*"):  # left by a killed process
        shutil.rmtree(leftover)
    with tempfile.TemporaryDirectory(prefix=unfinished, dir=folder.parent) as temporary:
        whole = Path(temporary) / "whole"
        _run_ivy(Path(temporary), whole, wanted, kind, checks=digests is None)
        jars = _checked(sorted(whole.glob("*.jar")), kind, digests)
        manifest = _Manifest(wanted.coordinates, wanted.without, jars)
        (whole / "manifest.json").write_bytes(msgspec.json.encode(manifest))
        whole.rename(folder)
    return [folder / jar.name for jar in jars]


def _run_ivy(work: Path, target: Path, wanted: _Manifest, kind: str, *, checks: bool) -> None:
    """`checks`: by the registry's own checksums. They add nothing if all digests are known."""
    ivy = next(spark_jars_folder().glob("ivy-*.jar"), None)
    if ivy is None:
        raise JarsError(f"pyspark's folder {spark_jars_folder()} contains no ivy-*.jar: reinstall pyspark")
    (work / "ivy.xml").write_text(_ivy_file(wanted, kind), encoding="utf-8")
    command = [
        str(find_java().executable),
        # Ivy's folders are ours too: a damaged local repository of the user must not matter.
        f"-Divy.default.ivy.user.dir={work / 'user'}",
        # Each of these would cost one more sequential request per jar.
        "-Divy.maven.lookup.sources=false",
        "-Divy.maven.lookup.javadoc=false",
        *([] if checks else ["-Divy.checksums="]),
        "-jar", str(ivy),
        "-cache", str(work / "downloads"),
        "-ivy", str(work / "ivy.xml"),
        "-confs", "default",
        "-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]",
    ]  # fmt: skip
    output = ""
    for _ in range(_ATTEMPTS):  # the next attempt uses the downloads of the last one
        try:
            run = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            output = f"no end after {_TIMEOUT_SECONDS} s"
            continue
        if run.returncode == 0 and any(target.glob("*.jar")):
            return
        output = run.stdout + run.stderr
    raise JarsError(
        f"the {kind} jars ({', '.join(wanted.coordinates)}) cannot be resolved: {_reason(output)}. "
        f"They are fetched once, so this needs the network or a Maven registry's mirror; afterwards "
        f"{cache_folder()} has them"
    )


def _ivy_file(wanted: _Manifest, kind: str) -> str:
    lines = [
        '<ivy-module version="2.0">',
        f'<info organisation="binlane" module={quoteattr(kind)}/>',
        '<configurations><conf name="default"/></configurations>',
        "<dependencies>",
    ]
    for coordinate in wanted.coordinates:
        group, artifact, version = map(quoteattr, coordinate.split(":"))
        lines.append(f'<dependency org={group} name={artifact} rev={version} conf="default->default"/>')
    lines += [f"<exclude module={quoteattr(name)}/>" for name in wanted.without]
    return "\n".join([*lines, "</dependencies>", "</ivy-module>"])


def _reason(output: str) -> str:
    """Return the lines of Ivy's output that contain the error."""
    lines = [line.strip(" :\t") for line in output.splitlines()]
    telling = [line for line in lines if re.search(r"not found$|exception|failed|unknown ?host", line, re.I)]
    return "; ".join(dict.fromkeys(telling[:4] or [line for line in lines if line][-2:]))


@contextmanager
def _locked(path: Path, wanted: _Manifest, kind: str) -> Iterator[None]:
    """Hold the lock file: only one process fills the folder beside it. It is released if its holder dies.

    Raises JarsError if nothing can be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        raise JarsError(
            f"the {kind} jars ({', '.join(wanted.coordinates)}) are not in {path.parent}, and it cannot be "
            f"written ({error.strerror}): put them into the image (docs/deployment.md, Spark in the image), "
            "or set XDG_CACHE_HOME to a folder that this user may write, and resolve them there once"
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
