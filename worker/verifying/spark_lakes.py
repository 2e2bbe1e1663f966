"""Open the Spark tables of a configuration for reading: by their files, and with a separate Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer
from pyspark.sql import SparkSession

from handlers.options.matching import PatternError, table_matcher
from handlers.spark.locations import Locations
from handlers.spark.log.store_choice import default_scheme, files_for
from handlers.spark.log.stores.interface import Files, scheme_of
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import SparkSection
from handlers.spark.read.log_heads import Found, found_tables
from handlers.spark.runtime.conf import plain_paths_are_local
from handlers.spark.runtime.session import SharedSpark, acquire, release
from worker.configuration import Configuration
from worker.verifying.source_tables import SparkEntry, spark_entries

_MASTER = "local[2]"
_MOST_MEMORY = "1g"
"""In a pod, the worker's Java uses the memory. With a second heap of that size, the kernel would kill one."""
STARTING = "starting Spark, which takes half a minute, or minutes on a busy machine"
_UNITS = {"k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True)
class Lake:
    """The tables of one handler, opened."""

    entry: SparkEntry
    locations: Locations
    files: Files
    spark: SparkWhenAsked

    @property
    def has_readable_files(self) -> bool:
        """Whether its files can be read without Spark."""
        return isinstance(self.files, LocalFiles) or not self.spark.is_classic

    def tables(self, chosen: Callable[[str], bool]) -> Sequence[Found]:
        """Return the tables in the order of their names. Raises BrokenLog, and the store's errors."""
        found = found_tables(self.files, self.locations, self.entry.options)
        return sorted((each for each in found if chosen(each.name)), key=lambda each: each.name)


class SparkWhenAsked:
    """A Spark in this process that starts when a question needs it. Thread-safe.

    Each method raises JavaError, JarsError or RuntimeError if it does not start, and SharedSpark's errors."""

    def __init__(
        self, section: SparkSection, folder: Path, name: str, say: Callable[[str], None] | None = None
    ) -> None:
        """`say`: called before Spark starts."""
        self._wanted = for_looking(section), folder, name
        self._say = say
        self._lock = threading.Lock()  # guards the next two
        self._spark: SharedSpark | None = None
        self._fault: Exception | None = None
        self.is_classic = section.remote is None
        self._is_local = plain_paths_are_local(section)
        self._assumed = False

    @property
    def session(self) -> SparkSession:
        return self._started().session

    def fresh(self) -> SparkSession:
        """Create a separate session, to be returned with `drop`."""
        return self._started().fresh()

    def drop(self, session: SparkSession) -> None:
        self._started().drop(session)

    def stop(self) -> None:
        with self._lock:
            if self._spark is not None:
                self._spark = None
                release()

    def files_of(self, root: str) -> Files:
        """Return the store of a location. A path without a scheme is assumed to be local unless settings say
        otherwise. The assumption is checked when Spark starts. Raises FilesError."""
        self._assumed = self._assumed or (self._is_local and not scheme_of(root))
        return files_for(root, self, assume_local=self._is_local)

    def _started(self) -> SharedSpark:
        with self._lock:
            if self._fault is not None:
                raise self._fault
            if self._spark is None:
                if self._say is not None:
                    self._say(STARTING)
                try:
                    self._spark = acquire(*self._wanted)
                    self._check_default_files(self._spark)
                except Exception as error:
                    self._fault = error
                    raise
            return self._spark

    def _check_default_files(self, spark: SharedSpark) -> None:
        """Raise RuntimeError if plain paths were wrongly assumed to be local."""
        if self._assumed and (found := default_scheme(spark)) != "file":
            raise RuntimeError(
                "paths without a scheme were read as folders of this machine, but Spark's fs.defaultFS is "
                f"{found}: give spark.warehouse its full address, {found}://... or file:...; or set "
                "HADOOP_CONF_DIR"
            )


@contextmanager
def opened_lakes(
    configuration: Configuration, say: Callable[[str], None] | None = None
) -> Iterator[list[Lake]]:
    """Open every handler's tables. Spark runs in this process, wherever the worker's runs. So it uses nothing
    of a busy cluster, and at most 1 GiB of heap. With Spark Connect it is the same server. Spark starts when
    it is needed, or at once for a store that only Spark reads; `say` is called before.

    Raises JavaError, JarsError and RuntimeError if Spark does not start, FilesError for an unreachable store.
    """
    section = SparkSection.model_validate(dict(configuration.spark))
    spark = SparkWhenAsked(section, configuration.folder, f"{configuration.name}-looking", say)
    try:
        lakes = []
        entries = spark_entries(configuration)
        shown = [entry for entry in entries if entry.options.format != "iceberg"]
        if say is not None and shown != entries:
            say("Iceberg tables are left out: ask their catalog")
        for entry in shown:
            locations = Locations(entry.options, section, configuration.folder)
            lakes.append(Lake(entry, locations, spark.files_of(locations.root), spark))
        yield lakes
    finally:
        spark.stop()


def for_looking(section: SparkSection) -> SparkSection:
    """Adapt a worker's section for a small Spark that only reads, beside the worker's own."""
    if section.remote is not None:
        return section
    memory = min(section.driver_memory, _MOST_MEMORY, key=lambda one: int(one[:-1]) << 10 * _UNITS[one[-1]])
    return section.model_copy(update={"master": _MASTER, "ui": False, "driver_memory": memory})


def chosen_by(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return a test for `database.table`; no patterns: all match. Raises typer.BadParameter."""
    try:
        matchers = [table_matcher(pattern) for pattern in patterns]
    except PatternError as error:
        nearest = f"; nearest: {error.nearest}" if error.nearest else ""
        raise typer.BadParameter(f"a PATTERN is {error}{nearest}") from None
    return lambda name: not matchers or any(matches(name) for matches in matchers)
