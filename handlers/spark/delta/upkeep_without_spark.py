"""OPTIMIZE and VACUUM without Spark, for the tables whose commits need no Spark either."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from handlers.logs import get_logger
from handlers.spark.delta.log_files import snapshot_in_files
from handlers.spark.delta.plain_table import exact_bounds, no_upkeep
from handlers.spark.delta.upkeep import LARGE
from handlers.spark.log.stores.interface import Files
from handlers.spark.log.stores.local import plain_path
from handlers.spark.rows.parquet_files import has_former_dates, has_nanoseconds
from handlers.spark.table_ref import TableRef

if TYPE_CHECKING:
    import deltalake

_MOST_BYTES = 512 * 2**20
"""The largest table, in bytes, that is rewritten in the worker's process."""
_HOUR = 3600
_KEPT = "delta.deletedFileRetentionDuration"
_UNITS = {"second": 1 / 3600, "minute": 1 / 60, "hour": 1, "day": 24, "week": 168}

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


def optimized(rs: Any, table: deltalake.DeltaTable, ref: TableRef) -> bool:
    """Rewrite small files as larger ones. Returns False, with nothing changed, if Spark must do it. Raises
    OSError."""
    adds = table.get_add_actions(flatten=True)
    sizes, paths = adds["size_bytes"].to_pylist(), adds["path"].to_pylist()
    if sum(sizes) > _MOST_BYTES or any(set("% :") & set(each) for each in paths):
        return False
    # `to_pyarrow_dataset` reads the bounds, too: it fails at years before 1 and after 9999, and panics.
    folder, form = plain_path(ref.path or ""), ds.ParquetFileFormat()
    found = [form.make_fragment(f"{folder}/{each}", LocalFileSystem()) for each in paths]
    dataset = ds.FileSystemDataset(found, pa.schema(table.schema().to_arrow()), form)
    if has_former_dates(dataset) or has_nanoseconds(dataset):
        return False
    try:
        table.optimize.compact(
            writer_properties=exact_bounds(rs, pa.schema(table.schema().to_arrow())),
            commit_properties=rs.CommitProperties(max_commit_retries=0),
            post_commithook_properties=no_upkeep(rs),
        )
    except rs.exceptions.CommitFailedError:
        _log.info("delta_optimize_put_off", table=str(ref), files=len(sizes))
    except rs.exceptions.DeltaError as error:
        _log.warning("optimize_without_spark_failed", table=str(ref), error=str(error))
        return False
    else:
        _log.info("delta_optimized", table=str(ref), files=len(sizes))
    return True


def vacuumed(table: deltalake.DeltaTable, retention: float) -> bool:
    """Remove files that no version of the last `retention` seconds needs. The table's own setting applies if
    it is longer. Returns False, with nothing changed, if Spark must do it: delta-rs counts whole hours."""
    own = re.match(r"(?i)interval (\d+) (\w+?)s?$", table.metadata().configuration.get(_KEPT, ""))
    kept = max(retention / _HOUR, float(own[1]) * _UNITS[own[2].lower()] if own else 0)
    if kept % 1:
        return False
    table.vacuum(int(kept), dry_run=False, enforce_retention_duration=False, full=True)
    return True
