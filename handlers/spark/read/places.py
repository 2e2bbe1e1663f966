"""Finds the log of a table at a place."""

from __future__ import annotations

import os
from collections.abc import Iterator

from handlers.spark.locations import LOGS, PENDING
from handlers.spark.log.stores.interface import Files, scheme_of
from handlers.spark.read.log_heads import head_of
from handlers.spark.table_ref import TableRef, quoted


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
