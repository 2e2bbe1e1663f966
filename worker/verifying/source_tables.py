"""The Spark handlers of a configuration, and their tables by the names in the source, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from handlers.spark.delta.log_files import has_commits
from handlers.spark.locations import Locations
from handlers.spark.log.store_choice import files_without_java
from handlers.spark.log.stores.interface import scheme_of
from handlers.spark.options import SparkOptions, SparkSection
from handlers.spark.read.in_duckdb import Source
from handlers.spark.runtime.conf import plain_paths_are_local
from worker.configuration import Configuration


@dataclass(frozen=True, slots=True)
class SparkEntry:
    """One Spark handler that keeps tables. Entries with equal options are merged."""

    name: str
    options: SparkOptions


def spark_entries(configuration: Configuration) -> list[SparkEntry]:
    """Return the handlers that keep tables, in order. (Tables of a function belong to the function.)"""
    found: list[SparkEntry] = []
    for rule in configuration.tables:
        for handler in rule.handlers:
            if handler.type == "spark":
                options = SparkOptions.model_validate(handler.options)
                is_new = all(place_of(options) != place_of(each.options) for each in found)
                if options.mode != "function" and is_new:
                    found.append(SparkEntry(handler.name, options))
    return found


def place_of(options: SparkOptions) -> tuple[str, str, str | None, str | None]:
    """Return what handlers of the same tables have in common."""
    return options.mode, options.format, options.path, options.table


def leads_to(configuration: Configuration, table: str, entry: SparkEntry) -> bool:
    """Whether the changes of a table go to this handler."""
    rule = configuration.rule_for(table)
    if rule is None:
        return False
    found = (handler for handler in rule.handlers if handler.type == "spark")
    return any(
        place_of(SparkOptions.model_validate(each.options)) == place_of(entry.options) for each in found
    )


class _Found(NamedTuple):
    mode: str
    source: Source
    is_filled: bool
    """Whether the source table's changes go to this handler."""


class SourceTables:
    """The tables that exist. Reads folders only for the names that are asked for."""

    def __init__(self, configuration: Configuration) -> None:
        self._section = SparkSection.model_validate(dict(configuration.spark))
        self._configuration = configuration
        self._folder = configuration.folder
        self._entries = spark_entries(configuration)

    def of(self, name: str, ends: Sequence[int] | None = None) -> Source:
        """Return the table named `database.table`, or `database.table_mode`. Of several, the replica. Tables
        that no handler fills any more are found if there is no other. `ends`: where the dot between database
        and table may be; None: it may be any.

        Raises LookupError if none exists or several are meant, and what the store raises."""
        if ends is None:
            ends = [place for place, letter in enumerate(name) if letter == "."]
        found = list(self._found(name, ends))
        if not found and name.rpartition("_")[2] in ("replica", "history", "changelog"):
            short, _, mode = name.rpartition("_")
            found = [each for each in self._found(short, ends) if each.mode == mode]
        found = [each for each in found if each.is_filled] or found
        found = [each for each in found if each.mode == "replica"] or found
        if not found:
            raise LookupError(f"there is no Spark table {name} yet: `binlane tables` lists all but Iceberg's")
        if len({each.mode for each in found}) > 1:
            names = ", ".join(f"{name}_{each.mode}" for each in found)
            raise LookupError(f"several handlers keep {name}: write one of {names}")
        found = [each for each in found if each.source.ref.path is not None] or found  # not in a catalog
        if len(found) > 1:
            folders = ", ".join(str(each.source.ref) for each in found)
            raise LookupError(f"several handlers keep {name}: give binlane.read one of the folders {folders}")
        return found[0].source

    def _found(self, name: str, ends: Sequence[int]) -> Iterator[_Found]:
        """Yield each handler's table of this name."""
        for entry, end in product(self._entries, ends):
            database, table = name[:end], name[end + 1 :]
            locations = Locations(entry.options, self._section, self._folder)
            if not scheme_of(locations.root) and not plain_paths_are_local(self._section):
                raise LookupError(
                    f"{locations.root} may be in the file system that Hadoop is set to: give spark.warehouse "
                    "its full address, such as file:... or s3a://..."
                )
            ref, files = locations.ref(database, table), files_without_java(locations.root)
            is_table = ref.path is not None and has_commits(files, ref.path)
            if is_table or files.exists(ref.log_folder):
                source = Source(files, ref, entry.options.prefix)
                yield _Found(entry.options.mode, source, leads_to(self._configuration, name, entry))
