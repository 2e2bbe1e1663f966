"""Where a handler's tables are, and beside them the segments that wait for a merge.

lake/shop/orders/                        the Delta table
lake/_binlane/shop/orders/table.json     the owner of the log beside it: source table, mode, prefix
lake/_binlane/shop/orders/pending/       its segments"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import Formatter

from handlers.api import Rejected
from handlers.options.templates import literal
from handlers.spark.options import SparkOptions, SparkSection
from handlers.spark.table_ref import TableRef, app_id, path_safe, quoted

LOGS = "_binlane"
"""The folder of all logs. Spark and Delta ignore names that begin with an underscore."""
PENDING = "pending"
CATALOG = "!catalog"
"""A folder among the logs: the owners of a catalog's tables. No database has this name (see `path_safe`)."""
ICEBERG = "!iceberg"
"""The same: the logs of Iceberg tables, so that a table can be kept in Delta as well."""


class Locations:
    """Maps names of source tables to the places of their Spark tables."""

    def __init__(self, options: SparkOptions, section: SparkSection, folder: Path) -> None:
        """`folder`: where relative paths begin (the configuration file's folder)."""
        warehouse = location(section.warehouse.rstrip("/"), folder)
        self._catalog = options.catalog_table
        template = options.path or f"{literal(section.warehouse.rstrip('/'))}/{{database}}/{{table}}"
        is_whole = _is_uri(template)
        self._path = template if is_whole else str(Path(literal(str(folder.absolute())), template))
        # The folder above the first one whose name contains a field.
        self.root = warehouse if self._catalog else _before_fields(self._path).rpartition("/")[0]
        """The folder that contains all tables. For a catalog's tables, the warehouse."""
        self._is_log = options.format == "parquet"
        self._is_iceberg = options.format == "iceberg"

    @property
    def logs(self) -> str:
        """The folder of the logs of all tables."""
        return f"{self.root}/{LOGS}/{ICEBERG}" if self._is_iceberg else f"{self.root}/{LOGS}"

    def ref(self, database: str, table: str) -> TableRef:
        """The Spark table of a source table."""
        app = app_id(database, table)
        if self._catalog is not None:
            parts = self.in_catalog(database, table)
            place = parts if self._is_iceberg else (database, table)
            log = "/".join([self.logs, *map(path_safe, place), PENDING])
            return TableRef(".".join(map(quoted, parts)), None, log, app)
        path = self._path.format(database=path_safe(database), table=path_safe(table))
        if self._is_log:
            return TableRef(f"parquet.{quoted(path)}", path, path, app)
        log = f"{self.logs}{path.removeprefix(self.root)}/{PENDING}"
        return TableRef(f"delta.{quoted(path)}", path, log, app)

    def in_catalog(self, database: str, table: str) -> Sequence[str]:
        """The parts of a table's name in the catalog. Empty with a path."""
        parts = (self._catalog or "").split(".")
        return [part.format(database=database, table=table) for part in parts]

    def ref_to_write(self, database: str, table: str) -> TableRef:
        """The same. Raises Rejected for a table that would be among the logs."""
        ref = self.ref(database, table)
        if ref.path is not None and f"{ref.path}/".startswith(f"{self.logs}/"):
            raise Rejected(
                f"{database}.{table} would be kept in {ref.path}, but binlane uses {self.logs} for its own "
                f"files: give the handler another path for it, such as {self.root}/of/{{database}}/{{table}}"
            )
        return ref

    def signed_folders(self, database: str, table: str) -> tuple[str, ...]:
        """The folders in which `sign` records the owner of a source table's table, its log's folder first. If
        a table is its own log, that folder has only Parquet files, so the record is where another table's log
        would be. A catalog's table also has a record by its name there, which ignores case and may omit the
        database."""
        ref = self.ref(database, table)
        if self._catalog is not None:
            own = [path_safe(part.lower()) for part in self.in_catalog(database, table)]
            return ref.log_folder, "/".join([self.logs, CATALOG, *own[own[0] == "spark_catalog" :], PENDING])
        if self._is_log and ref.path is not None:
            return (f"{self.logs}{ref.path.removeprefix(self.root)}/{PENDING}",)
        return (ref.log_folder,)


def location(path: str, folder: Path) -> str:
    """Return `path` as Spark takes it: a URI unchanged, a relative path beginning at `folder`."""
    return path if _is_uri(path) else str(Path(folder.absolute(), path))


def _is_uri(path: str) -> bool:
    return "://" in path or path.startswith("file:")


def _before_fields(template: str) -> str:
    before = ""
    for text, field, _, _ in Formatter().parse(template):
        before += text
        if field is not None:
            break
    return before
