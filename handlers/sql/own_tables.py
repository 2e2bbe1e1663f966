"""Which tables of the target belong to whom: to the server, to the handler, or to one source table.

No source table may be replicated to a table that the handler or the server needs. Otherwise rows of a
source table with that name would be read as marks, or its TRUNCATE would empty them. A record of a table
`mysql.user` would create users in the target. Also checks that the account has the rights that the handler
needs, without changing anything."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from handlers.mysql.ddl import TableName
from handlers.sql.naming import Naming
from handlers.sql.options import SqlOptions
from handlers.sql.target.known_tables import TableName as TargetName

REBUILDING = "_binlane_rebuilding"
"""Temporary name of a table that is rebuilt in SQLite or DuckDB."""
_MYSQL = frozenset(("mysql", "information_schema", "performance_schema", "sys"))
_OF_SERVER = {
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "postgresql": frozenset(("pg_catalog", "pg_toast", "information_schema")),
    "duckdb": frozenset(("pg_catalog", "information_schema")),
}
"""Dialect -> schemas of the server."""

_OF_TARGET = -4  # as the shard of an owner
_LONGEST = 200
"""Size of the column `source_table` in characters."""
_ANYBODY = {"worker": "", "handler": "", "shard": _OF_TARGET, "topic": ""}
_HERE = {"kafka_partition": 0, "kafka_offset": 0, "change_index": 0}

Told = tuple[str | None, str | None]
"""(database, table) of a source table, with None for a part that the templates do not use."""


@dataclass(frozen=True, slots=True)
class OwnTables:
    """`marks` is (schema, table) of the table of marks. A target table without a schema counts as in that
    schema, so at worst an allowed table is refused."""

    marks: TargetName
    dialect: str
    lowers: bool = False
    """Whether MySQL's lower_case_table_names is not 0."""

    @classmethod
    def of(cls, connection: sa.Connection, marks: sa.Table) -> OwnTables:
        """Return the tables for an existing table of marks, as the target resolves its name."""
        dialect = connection.dialect
        schema: str | None = marks.schema
        if schema is None and dialect.name == "postgresql":
            # The table may be in any schema of search_path.
            schema = connection.scalar(
                sa.text(
                    "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                    "WHERE c.relname = :name AND pg_table_is_visible(c.oid)"
                ),
                {"name": marks.name},
            )
        elif schema is None and dialect.name != "sqlite":
            schema = dialect.default_schema_name
        is_mysql = dialect.name in ("mysql", "mariadb")
        lowers = is_mysql and connection.exec_driver_sql("SELECT @@lower_case_table_names").scalar_one() != 0
        return cls((schema, marks.name), dialect.name, lowers)

    def folded(self, target: TargetName) -> TargetName:
        """Return the same name for all names of one table."""
        schema, table = target
        if self.lowers:
            return schema and schema.lower(), table.lower()
        if self.dialect in ("sqlite", "duckdb"):  # only ASCII letters
            return schema and schema.encode().lower().decode(), table.encode().lower().decode()
        return target

    def key(self, target: TargetName) -> str:
        """Return a key that is the same for all names of one table, and fits into `source_table`."""
        text = msgspec.json.encode(self.folded(target)).decode()
        return text if len(text) <= _LONGEST else sha256(text.encode()).hexdigest()

    def why_not(self, target: TargetName) -> str:
        """Return why no source table may use this target table; empty if one may."""
        schema, table = target
        names = self._alike(schema or self.marks[0] or ""), self._alike(table)
        shown = ".".join(filter(None, target))
        if names == (self._alike(self.marks[0] or ""), self._alike(self.marks[1])):
            return (
                f"its rows would be in {shown}, where this handler stores what it has applied; set table, "
                "schema or marks_table to make the two differ, or route it to another handler"
            )
        if names[0] in _OF_SERVER.get(self.dialect, ()):
            return (
                f"its rows would be in {shown}, in a schema of the server itself; set schema, or change match"
            )
        if self.dialect in ("sqlite", "duckdb") and names[1] == REBUILDING:
            return f"its rows would be in {shown}, in which this handler rebuilds tables; set table"
        return ""

    def _alike(self, name: str) -> str:
        # Names ignore case in SQLite and DuckDB, and in MySQL on some systems. PostgreSQL's do not, because
        # they are always quoted.
        return name if self.dialect == "postgresql" else name.casefold()


def insert_if_missing(dialect: str, table: sa.Table) -> Any:
    """Return an INSERT that skips rows whose key exists. `table` must have the column `shard`."""
    match dialect:
        case "postgresql" | "duckdb":
            return postgresql.insert(table).on_conflict_do_nothing()
        case "sqlite":
            return sqlite.insert(table).on_conflict_do_nothing()
    # Not INSERT IGNORE, which would also turn other errors into warnings.
    return mysql.insert(table).on_duplicate_key_update(shard=table.c.shard)


def check_rights(connection: sa.Connection, options: SqlOptions, naming: Naming) -> str | None:
    """Return a sentence about a missing right, or None if this check finds none.

    It does not check rights on existing tables. Raises SQLAlchemy's errors."""
    match connection.dialect.name:
        case "postgresql":
            return _postgresql(connection, options, naming)
        case "sqlite" | "duckdb":
            return None  # connecting has opened the file for writing
    return _mysql(connection, options)


def _postgresql(connection: sa.Connection, options: SqlOptions, naming: Naming) -> str | None:
    database, schema, may_create, is_standby = connection.exec_driver_sql(
        "SELECT current_database(), current_schema(), "
        "has_database_privilege(current_database(), 'CREATE'), pg_is_in_recovery()"
    ).one()
    if is_standby:
        return "it is a standby, which accepts no writes"
    if options.create and "{" in (naming.schema or "") and not may_create:
        return (
            f"the account may not create schemas; GRANT CREATE ON DATABASE {database}, or set schema to one "
            "that exists"
        )
    marks_schema, _, marks = options.marks_table.rpartition(".")
    home = marks_schema or schema
    if home is None or not sa.inspect(connection).has_schema(home):
        return f"no schema {home or 'on the search path'} exists for the table {marks}"
    if not sa.inspect(connection).has_table(marks, schema=home) and not _schema_right(connection, home):
        return f"the account may not create the table {marks}; GRANT CREATE ON SCHEMA {home}"
    named = naming.schema
    if options.create and named and "{" not in named and sa.inspect(connection).has_schema(named):
        return None if _schema_right(connection, named) else f"GRANT CREATE ON SCHEMA {named} is missing"
    return None


def _schema_right(connection: sa.Connection, schema: str) -> bool:
    found = connection.execute(sa.text("SELECT has_schema_privilege(:schema, 'CREATE')"), {"schema": schema})
    return bool(found.scalar_one())


def _mysql(connection: sa.Connection, options: SqlOptions) -> str | None:
    if connection.exec_driver_sql("SELECT @@read_only").scalar_one() not in (0, "OFF"):  # MariaDB 12: OFF
        return "it is read only"
    role = connection.exec_driver_sql("SELECT CURRENT_ROLE()").scalar_one()
    if role not in (None, "NONE"):
        return None  # a role's rights are listed elsewhere
    grantee = """CONCAT("'", REPLACE(CURRENT_USER(), '@', "'@'"), "'")"""
    tables = ("user_privileges", "schema_privileges", "table_privileges")
    rights = {
        str(right).upper()
        for right in connection.exec_driver_sql(
            " UNION ".join(
                f"SELECT privilege_type FROM information_schema.{table} WHERE grantee = {grantee}"
                for table in tables
            )
        ).scalars()
    }
    needed = ["SELECT", "INSERT", "UPDATE", "DELETE", *(["CREATE", "ALTER"] if options.create else [])]
    lacking = [right for right in needed if right not in rights]
    return f"the account lacks the right to {', '.join(lacking)}" if lacking else None


@dataclass(frozen=True, slots=True)
class Owners:
    """Records which source table owns each target table, beside the marks and for all handlers.

    Two source tables may collide in one target table if names ignore case or if a template joins names. A
    template without the database or the table maps several tables to one on purpose, so they share it. All
    methods use the caller's transaction. `marks` is the table of marks, `period` as in SqlOptions."""

    connection: sa.Connection
    marks: sa.Table
    naming: Naming
    own_tables: OwnTables
    kept: Callable[[], Sequence[str]]
    """Returns the source tables ("database.table") that the handler replicates."""
    written: Callable[[str], Collection[str]]
    """As Kept.written."""
    note_written: Callable[[TableName, str], None]
    """As Kept.note_written."""
    period: tuple[str, str] | None

    def claim(self, source: TableName, columns: Collection[str] = ()) -> str:
        """Claim the target table for the source table, as a replica or as a history. Return why that is
        impossible, or an empty text. `columns`: those of the target table. If it has none, it does not exist,
        so it contains no rows of a former owner."""
        own, target = self.naming.asked(*source), self.naming.target(*source)
        place, former = f"{'.'.join(filter(None, target))} of the target", list[str]()
        if not columns:
            self.note_gone(source)
            former = [name for name in self.kept() if self._key(self._target(name)) == self._key(target)]
        elif self.period is not None and not set(self.period).issubset(columns):
            return f"{place} has no columns {' and '.join(self.period)}, so it is no history"
        known, _, period = self._owner(target)
        if known is None:
            self._note(target, [*own, *former])
            known, _, period = self._owner(target)  # another session may have claimed it first
        shares = known is None or self._shares(known, source)
        if known is None or (shares and period == self.period):
            self.note_written(source, self._key(target))
            return ""
        key = self._key(target).replace("'", "''")
        forget = f"DELETE FROM {self.marks.fullname} WHERE worker = '' AND source_table = '{key}'"
        if shares:
            kind = "a replica" if period is None else f"a history (columns {' and '.join(period)})"
            return f"{place} is {kind}: set its mode. If it is no longer one: {forget}"
        shown = ".".join(part or "*" for part in known)
        return (
            f"{place} holds the rows of {shown}: both names are the same there. Set table or schema to make "
            "them differ, or route one of them to another handler. "
            f"If {shown} no longer exists, or is a former name of this table: {forget}"
        )

    def _shares(self, known: Told, source: TableName) -> bool:
        """Return whether the table of the owner `known` is the source table's as well."""
        own = self.naming.asked(*source)
        if known in (own, source) or not _agree(known, own):
            return known in (own, source)
        # The handler's templates have changed, or the owner is of a handler with other templates.
        written = self.written(self._key(self.naming.target(*source)))
        if None not in known:
            return ".".join(filter(None, known)) in written
        return any(one == str(source) or self._asked(one) == own for one in written)

    def are_one(self, one: TableName, other: TableName) -> bool:
        """Return whether two source tables use the same target table."""
        return self._key(self.naming.target(*one)) == self._key(self.naming.target(*other))

    def note_moved(self, old: TableName, new: TableName) -> None:
        """Record that the target's table of `old` now belongs to `new`."""
        self.note_gone(old)
        self.claim(new)

    def note_aside(self, source: TableName, target: TargetName) -> None:
        """Record that this new table gets the history of a table that the source has dropped."""
        self.connection.execute(self.marks.delete().where(self._row(target)))
        self._note(target, self.naming.asked(*source))

    def note_gone(self, source: TableName) -> None:
        """Record that the target table no longer exists."""
        self.note_written(source, "")
        self.connection.execute(self.marks.delete().where(self._row(self.naming.target(*source))))

    def met(self, sources: Iterable[str]) -> str:
        """Return a sentence about two of these source tables ("database.table") that collide in one target
        table; empty if none do."""
        found: dict[TargetName, set[str]] = {}
        for name in sources:
            found.setdefault(self.own_tables.folded(self._target(name)), set()).add(name)
        for target, names in found.items():
            _, former, _ = self._owner(target)
            for one, other in combinations(sorted(names.difference(former)), 2):
                if not _agree(self._asked(one), self._asked(other)):
                    return (
                        f"{one} and {other} share one table; set table or schema to make them differ, or "
                        "route one of them to another handler, and reload both"
                    )
        return ""

    # ---- rows

    def _note(self, target: TargetName, owner: Sequence[str | None]) -> None:
        text = msgspec.json.encode(owner).decode()
        period = self.period and msgspec.json.encode(self.period).decode()
        row = {"source_table": self._key(target), "owner": text, "seen_columns": period, **_ANYBODY, **_HERE}
        self.connection.execute(insert_if_missing(self.connection.dialect.name, self.marks), row)

    def _owner(self, target: TargetName) -> tuple[Told | None, Sequence[str], tuple[str, str] | None]:
        """Return the owner (or None), the source tables that used the target table before it, and its period
        if it is a history."""
        columns = self.marks.c
        row = sa.select(columns.owner, columns.seen_columns).where(self._row(target))
        found, period = self.connection.execute(row).first() or (None, None)
        if found is None:
            return None, (), None
        database, table, *former = msgspec.json.decode(found, type=list[str | None])
        own = {name for name in former if name and _agree((database, table), self._asked(name))}
        of_history = None if period is None else msgspec.json.decode(period, type=tuple[str, str])
        return (database, table), [name for name in former if name and name not in own], of_history

    def _asked(self, name: str) -> Told:
        return self.naming.asked(*name.split(".", 1))

    def _target(self, name: str) -> TargetName:
        return self.naming.target(*name.split(".", 1))

    def _row(self, target: TargetName) -> sa.ColumnElement[bool]:
        return of_owner(self.marks, self._key(target))

    def _key(self, target: TargetName) -> str:
        return self.own_tables.key(target)


def of_owner(marks: sa.Table, key: str) -> sa.ColumnElement[bool]:
    """Match the row with the owner of a target table. `key`: its OwnTables.key."""
    where = [marks.c[name] == value for name, value in _ANYBODY.items()]
    return sa.and_(*where, marks.c.source_table == key)


def _agree(one: Told, other: Told) -> bool:
    return all(None in pair or pair[0] == pair[1] for pair in zip(one, other, strict=True))
