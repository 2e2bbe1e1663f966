"""A target database with a `sql` handler on it, and the target's rows as Python values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from psycopg.types.json import set_json_loads

from handlers import Batch
from handlers.metrics import NO_METRICS, HandlerMetrics
from handlers.sql import SqlHandler
from handlers.sql.naming import Naming
from handlers.testing import make_batch, opened
from worker.column_rules.applying import bring_under
from worker.configuration import Configuration

__all__ = ["SqlLab", "orders", "ruled"]

DATABASES = ("shop", "crm")
"""The source databases that tests use; MySQL's are the server's, so earlier tests leave theirs."""


class SqlLab:
    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.engine = sa.create_engine(url)
        self.dialect = self.engine.dialect.name
        self.naming = Naming.of(self.dialect)
        if self.dialect == "postgresql":
            sa.event.listen(self.engine, "connect", _keep_json_as_text)
        if self.dialect == "mysql":
            for name in DATABASES:
                self.run(f"DROP DATABASE IF EXISTS {name}")

    @contextmanager
    def handler(
        self,
        worker: str = "w",
        metrics: HandlerMetrics = NO_METRICS,
        handles: Callable[[str], bool] | None = None,
        **options: Any,
    ) -> Iterator[SqlHandler]:
        """Another one is another process of the worker."""
        made = SqlHandler(url=self.url, **options)
        context = {"worker": worker, "lanes": 4, "metrics": metrics, "handles": handles}
        with opened(made, self.folder, **context) as handler:
            yield handler

    def ref(self, table: str) -> str:
        """The target's table of a source table, quoted."""
        database, _, name = table.partition(".")
        quote = self.engine.dialect.identifier_preparer.quote_identifier
        parts = [quote(part) for part in self.naming.target(database, name) if part is not None]
        if self.dialect == "duckdb":
            parts.insert(0, "shop")  # its file: else the schema of this name is not meant alone
        return ".".join(parts).replace("%%", "%")  # doubled for statements with parameters

    def run(self, sql: str) -> Sequence[sa.Row[Any]]:
        with self.engine.begin() as connection:
            result = connection.exec_driver_sql(sql, execution_options={"no_parameters": True})
            return result.all() if result.returns_rows else []

    def make(self, table: str, columns: str) -> None:
        """A table that the handler finds. `columns` is what stands in the brackets."""
        schema = self.naming.target(*table.split("."))[0]
        if schema is not None:
            kind = "DATABASE" if self.dialect == "mysql" else "SCHEMA"
            own = "shop." if self.dialect == "duckdb" else ""
            self.run(f"CREATE {kind} IF NOT EXISTS {own}{schema}")
        self.run(f"CREATE TABLE {self.ref(table)} ({columns})")

    def rows(self, table: str = "shop.orders", columns: str = "*") -> list[dict[str, Any]]:
        """In the order of their texts."""
        with self.engine.connect() as connection:
            found = connection.exec_driver_sql(
                f"SELECT {columns} FROM {self.ref(table)}",
                execution_options={"no_parameters": True, "sqlite_raw_colnames": True},
            )
            return sorted((dict(row._mapping) for row in found), key=str)

    def has(self, table: str) -> bool:
        schema, name = self.naming.target(*table.split("."))
        return sa.inspect(self.engine).has_table(name, schema=schema)

    def marks(self) -> list[tuple[Any, ...]]:
        """(table, shard, topic, partition, offset, index), sorted."""
        return sorted(
            tuple(row)
            for row in self.run(
                "SELECT source_table, shard, topic, kafka_partition, kafka_offset, change_index "
                "FROM binlane_marks WHERE topic <> ''"
            )
        )

    def close(self) -> None:
        self.engine.dispose()


def orders(
    *changes: Mapping[str, Any],
    key: str | Sequence[str] | None = "id",
    table: str = "shop.orders",
    **fields: Any,
) -> Batch:
    """A batch of shop.orders with the key id."""
    return make_batch(table, changes, key=key, **fields)


def ruled(batch: Batch, **rule: Any) -> Batch:
    """The batch as the handler sees it under a rule of its table, such as deletes: mark."""
    kafka = {"bootstrap_servers": "x:1", "group_id": "g", "topics": ["t"]}
    tables = [{"match": batch.table, "handlers": [{"type": "sql", "url": "sqlite:///x"}], **rule}]
    [own] = Configuration.model_validate({"kafka": kafka, "tables": tables}).tables
    changes = list(batch.changes)
    names = {"database": batch.database, "table": batch.name}
    bring_under(own.row_rules, own.statement_rules, changes, 0, own.transforming, **names)
    return Batch(batch.table, tuple(changes), database=batch.database, name=batch.name)


def _keep_json_as_text(connection: Any, _: Any) -> None:
    set_json_loads(lambda text: text if isinstance(text, str) else bytes(text).decode(), connection)
