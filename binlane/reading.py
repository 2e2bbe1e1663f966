"""Tables of the `spark` handler as Arrow, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read"]


def read(
    table: str | Path, config: str | Path | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """Return a table of this moment, with the changes that are not merged yet.

    `table`: its folder or URI; with `config`, the configuration's path, its name in the source
    (`shop.orders`). If two handlers keep one source table, the replica is read. Another one has the name
    `shop.orders_changelog`. `columns`: None for all.

    Histories, and replicas without a key, are returned as of their last merge. Needs the extra `read`, and no
    Java. Raises LookupError if the table does not exist, or if only merged rows can be shown and there are
    none. Raises ValueError for an unknown column, and OnlySpark (a RuntimeError) for a table that only Spark
    reads. Raises OSError if the store refuses, and ConfigurationError."""
    try:  # the packages are imported when they are needed
        from handlers.spark.read.in_duckdb import read as read_one  # noqa: PLC0415 (see above)
        from handlers.spark.read.in_duckdb import read_at  # noqa: PLC0415 (see above)
    except ModuleNotFoundError as error:
        needs = "binlane.read needs DuckDB and Arrow, which are not installed: pip install '.[read]'"
        raise ModuleNotFoundError(f"{needs} ({error})", name=error.name) from None
    if config is None:
        return read_at(str(table), columns)
    from worker.configuration import load  # noqa: PLC0415 (see above)
    from worker.verifying.source_tables import SourceTables  # noqa: PLC0415 (see above)

    return read_one(SourceTables(load(Path(config), check_handlers=False)).of(str(table)), columns)
