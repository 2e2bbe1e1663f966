"""Finds and reads logs from outside, and the packs after them. Changes nothing, and needs no Spark.

Lists a handler's tables: those with a log, and those in folders that match its `path`."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from handlers.spark.delta.log_files import has_commits
from handlers.spark.locations import LOGS, PENDING, Locations
from handlers.spark.log.beside import Owner, ToldHeld, fits, logs_below
from handlers.spark.log.pack_file import PackFolder, Piece, read_piece, rows_of
from handlers.spark.log.segment_file import Head, read_head
from handlers.spark.log.segment_folder import segments_in
from handlers.spark.log.stores.interface import Files, scheme_of
from handlers.spark.log.streams import read_stream
from handlers.spark.options import SparkOptions
from handlers.spark.read.view import NothingToSee
from handlers.spark.rows.shape import Mode, Shape, shape_of_log
from handlers.spark.table_ref import TableRef, path_of, quoted

_LOOKS = 5
"""The most attempts to read a log while a worker changes it."""


class End(NamedTuple):
    """The end of a log, including segments after statements."""

    head: Head
    is_alone: bool
    """Whether it is the only segment."""


def head_of(files: Files, folder: str) -> Head | None:
    """Return the last segment that views read, None without one. Raises BrokenLog and what the store
    raises."""
    end = end_of(files, folder, hidden=False)
    return None if end is None else end.head


def end_of(files: Files, folder: str, *, hidden: bool = True) -> End | None:
    """Return the last segment, None without one. `hidden`: see `segments_in`. Raises like `head_of`."""
    for look in range(1, _LOOKS + 1):
        found = segments_in(files, folder, hidden=hidden)
        if not found:
            return None
        number = max(found)
        try:
            return End(read_head(files, *found[number]), len(found) == 1)
        except FileNotFoundError:
            if look == _LOOKS:  # the log was removed or recreated since it was listed
                raise
    return None


def log_of(files: Files, folder: str, *, after: int = 0, hidden: bool = True) -> Sequence[Head]:
    """Return all segments after a number, in order. The last segment is always included, because it contains
    the marks of the whole table. Costs one small read per segment. `hidden`: see `segments_in`."""
    heads: list[Head] = []
    found = segments_in(files, folder, hidden=hidden)
    for number in sorted(found):
        if number > after or number == max(found):
            try:
                heads.append(read_head(files, *found[number]))
            except FileNotFoundError:
                continue  # merged and removed meanwhile
    return heads


def mode_of(schema: pa.Schema, prefix: str) -> Mode:
    """Return the mode that writes segments with these columns. Raises LookupError if no mode does."""
    names = set(schema.names)
    if f"{prefix}op" in names and f"{prefix}source_time" in names:
        if f"{prefix}sql" in names:
            return "changelog"
        if f"{prefix}absent" in names:
            return "history" if f"{prefix}topic" in names else "replica"
    raise LookupError(f"its segments have no columns of binlane with the prefix {prefix!r}: which prefix?")


def shown_shape(
    files: Files, ref: TableRef, head: Head, prefix: str, *, is_kept: bool = False
) -> tuple[Mode, Shape]:
    """Return the mode of a table and the shape of its rows. For views, its log ends with `head`.

    `is_kept`: the shape is used later, too, when other rows may exist. Raises NothingToSee, and LookupError
    for another prefix. No columns: show the table alone."""
    mode = mode_of(head.segment.schema, prefix)
    shape = shape_of_log(head.segment.schema, head.segment.key, mode=mode, prefix=prefix)
    is_mark = not head.segment.rows and head.segment.statement is None
    if is_mark and not is_kept and _is_of_another(files, ref, head.segment.number):
        return mode, Shape(pa.schema([]), ())
    if head.segment.statement is not None:
        after = shape_of_log(*head.segment.after, mode=mode, prefix=prefix)
        if ToldHeld(files, ref.log_folder).look().followed >= head.segment.number:
            shape = _without_gone(ref, shape, after, is_kept=is_kept)
    return mode, shape


def _is_of_another(files: Files, ref: TableRef, number: int) -> bool:
    """Whether a log that ends with this segment is about a table that has left. Another one has its name
    since, say after a swap. Nothing waits for that one."""
    is_there = ref.path is None or has_commits(files, ref.path)
    return is_there and ToldHeld(files, ref.log_folder).look().left >= number


def _without_gone(ref: TableRef, shape: Shape, after: Shape, *, is_kept: bool) -> Shape:
    """Remove columns that the table no longer has, if its log ends with a followed statement and views read
    nothing after it. `is_kept`: the view is also queried later, when rows with all columns may exist."""
    there = {name.lower() for name in after.schema.names}
    fields = [field for field in shape.schema if field.name.lower() in there]
    if is_kept and len(fields) < len(there):
        raise NothingToSee(
            f"the columns of {ref} have just changed, and no row with them is visible yet: create the view "
            "when the worker has continued"
        )
    return Shape(pa.schema(fields), after.key)


def ref_at(files: Files, path: str, log: str | None = None) -> TableRef:
    """Return the table in `path`, a folder or URI. `log`: its log's folder, by default found above the table.

    Raises BrokenLog and what the store raises."""
    found = f"{log.rstrip('/')}/{PENDING}" if log is not None else _log_above(files, path)
    if found == path:
        return TableRef(f"parquet.{quoted(path)}", path, path)
    return TableRef(f"delta.{quoted(path)}", path, found or f"{path}/{PENDING}")


def _log_above(files: Files, path: str) -> str | None:
    """Find the segments of the table in `path`. Its log is in a folder above, at the same relative path."""
    for folder in _above(path):
        log = f"{folder}/{LOGS}{path.removeprefix(folder)}/{PENDING}"
        if files.exists(log):
            return log
    if head_of(files, path) is not None:  # mode changelog, format parquet
        return path
    real = path if scheme_of(path) else os.path.realpath(path)  # the folder may be a link
    return None if real == path else _log_above(files, real)


def _above(path: str) -> Iterator[str]:
    root = path.find("://") + 3 if "://" in path else 0
    while path.rfind("/") > root:
        path = path.rpartition("/")[0]
        yield path


class Shared:
    """The state of one moment: each stream is read once, when first needed. Any thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()  # guards the next
        self._streams: dict[tuple[str, str], dict[str, list[tuple[int, Piece]]]] = {}

    def pieces(self, folder: str, head: Head) -> Sequence[Piece]:
        """Return the pieces after `head`, the last segment of the log in `folder`, in order. Raises
        BrokenLog, and what the store raises."""
        return [piece for _, piece in self._found(folder, head)]

    def rows(self, folder: str, head: Head) -> pa.Table | None:
        """Return their rows, in order. None without pieces. Raises like `pieces`, and FileNotFoundError if
        they are obsolete, because the log has continued."""
        bodies = [
            read_piece(self._files, path, piece.begin, piece.size, piece.checksum)
            for path, piece in self._found(folder, head)
        ]
        return pa.concat_tables(map(rows_of, bodies)) if bodies else None

    def _found(self, folder: str, head: Head) -> Iterator[tuple[str, Piece]]:
        if head.stream is None:
            return
        for logs in _roots(folder):
            packs = PackFolder(self._files, logs, head.stream)
            with self._lock:
                if (logs, head.stream) not in self._streams:
                    self._streams[logs, head.stream] = read_stream(self._files, logs, head.stream)
                found = self._streams[logs, head.stream].get(folder.removeprefix(f"{logs}/"), [])
            for number, piece in found:
                if piece.after == head.segment.number:
                    yield packs.place(number), piece


def _roots(folder: str) -> Iterator[str]:
    """Yield the folders of all logs that the log may be in: a database may be named like them."""
    parts = folder.split("/")
    for place, part in enumerate(parts):
        if part == LOGS:
            yield "/".join(parts[: place + 1])


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
