"""Lists a handler's tables: those with a log, and those in folders that match its `path`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from handlers.spark.delta.log_files import has_commits
from handlers.spark.locations import Locations
from handlers.spark.log.owner import Owner, fits, logs_below
from handlers.spark.log.stores.interface import Files
from handlers.spark.options import SparkOptions
from handlers.spark.read.log_heads import head_of
from handlers.spark.table_ref import TableRef, path_of


@dataclass(frozen=True, slots=True)
class Found:
    """A source table with a Spark table, or a log, or both."""

    database: str
    table: str
    ref: TableRef
    mode: str

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"


def found_tables(files: Files, locations: Locations, options: SparkOptions) -> Iterator[Found]:
    """Yield the handler's tables: those with a log, and those in folders that match its `path`.

    A table of a catalog is only found by its log. Raises BrokenLog, and what the store raises."""
    seen: set[tuple[str, str]] = set()
    for folder, owner in logs_below(files, locations.logs):
        ref = locations.ref(owner.database, owner.table)
        # Other handlers may have logs here, too.
        own = Owner(owner.database, owner.table, options.mode, options.prefix, options.table or "")
        if ref.log_folder == folder and fits(owner, own):
            seen.add((owner.database, owner.table))
            yield Found(owner.database, owner.table, ref, options.mode)
    if options.table is not None:
        return
    for database, table in _by_folder(files, locations, options.format == "parquet"):
        if (database, table) not in seen:
            yield Found(database, table, locations.ref(database, table), options.mode)


def _by_folder(files: Files, locations: Locations, are_logs: bool) -> Iterator[tuple[str, str]]:
    """Yield databases and tables of the folders that match the handler's `path` and contain a table."""
    names = ("binlaneDatabase", "binlaneTable")
    sample = locations.ref(*names).path
    assert sample is not None
    pattern = re.escape(sample.removeprefix(f"{locations.root}/"))
    for group, name in zip(("database", "table"), names, strict=True):
        pattern = pattern.replace(name, f"(?P<{group}>[^/]+)", 1).replace(name, f"(?P={group})")
    expression = re.compile(pattern)
    depth = sample.removeprefix(locations.root).count("/")
    for path in _folders(files, locations.root, depth):
        match = expression.fullmatch(path.removeprefix(f"{locations.root}/"))
        if match is None:
            continue
        names_found = {group: path_of(text) for group, text in match.groupdict().items()}
        there = head_of(files, path) is not None if are_logs else has_commits(files, path)
        if there:
            yield names_found.get("database", ""), names_found["table"]


def _folders(files: Files, folder: str, depth: int) -> Iterator[str]:
    for entry in sorted(files.list(folder), key=lambda entry: entry.name):
        if entry.is_folder and not entry.name.startswith(("_", ".")):
            path = f"{folder}/{entry.name}"
            if depth == 1:
                yield path
            else:
                yield from _folders(files, path, depth - 1)
