"""Operations written as a statement, which `parse` reads back as exactly the same operations.

Comments, checks, indexes and options of the original statement are lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from handlers.mysql import ddl
from handlers.mysql.types import literal


def net(operations: Iterable[ddl.Operation]) -> list[ddl.Operation]:
    """Return a statement's operations with the net renames of its columns: from the names before it to the
    names after it. Temporary names of columns that swap names are removed."""
    came_from: dict[str, str] = {}
    kept: list[ddl.Operation] = []
    place = None
    for one in operations:
        if not isinstance(one, ddl.RenameColumn):
            kept.append(one)
            continue
        place = len(kept) if place is None else place
        came_from[one.to] = came_from.pop(one.name, one.name)
        table = one.table
    if place is not None:
        kept[place:place] = [
            ddl.RenameColumn(table, old, new) for new, old in came_from.items() if old != new
        ]
    return kept


def written(operations: Sequence[ddl.Operation]) -> str:
    """Write one statement for operations in the form that `net` returns.

    Raises StatementError if no single statement does all of them."""
    match operations:
        case [ddl.TruncateTable(table=table)]:
            return f"TRUNCATE TABLE {_name(table)}"
        case [ddl.CreateTable() as create]:
            return f"CREATE TABLE {_created(create)}"
        case [ddl.DropTable(table=dropped), ddl.CreateTable() as create] if dropped == create.table:
            return f"CREATE OR REPLACE TABLE {_created(create)}"
        case [ddl.DropTable(), *_] if all(isinstance(one, ddl.DropTable) for one in operations):
            return f"DROP TABLE {', '.join(_name(one.table) for one in operations)}"
        case [ddl.RenameTable(), *_] if all(isinstance(one, ddl.RenameTable) for one in operations):
            pairs = (one for one in operations if isinstance(one, ddl.RenameTable))
            return f"RENAME TABLE {', '.join(f'{_name(one.table)} TO {_name(one.to)}' for one in pairs)}"
        case []:
            raise ddl.StatementError("there is nothing to write")
    return _altered(operations)


def _name(table: ddl.TableName) -> str:
    return ddl.quoted(*filter(None, table))


def _created(create: ddl.CreateTable) -> str:
    if create.like is not None:
        return f"{_name(create.table)} LIKE {_name(create.like)}"
    parts = [_column(column) for column in create.columns]
    if create.key:
        parts.append(_primary_key(create.key))
    return f"{_name(create.table)} ({', '.join(parts)})"


def _primary_key(columns: Iterable[str]) -> str:
    return f"PRIMARY KEY ({', '.join(map(ddl.quoted, columns))})"


def _altered(operations: Sequence[ddl.Operation]) -> str:
    first, rest = operations[0], operations
    table, clauses = first.table, []
    if isinstance(first, ddl.RenameTable):
        clauses, rest = [f"RENAME TO {_name(first.to)}"], operations[1:]
    now = first.to if isinstance(first, ddl.RenameTable) else table
    if any(one.table != now for one in rest):
        raise ddl.StatementError("one statement alters one table")
    clauses += map(_clause, rest)
    return f"ALTER TABLE {_name(table)} {', '.join(clauses)}"


def _clause(operation: ddl.Operation) -> str:
    match operation:
        case ddl.LoseRows(clause=clause):
            return clause
        case ddl.DropColumn(name=name):
            return f"DROP COLUMN {ddl.quoted(name)}"
        case ddl.RenameColumn(name=name, to=to):
            return f"RENAME COLUMN {ddl.quoted(name)} TO {ddl.quoted(to)}"
        case ddl.AddColumn(column=column, after=after):
            first = f", AUTO_INCREMENT = {column.numbered}" if column.numbered > 1 else ""
            return f"ADD COLUMN {_column(column)}{_place(after)}{first}"
        case ddl.ModifyColumn(column=column, after=after):
            return f"MODIFY COLUMN {_column(column)}{_place(after)}"
        case ddl.ChangeKey(columns=columns):
            return f"ADD {_primary_key(columns)}" if columns else "DROP PRIMARY KEY"
    raise ddl.StatementError(f"{type(operation).__name__} is not a clause of ALTER TABLE")


def _place(after: str | None) -> str:
    if after is None:
        return ""
    return f" AFTER {ddl.quoted(after)}" if after else " FIRST"


def _column(column: ddl.Column) -> str:
    parts = [ddl.quoted(column.name), column.type]
    if column.generated is not None:
        parts.append(f"GENERATED ALWAYS AS ({column.generated})")
    if not column.nullable:
        parts.append("NOT NULL")
    if column.default is not None:
        parts.append(f"DEFAULT {_default(column.default.kind, column.default.text)}")
    if column.numbered:
        parts.append("AUTO_INCREMENT")
    return " ".join(parts)


def _default(kind: str, text: str) -> str:  # noqa: PLR0911 - one return for each kind of literal
    match kind:
        case "text":
            return literal(text)
        case "number":
            return text
        case "bits":
            return f"b'{text}'"
        case "bytes":
            return f"x'{text}'"
        case "null":
            return "NULL"
        case "now":
            return "CURRENT_TIMESTAMP"
    return f"({text})"
