"""Where the tables of one handler are, and beside them what waits to be brought in.

lake/shop/orders/                        the Delta table
lake/_binlane/shop/orders/table.json     whose the log beside it is: source table, mode, prefix
lake/_binlane/shop/orders/pending/       its segments"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import Formatter

from handlers.api import Rejected
from handlers.spark.options import SparkOptions
from handlers.spark.section import SparkSection
from handlers.spark.table_ref import TableRef, app_id, path_safe, quoted

LOGS = "_binlane"
"""The folder of all logs; Spark and Delta pass over names that begin with an underscore."""
PENDING = "pending"
CATALOG = "!catalog"
"""In the folder of all logs, and no database's (see `path_safe`): whose the tables of a catalog are."""


class Locations:
    """Names of source tables -> where their Spark tables are."""

    def __init__(self, options: SparkOptions, section: SparkSection, folder: Path) -> None:
        """`folder`: what relative paths begin at (the configuration file's)."""
        warehouse = location(section.warehouse.rstrip("/"), folder)
        self._catalog = options.table
        template = options.path or f"{_braces(section.warehouse.rstrip('/'))}/{{database}}/{{table}}"
        self._path = _location_template(template, folder)
        # The folder above the first one that holds a name.
        self._root = warehouse if self._catalog else _before_fields(self._path).rpartition("/")[0]
        self._is_log = options.format == "parquet"

    @property
    def logs(self) -> str:
        """The folder of the logs of all tables."""
        return f"{self._root}/{LOGS}"

    @property
    def root(self) -> str:
        """The folder that all the tables are in; of a catalog's tables, the warehouse."""
        return self._root

    def ref(self, database: str, table: str) -> TableRef:
        """The table of a source table."""
        app = app_id(database, table)
        if self._catalog is not None:
            parts = self._in_catalog(database, table)
            log = f"{self.logs}/{path_safe(database)}/{path_safe(table)}/{PENDING}"
            return TableRef(".".join(map(quoted, parts)), None, log, app)
        path = self._path.format(database=path_safe(database), table=path_safe(table))
        if self._is_log:
            return TableRef(f"parquet.{quoted(path)}", path, path, app)
        log = f"{self.logs}{path.removeprefix(self._root)}/{PENDING}"
        return TableRef(f"delta.{quoted(path)}", path, log, app)

    def _in_catalog(self, database: str, table: str) -> Sequence[str]:
        """The parts of a table's name in the catalog; none with a path."""
        parts = (self._catalog or "").split(".")
        return [part.format(database=database, table=table) for part in parts]

    def ref_to_write(self, database: str, table: str) -> TableRef:
        """The same. Raises Rejected for a table that would be among the logs."""
        ref = self.ref(database, table)
        if ref.path is not None and f"{ref.path}/".startswith(f"{self.logs}/"):
            raise Rejected(
                f"{database}.{table} would be kept in {ref.path}, but binlane uses {self.logs} for its own "
                f"files: give the handler another path for it, such as {self._root}/of/{{database}}/{{table}}"
            )
        return ref

    def signed_folders(self, database: str, table: str) -> tuple[str, ...]:
        """Where `sign` is to write down whose the table of a source table is, its log's folder first; of a
        table that is its own log, where another's would be: in it there are plain Parquet files alone. Of a
        catalog's table, also by its name there, which knows no case and need not tell the database."""
        ref = self.ref(database, table)
        if self._catalog is not None:
            own = [path_safe(part.lower()) for part in self._in_catalog(database, table)]
            return ref.log_folder, "/".join([self.logs, CATALOG, *own[own[0] == "spark_catalog" :], PENDING])
        if self._is_log and ref.path is not None:
            return (f"{self.logs}{ref.path.removeprefix(self._root)}/{PENDING}",)
        return (ref.log_folder,)


def location(path: str, folder: Path) -> str:
    """`path` as Spark takes it: a URI as it is, a relative path beginning at `folder`."""
    return path if _is_uri(path) else str(Path(folder.absolute(), path))


def _location_template(template: str, folder: Path) -> str:
    return template if _is_uri(template) else str(Path(_braces(str(folder.absolute())), template))


def _is_uri(path: str) -> bool:
    return "://" in path or path.startswith("file:")


def _before_fields(template: str) -> str:
    before = ""
    for literal, field, _, _ in Formatter().parse(template):
        before += literal
        if field is not None:
            break
    return before


def _braces(text: str) -> str:
    """Text that stands for itself in a template."""
    return text.replace("{", "{{").replace("}", "}}")
