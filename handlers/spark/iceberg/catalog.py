"""The Iceberg catalog of a worker, by PyIceberg's configuration."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from handlers.api import TargetUnavailable
from handlers.spark.iceberg.errors import is_outage
from handlers.spark.locations import location
from handlers.spark.section import SparkSection

Name = tuple[str, ...]
"""A table's namespace and its own name."""
# It tells of each table that it reads files with PyArrow.
logging.getLogger("pyiceberg").setLevel(logging.WARNING)
_SQL_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
}


class IcebergCatalog:
    """Loads tables, and creates their namespaces. Connects at the first use. Any thread may call any method.

    Methods raise TargetUnavailable while the catalog cannot be reached, RuntimeError if it is not well
    configured, and what PyIceberg raises."""

    def __init__(self, section: SparkSection, folder: Path) -> None:
        """`folder`: where relative paths begin (the configuration file's folder)."""
        given = {name: _text(value) for name, value in section.iceberg.items()}
        self._name = given.pop("name", "default")
        self._given = _completed(given, section, folder)
        self._lock = threading.Lock()  # guards the next
        self._loaded: Any = None

    def open(self) -> None:
        """Connect, unless the catalog is away: batches wait for it. Raises RuntimeError."""
        with suppress(TargetUnavailable):
            self._catalog()

    def check(self) -> None:
        """Ask the catalog for its namespaces."""
        self._catalog().list_namespaces()

    def load(self, name: Name) -> Any:
        """Return the table, None if it does not exist."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError  # noqa: PLC0415 (an extra)

        try:
            table = self._catalog().load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        # PyIceberg would repeat a refused commit on top of the other writer's, which may have the same rows.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        return table

    def creating(self, name: Name, **table: Any) -> Any:
        """Begin the creation of a table, in the namespace that it needs. `table`: as for PyIceberg's
        `create_table`. Returns a transaction, which fails if the table exists by then."""
        catalog = self._catalog()
        for length in range(1, len(name)):
            catalog.create_namespace_if_not_exists(name[:length])
        return catalog.create_table_transaction(name, **table)

    def drop(self, name: Name) -> None:
        """Remove a table with its files."""
        self._catalog().purge_table(name)

    def rename(self, name: Name, to: Name) -> None:
        """Give a table another name. Its files stay where they are."""
        self._catalog().create_namespace_if_not_exists(to[:-1])
        self._catalog().rename_table(name, to)

    def _catalog(self) -> Any:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._connected()
            return self._loaded

    def _connected(self) -> Any:
        # Its import takes more than a second, so only users of this format pay for it.
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 (see above)

        try:
            return load_catalog(self._name, **self._given)
        except Exception as error:
            if is_outage(error):
                raise TargetUnavailable(f"the Iceberg catalog cannot be reached: {error}") from error
            raise RuntimeError(
                f"the Iceberg catalog {self._name!r} cannot be used ({type(error).__name__}: {error}): set "
                "spark.iceberg to PyIceberg's properties, such as {type: sql, uri: sqlite:///catalog.db}"
            ) from error


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _completed(given: Mapping[str, str], section: SparkSection, folder: Path) -> dict[str, str]:
    """Return the properties with what follows from others. A REST catalog's warehouse is its own affair."""
    kind, properties = given.get("type", ""), dict(given)
    if kind == "sql" and "uri" in given:
        properties["uri"] = _database(given["uri"], folder)
        properties.setdefault("pool_pre_ping", "true")
    if kind in ("sql", "hive", "glue", "dynamodb"):
        # A folder of its own: Delta's VACUUM removes files that are not its table's.
        own = f"{section.warehouse.rstrip('/')}/iceberg"
        properties["warehouse"] = location(given.get("warehouse", own).rstrip("/"), folder)
    return properties


def _database(uri: str, folder: Path) -> str:
    """Return the address of an SQL catalog with the drivers that binlane has. A relative SQLite file belongs
    into the configuration's folder, which is created."""
    try:
        url = make_url(uri)
    except ArgumentError:
        return uri  # PyIceberg reports it
    url = url.set(drivername=_SQL_DRIVERS.get(url.drivername, url.drivername))
    if url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:"):
        file = Path(folder.absolute(), str(url.database))
        file.parent.mkdir(parents=True, exist_ok=True)
        url = url.set(database=str(file))
    return url.render_as_string(hide_password=False)
