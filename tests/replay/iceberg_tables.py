"""What `spark` handlers keep of a stream in Iceberg."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from delta_tables import Place
from replica import Differences, Row, Workload, compare_all

__all__ = ["IcebergTables"]

_PLACE = ("_op", "_topic", "_partition", "_offset", "_index")


class IcebergTables:
    """The tables of one catalog: a handler's are in the namespaces that begin with its name."""

    def __init__(self, catalog: Any, handler: str) -> None:
        self._catalog = catalog
        self._handler = handler
        self._tables = {
            f"{database}.{name[-1]}": name
            for namespace in catalog.list_namespaces()
            for name in catalog.list_tables(namespace)
            if (database := ".".join(name[:-1]).removeprefix(f"{handler}-")) != ".".join(name[:-1])
        }

    @property
    def names(self) -> set[str]:
        return set(self._tables)

    def rows(self, table: str) -> list[Row]:
        rows: list[Row] = self._catalog.load_table(self._tables[table]).scan().to_arrow().to_pylist()
        return rows

    def current(self, table: str) -> list[Row]:
        """Those rows of a history that the source has now."""
        return [row for row in self.rows(table) if row["_current"]]

    def differences(
        self, tables: Sequence[str] | None = None, workload: Workload | None = None
    ) -> Differences:
        """Of replicas: see Replica.differences."""
        return compare_all(self.names, self.rows, tables, workload)

    def places(self) -> Counter[Place]:
        """Of a changelog, where each of its rows comes from."""
        return Counter(
            (table, *(row[name] for name in _PLACE)) for table in self.names for row in self.rows(table)
        )
