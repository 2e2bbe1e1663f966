"""OPTIMIZE and VACUUM without Spark, for the tables whose commits need no Spark either."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

import pyarrow as pa

from handlers.logs import get_logger
from handlers.spark.delta.checkpoints import duration_ms
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.data_files import OnlySpark
from handlers.spark.delta.few_files import Rewrite, TableFile, files_of
from handlers.spark.delta.log_files import snapshot_in_files
from handlers.spark.delta.own_commit import NextVersion
from handlers.spark.delta.upkeep import LARGE
from handlers.spark.log.stores.interface import Files
from handlers.spark.table_ref import TableRef

_MOST_BYTES = 512 * 2**20
"""The most bytes that are rewritten in the worker's process."""
_TOGETHER = 32 * 2**20
"""The size up to which files become one. Files of half this size stay as they are."""
_MOST_MEMORY = 512 * 2**20

_log = get_logger("spark")


def needs_optimize(files: Files, ref: TableRef, min_files: int) -> bool:
    """Whether a table has at least `min_files`, and they are small. True if its log's files do not say."""
    if ref.path is not None and not files.exists(f"{ref.path}/_delta_log"):
        return False
    found = None if ref.path is None else snapshot_in_files(files, ref.path)
    if found is None:
        return True
    sizes = [each.size for each in found.files.values()]
    return len(sizes) >= min_files and sum(sizes) <= len(sizes) * LARGE


def optimized(table: NextVersion, ref: TableRef) -> bool:
    """Rewrite small files as larger ones. Returns False, with nothing changed, if Spark must do it. Raises
    OSError."""
    assert table.base is not None
    found = files_of(table.base, table.columns, ())
    if found is None or sum(each.size for each in found) > _MOST_BYTES:
        return False
    together = list(_together(found))
    if not together:
        return True
    removed = [each for some in together for each in some]
    try:
        rows = Rewrite(removed, _read(table, together))
        table.put("OPTIMIZE", {"predicate": "[]"}, rows=rows, changes_data=False)
    except MergeConflict:
        _log.info("delta_optimize_put_off", table=str(ref), files=len(removed))
    except (OnlySpark, pa.ArrowException) as error:
        _log.warning("optimize_without_spark_failed", table=str(ref), error=str(error))
        return False
    else:
        _log.info("delta_optimized", table=str(ref), files=len(removed))
    return True


def _together(found: Sequence[TableFile]) -> Iterator[list[TableFile]]:
    some: list[TableFile] = []
    for each in (*(each for each in found if each.size * 2 <= _TOGETHER), None):
        if each is None or sum(one.size for one in (*some, each)) > _TOGETHER:
            if len(some) > 1:
                yield some
            some = []
        if each is not None:
            some.append(each)


def _read(table: NextVersion, together: Sequence[Sequence[TableFile]]) -> Iterator[pa.Table]:
    few = table.few_files({}, _MOST_MEMORY)
    for some in together:
        rows = few.read(some, table.columns.named.names)
        if rows is None:
            raise OnlySpark(table.path, "has rows that are too large, or have dates of the former calendar")
        yield rows


def vacuumed(table: NextVersion, retention: float) -> bool:
    """Remove files that no version of the last `retention` seconds needs. The table's own setting applies if
    it is longer. Returns True. Raises what the store raises."""
    assert table.base is not None
    own = duration_ms(table.base.metadata.configuration.get("delta.deletedFileRetentionDuration", "0 days"))
    before = time.time() * 1000 - max(retention * 1000, own or 0)
    needed = {unquote(path) for path in table.base.files}
    needed |= {unquote(path) for path, moment in table.base.removed.items() if moment >= before}
    for each in table.files.list(table.path):
        is_data = not each.is_folder and not each.name.startswith(("_", "."))
        if is_data and each.name not in needed and 0 < each.modified_ms < before:
            table.files.delete(f"{table.path}/{each.name}")
    return True
