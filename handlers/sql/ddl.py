"""DDL of the source, followed in the target.

Every step looks first whether it is done already: MySQL and MariaDB end a transaction at each DDL statement,
so after a crash a statement may come again of which some steps are done.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
import structlog

from handlers.api import Change, Rejected
from handlers.mysql_ddl import (
    AddColumn,
    ChangeKey,
    CreateTable,
    DropColumn,
    DropTable,
    LoseRows,
    ModifyColumn,
    Operation,
    RenameColumn,
    RenameTable,
    StatementError,
    TableName,
    TruncateTable,
    parse,
)
from handlers.mysql_ddl.rules import DDLRules
from handlers.sql.ddl_columns import add_column, drop_column, modify_column, rename_column
from handlers.sql.ddl_keys import change_key
from handlers.sql.ddl_tables import create_table, drop_table, rename_table, truncate_table
from handlers.sql.ddl_target import Target, TargetTable
from handlers.sql.naming import Naming

__all__ = ["DDLResult", "apply"]

log = structlog.stdlib.get_logger("handlers.sql")

_SWITCHES: dict[type[Operation], str] = {
    CreateTable: "create_tables",
    DropTable: "drop_tables",
    TruncateTable: "truncate",
    RenameTable: "rename_tables",
    AddColumn: "add_columns",
    DropColumn: "drop_columns",
    RenameColumn: "rename_columns",
    ModifyColumn: "retype_columns",
    ChangeKey: "retype_columns",
}


@dataclass(frozen=True, slots=True)
class DDLResult:
    targets: tuple[TargetTable, ...]
    """(schema or None, table) of the target, of every table that the statement is about, under its old and
    its new name: forget what was known of them."""
    done: tuple[str, ...]
    """The statements that were executed in the target."""


def apply(
    connection: sa.Connection, change: Change, rules: DDLRules, naming: Naming, *, database: str, table: str
) -> DDLResult:
    """Do in the target what a change with op `ddl` or `truncate` did in the source.

    Within the connection's transaction, where the target's DDL has transactions (PostgreSQL, SQLite). What
    `rules` switch off, and what was done before, is passed over. `database`, `table`: where the change's
    record belongs, as in its batch. Raises Rejected for a statement that cannot be read, and SQLAlchemy's
    errors.
    """
    operations = _operations(change, database, table)
    target = Target(connection, naming, change.source_time_ms, done=[])
    targets: dict[TargetTable, None] = {}
    for operation in operations:
        switch = _SWITCHES.get(type(operation))
        if switch is not None and not getattr(rules, switch):
            log.info("ddl_switched_off", table=f"{database}.{table}", switch=switch, sql=change.sql)
            continue
        targets.update(dict.fromkeys(_follow(target, operation)))
    if target.done:
        log.info("ddl_followed", table=f"{database}.{table}", sql=change.sql, statements=target.done)
    return DDLResult(tuple(targets), tuple(target.done))


def _operations(change: Change, database: str, table: str) -> list[Operation]:
    if change.op == "truncate":
        return [TruncateTable(TableName(database, table))]
    try:
        return parse(change.sql or "", database)
    except StatementError as error:
        raise Rejected(f"DDL of {database}.{table} not understood: {error}: {change.sql}") from error


def _follow(target: Target, operation: Operation) -> list[TargetTable]:
    table = target.table(operation.table)
    match operation:
        case RenameTable(to=to):
            rename_table(target, table, target.table(to))
            return [table, target.table(to)]
        case CreateTable():
            create_table(target, table, operation)
        case DropTable():
            drop_table(target, table)
        case TruncateTable():
            truncate_table(target, table)
        case _ if not target.exists(table):
            # Its first row makes it, as it is by then.
            log.info("ddl_of_a_table_that_is_not_there", table=table.name)
        case AddColumn(column=column):
            add_column(target, table, column)
        case DropColumn(name=name):
            drop_column(target, table, name)
        case RenameColumn(name=name, to=new_name):
            rename_column(target, table, name, new_name)
        case ModifyColumn(column=column):
            modify_column(target, table, column)
        case ChangeKey(columns=columns):
            change_key(target, table, columns)
        case LoseRows(clause=clause):
            log.warning("ddl_rows_not_followed", table=table.name, clause=clause)
    return [table]
