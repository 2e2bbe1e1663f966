"""A handler that keeps Iceberg tables, of a catalog in a folder of its own, and changes to give it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog
from spark_lake import TYPES, Counted, begun, change

from handlers import Batch, Change

__all__ = ["TYPES", "IcebergLake", "change"]

_LATER = {"max_age": "1h", "at_close": "0s"}  # what waits is merged when a test says so


class IcebergLake:
    """A worker's handler, and what is in its tables."""

    def __init__(
        self,
        folder: Path,
        *,
        mode: str = "replica",
        merge: Mapping[str, Any] = {},
        catalog: Mapping[str, Any] = {},
        warehouse: str = "lake",
        **options: Any,
    ) -> None:
        """`catalog`: in place of SQLite's."""
        self.folder = folder
        self.catalog_properties = {"type": "sql", "uri": "sqlite:///catalog.db", **catalog}
        self.warehouse = warehouse
        self.options = {"mode": mode, "format": "iceberg", "merge": {**_LATER, **merge}, **options}
        self.metrics = Counted()
        self.partitions = {("cdc", 0)}
        self.open()

    def open(self) -> None:
        """As a worker that starts."""
        spark = {"iceberg": self.catalog_properties, "warehouse": self.warehouse}
        self.handler = begun(self.options, self.folder, spark, self.metrics, lambda: self.partitions)

    def close(self) -> None:
        """As a worker that is killed: what waits stays beside the table."""
        self.handler.close()

    def merge(self) -> None:
        """Merge what waits."""
        for each in self.handler._open._tables.known():  # type: ignore[union-attr]
            each.merge()

    def crash(self) -> None:
        """A worker that was killed and starts again."""
        self.close()
        self.open()

    def take(self, *changes: Change, table: str = "shop.orders") -> None:
        database, _, name = table.partition(".")
        self.handler.handle(Batch(table, changes, database=database, name=name))

    def status(self, table: str = "shop.orders") -> dict[str, Any]:
        found = self.handler.status()
        assert found is not None
        return {each["table"]: each for each in found["tables"]}.get(table, {})

    # ---- what a user sees

    @property
    def catalog(self) -> Any:
        """As another program has it."""
        given = {**self.catalog_properties, "warehouse": str(self.folder / "lake/iceberg")}
        given["uri"] = given["uri"].replace("sqlite:///", f"sqlite:///{self.folder}/")
        return load_catalog("default", **given)

    def table(self, name: str = "shop.orders") -> Any:
        return self.catalog.load_table(name)

    def rows(self, name: str = "shop.orders") -> list[dict[str, Any]]:
        """Of the table, in order."""
        return sorted(self.table(name).scan().to_arrow().to_pylist(), key=repr)

    def types(self, name: str = "shop.orders") -> dict[str, str]:
        return {each.name: str(each.field_type) for each in self.table(name).schema().fields}
