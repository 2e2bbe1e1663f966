"""Find the Spark tables of a configuration by their names in the source, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

from handlers.spark.delta.log_files import has_commits
from handlers.spark.locations import Locations
from handlers.spark.log.store_choice import files_without_java
from handlers.spark.log.stores.interface import scheme_of
from handlers.spark.read.moment import Source
from handlers.spark.runtime.conf import plain_paths_are_local
from handlers.spark.section import SparkSection
from worker.configuration import Configuration
from worker.verifying.spark_entries import spark_entries


class SourceTables:
    """The tables that exist. Reads folders only for the names that are asked for."""

    def __init__(self, configuration: Configuration) -> None:
        self._section = SparkSection.model_validate(dict(configuration.spark))
        self._folder = configuration.folder
        self._entries = spark_entries(configuration)

    def of(self, name: str) -> Source:
        """Return the table named `database.table`, or `database.table_mode`. Of several, the replica.

        Raises LookupError if none exists or several are meant, and what the store raises."""
        found = dict(self._found(name))
        if not found and name.rpartition("_")[2] in ("replica", "history", "changelog"):
            short, _, mode = name.rpartition("_")
            found = {kept: source for kept, source in self._found(short) if kept == mode}
        if len(found) > 1 and "replica" not in found:
            names = ", ".join(f"{name}_{mode}" for mode in found)
            raise LookupError(f"several handlers keep {name}: write one of {names}")
        if not found:
            raise LookupError(f"there is no Spark table {name} yet: `binlane tables` lists those that exist")
        return found.get("replica") or next(iter(found.values()))

    def _found(self, name: str) -> Iterator[tuple[str, Source]]:
        """Yield the mode and the place of each handler's table of this name."""
        database, _, table = name.partition(".")
        for entry in self._entries:
            locations = Locations(entry.options, self._section, self._folder)
            if not scheme_of(locations.root) and not plain_paths_are_local(self._section):
                raise LookupError(
                    f"{locations.root} may be in the file system that Hadoop is set to: give spark.warehouse "
                    "its full address, such as file:... or s3a://..."
                )
            ref, files = locations.ref(database, table), files_without_java(locations.root)
            is_table = ref.path is not None and has_commits(files, ref.path)
            if is_table or files.exists(ref.log_folder):
                yield entry.options.mode, Source(files, ref, entry.options.prefix)
