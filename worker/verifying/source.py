"""Read the source database: its tables, and their rows as the driver returns them."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from worker.verifying import postgresql

Row = tuple[Any, ...]

_AT_ONCE = 2_000
"""Rows that the driver fetches at once."""
_KEYS_AT_ONCE = 200
_READ_ONLY = "SET SESSION TRANSACTION READ ONLY"
_JSON_CHECK = re.compile(r"json_valid\(`((?:[^`]|``)+)`\)", re.IGNORECASE)
"""MariaDB's JSON is text with this check."""
_CHECKS = sa.text(
    "SELECT CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS "
    "WHERE CONSTRAINT_SCHEMA = :schema AND TABLE_NAME = :name"
)
_SYSTEM = frozenset(("information_schema", "performance_schema", "mysql", "sys", "innodb", "pg_catalog"))


@dataclass(frozen=True, slots=True)
class SourceTable:
    """One table, with its columns in their order."""

    database: str
    name: str
    schema: str | None
    columns: Mapping[str, sa.types.TypeEngine[Any]]
    key: tuple[str, ...]
    """Its primary key."""
    above: tuple[str, ...] = ()
    """For a partition of PostgreSQL: the partitioned tables (`database.name`) that also show its rows."""

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"


class Source:
    """A read-only connection to PostgreSQL, MySQL, MariaDB or SQLite."""

    def __init__(self, url: sa.URL, folder: Path) -> None:
        """`url`: from `check_url`. `folder`: the folder that a relative SQLite path starts from."""
        self._only = url.database
        if url.get_backend_name() == "sqlite":
            path = folder / str(url.database)
            self._only = path.stem
            # Not created if it is missing.
            url = url.set(database=f"file:{path}", query={"mode": "ro", "uri": "true"})
        self._engine = sa.create_engine(url, hide_parameters=True, pool_size=2, **_options(url))
        self._dialect = self._engine.dialect.name
        sa.event.listen(self._engine, "connect", self._set_up)

    def tables(self) -> Iterator[SourceTable]:
        """Yield all tables that the URL's user can see (MySQL: those in the URL's database, if it has one).

        `database` is the name in change records: PostgreSQL's schema, SQLite's file without its suffix."""
        inspector = sa.inspect(self._engine)
        partitions = self._partitions()
        for schema in self._schemas(inspector):
            for name in sorted(inspector.get_table_names(schema)):
                key = inspector.get_pk_constraint(name, schema)["constrained_columns"]
                yield SourceTable(
                    schema or str(self._only),
                    self._unescaped(name),
                    schema,
                    self._columns(inspector, name, schema),
                    tuple(map(self._unescaped, key)),
                    tuple(map(".".join, partitions.get((str(schema), name), ()))),
                )

    def rows(self, table: SourceTable, columns: Sequence[str], order: Mapping[str, bool]) -> Iterator[Row]:
        """Yield all rows in the order of these columns. True: a text, sorted by its UTF-8 bytes."""
        query = self._select(table, columns).order_by(
            *(self._ordered(name, is_text) for name, is_text in order.items())
        )
        yield from self._run(query)

    def rows_of(
        self, table: SourceTable, columns: Sequence[str], keys: Sequence[Row], by: Sequence[str]
    ) -> Iterator[Row]:
        """Yield the rows with these keys, and perhaps others whose keys the database considers equal."""
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            same = [
                sa.and_(*(self._equal(table, name, value) for name, value in zip(by, key, strict=True)))
                for key in keys[start : start + _KEYS_AT_ONCE]
            ]
            yield from self._run(self._select(table, columns).where(sa.or_(*same)))

    def is_empty(self, table: SourceTable) -> bool:
        return not list(self._run(sa.select(sa.literal(1)).select_from(_table(table)).limit(1)))

    def close(self) -> None:
        self._engine.dispose()

    def _columns(
        self, inspector: sa.Inspector, name: str, schema: str | None
    ) -> dict[str, sa.types.TypeEngine[Any]]:
        with warnings.catch_warnings():
            # "Did not recognize type": such a column is read as text.
            warnings.simplefilter("ignore", sa.exc.SAWarning)
            found = inspector.get_columns(name, schema)
        columns = {self._unescaped(column["name"]): column["type"] for column in found}
        if self._dialect == "postgresql":
            return {column: postgresql.base_type(type_) for column, type_ in columns.items()}
        if getattr(self._engine.dialect, "is_mariadb", False):
            with self._engine.connect() as connection:
                for clause in connection.execute(_CHECKS, {"schema": schema, "name": self._unescaped(name)}):
                    for found in _JSON_CHECK.findall(clause[0]):
                        columns[self._unescaped(found)] = sa.JSON()
        return columns

    def _partitions(self) -> dict[tuple[str, str], list[tuple[str, str]]]:
        if self._dialect != "postgresql":
            return {}
        with self._engine.connect() as connection:
            return postgresql.partitions(connection)

    def _run(self, query: sa.Select[Any]) -> Iterator[Row]:
        """Yield rows as the server sends them, within one snapshot."""
        with self._engine.connect() as connection:
            result = connection.execution_options(stream_results=True, yield_per=_AT_ONCE).execute(query)
            for part in result.partitions():
                for row in part:
                    yield tuple(row)

    def _schemas(self, inspector: sa.Inspector) -> list[str | None]:
        if self._dialect == "sqlite":
            return [None]
        if self._dialect == "mysql" and self._only:
            return [self._only]
        return [name for name in inspector.get_schema_names() if name.lower() not in _SYSTEM]

    def _unescaped(self, name: str) -> str:
        # SQLAlchemy returns MySQL's names with the escapes of SHOW CREATE TABLE.
        return name.replace("``", "`") if self._dialect == "mysql" else name

    def _select(self, table: SourceTable, columns: Sequence[str]) -> sa.Select[Any]:
        return sa.select(*(self._shown(name, table.columns[name]) for name in columns)).select_from(
            _table(table)
        )

    def _shown(self, name: str, type_: sa.types.TypeEngine[Any]) -> sa.ColumnElement[Any]:
        column = _column(name)
        if self._dialect == "mysql" and isinstance(type_, mysql.FLOAT):
            # The server prints only six digits of a FLOAT unless it is widened.
            return sa.literal_column(f"{self._quoted(name)}+0e0")
        return postgresql.shown(column, type_) if self._dialect == "postgresql" else column

    def _ordered(self, name: str, is_text: bool) -> sa.ColumnElement[Any]:
        column = _column(name)
        if not is_text:
            return column
        if self._dialect == "mysql":
            return sa.literal_column(f"CAST(CONVERT({self._quoted(name)} USING utf8mb4) AS BINARY)")
        if self._dialect == "postgresql":
            return postgresql.output(column).collate("C")
        return sa.cast(column, sa.Text).collate("BINARY")

    def _equal(self, table: SourceTable, name: str, value: Any) -> sa.ColumnElement[bool]:
        column = _column(name)
        if self._dialect == "sqlite":
            if isinstance(value, datetime):
                return column.in_(_moments_of_sqlite(value))
            value = _for_sqlite(value)
        elif (
            isinstance(value, str)
            and self._dialect == "postgresql"
            and (not isinstance(table.columns[name], sa.String) or isinstance(table.columns[name], sa.Enum))
        ):
            return postgresql.output(column) == sa.literal(value)
        return column == sa.literal(value)

    def _quoted(self, name: str) -> str:
        return self._engine.dialect.identifier_preparer.quote_identifier(name).replace("%%", "%")

    def _set_up(self, connection: Any, _: Any) -> None:
        statements = {
            "mysql": ["SET time_zone = '+00:00'", "SET max_sort_length = 8192", _READ_ONLY],
            "postgresql": [
                "SET timezone = 'UTC'; SET datestyle = 'ISO'; SET default_transaction_read_only = on",
                # With settings of the database or account, numbers could be rounded and texts differ.
                "SET extra_float_digits = 3; SET intervalstyle = 'postgres'; SET bytea_output = 'hex'",
                "SET row_security = off",  # a policy raises an error instead of hiding rows
            ],
        }
        with contextlib.closing(connection.cursor()) as cursor:
            for statement in statements.get(self._dialect, ()):
                cursor.execute(statement)
        if self._dialect == "postgresql":
            connection.commit()


def _options(url: sa.URL) -> dict[str, Any]:
    match url.get_backend_name():
        case "mysql" | "mariadb":
            return {
                "connect_args": {"charset": "utf8mb4", "connect_timeout": 10},
                "isolation_level": "REPEATABLE READ",
            }
        case "postgresql":
            return {
                "connect_args": {
                    "connect_timeout": 10,
                    "client_encoding": "utf8",
                    "application_name": "binlane verify",
                }
            }
    return {}


def _column(name: str) -> sa.ColumnClause[Any]:
    return sa.column(sa.sql.quoted_name(name, True))


def _table(table: SourceTable) -> sa.TableClause:
    schema = None if table.schema is None else sa.sql.quoted_name(table.schema, True)
    return sa.table(sa.sql.quoted_name(table.name, True), schema=schema)


def _moments_of_sqlite(value: datetime) -> list[str]:
    """Return the forms in which SQLite's text may contain this moment."""
    whole = [value.isoformat(sep, spec) for sep in " T" for spec in ("auto", "microseconds", "milliseconds")]
    return [f"{text}{zone}" for text in dict.fromkeys(whole) for zone in ("", "Z", "+00:00")]


def _for_sqlite(value: Any) -> Any:
    """Convert for SQLite's driver, which accepts no decimals and stores dates as texts."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.isoformat() if isinstance(value, date) else value
