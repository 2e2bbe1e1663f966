"""The clauses of ALTER TABLE, and the keys in a table's definition."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from handlers.mysql import ddl
from handlers.mysql.ddl.columns import read_definition
from handlers.mysql.ddl.tokens import Kind, Tokens

_KEY_WORDS = ("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "CONSTRAINT", "PRIMARY", "FOREIGN", "CHECK")
_SIZED = frozenset(
    """
    BINARY BIT BLOB CHAR CHARACTER DATETIME DEC DECIMAL DOUBLE ENUM FIXED FLOAT INT INTEGER BIGINT MEDIUMINT
    SMALLINT TINYINT NCHAR NUMERIC NVARCHAR REAL SET TEXT TIME TIMESTAMP VARBINARY VARCHAR VECTOR YEAR
    """.split()  # noqa: SIM905 - words are read more easily
)
# First words of clauses that do not change columns, key or rows, besides options (`WORD = value`).
_NOTHING = """
    ALGORITHM ALTER ANALYZE AUTO_INCREMENT CHARACTER CHARSET CHECK COALESCE COLLATE COMMENT COMPRESSION
    CONVERT DATA DEFAULT DISABLE ENABLE ENCRYPTION ENGINE FORCE INDEX KEY_BLOCK_SIZE LOCK MAX_ROWS MIN_ROWS
    OPTIMIZE ORDER PACK_KEYS PARTITION PARTITIONS REBUILD REMOVE RENAME REORGANIZE REPAIR ROW_FORMAT
    SECONDARY_LOAD SECONDARY_UNLOAD STATS_AUTO_RECALC STATS_PERSISTENT STATS_SAMPLE_PAGES SUBPARTITION
    TABLESPACE UNION UPGRADE WITH WITHOUT
"""
_NO_CHANGE = frozenset(_NOTHING.split())
_OF_PARTITIONS = ("TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT")
# The temporary name of a column while columns swap their names.
_IN_BETWEEN = "_binlane_renaming"


class Key(NamedTuple):
    primary: bool
    columns: tuple[str, ...]
    """The columns; empty for an index, a foreign key or a check."""


def read_key(part: Tokens) -> Key | None:
    """Read a key, index, constraint or period of a table. None if it is a column; nothing is then passed."""
    if (
        part.word not in _KEY_WORDS
        and not _is_vector_index(part)
        and (part.word, part.peek()) != ("PERIOD", "FOR")
    ):
        return None
    if part.take("CONSTRAINT") and part.word not in _KEY_WORDS:
        part.name()
    primary = part.take("PRIMARY", "KEY")
    if not primary and not part.take("UNIQUE"):
        return Key(False, ())
    while not part.at_end:
        columns = part.brackets()
        if columns is not None:
            names = ["" if one.word == "(" else one.name() for one in columns.parts()]
            # The columns of a key with expressions or prefixes do not identify a row.
            return Key(primary, tuple(name for name in names if name) if all(names) else ())
        part.next()
    raise ddl.StatementError(f"the columns of a key expected {part.here()}")


def _is_vector_index(part: Tokens) -> bool:
    """Whether it is `VECTOR INDEX v (c)` or `VECTOR v (c)`. `vector blob` is a column named `vector`, which
    MySQL 8 does not reserve."""
    if part.word != "VECTOR" or part.peek() in _SIZED:
        return False
    return part.peek() in ("INDEX", "KEY", "(") or part.peek(2) == "("


def new_name(clause: Tokens) -> tuple[str | None, str] | None:
    """Read (database or None, table) of `RENAME [TO] …`. None for another clause; nothing is then passed."""
    if clause.word != "RENAME" or clause.peek() in ("COLUMN", "INDEX", "KEY"):
        return None
    clause.next()
    clause.take_any("TO", "AS", "=")
    first = clause.name()
    return (first, clause.name()) if clause.take(".") else (None, first)


def clauses_of(clauses: list[Tokens], table: ddl.TableName, database: str) -> list[ddl.Operation]:
    """Return the clauses' operations in the order to apply them. In the statement, all clauses refer to the
    table before the statement. `database`: of other tables without one. Raises StatementError."""
    found: list[ddl.Operation] = []
    first = 1
    of_list = False  # the last clause is a list, which may continue: `ORDER BY a, b`
    for clause in clauses:
        if clause.at_end:
            continue  # it was a RENAME, which is already read
        if of_list and clause.peek() in ("", "ASC", "DESC", "INTO"):
            if found and isinstance(found[-1], ddl.LoseRows):
                found[-1] = replace(found[-1], clause=f"{found[-1].clause}, {clause.spelled()}")
            continue
        of_list = "PARTITION" in (clause.word, clause.peek()) or clause.word == "ORDER"
        found += _clause(clause, table, database)
        first = _first_number(clause) or first
    renames = [one for one in found if isinstance(one, ddl.RenameColumn)]
    return [
        *(one for one in found if isinstance(one, ddl.LoseRows)),
        *(one for one in found if isinstance(one, ddl.DropColumn)),
        *_one_after_another(renames),
        *(one for one in found if isinstance(one, ddl.ModifyColumn)),
        *(_numbered(one, first) for one in found if isinstance(one, ddl.AddColumn)),
        *_last_key([one for one in found if isinstance(one, ddl.ChangeKey)]),
    ]


def _first_number(options: Tokens) -> int:
    """Return the value of the table's option AUTO_INCREMENT; 0 without one."""
    while not options.at_end:
        if options.take("AUTO_INCREMENT"):
            options.take("=")
            return int(options.next().text.partition(".")[0]) if options.kind is Kind.NUMBER else 0
        options.skip()
    return 0


def _numbered(added: ddl.AddColumn, first: int) -> ddl.AddColumn:
    return replace(added, column=replace(added.column, numbered=first)) if added.column.numbered else added


def _last_key(found: list[ddl.ChangeKey]) -> list[ddl.ChangeKey]:
    """Keep only the final key: MySQL drops the old key before it adds the new one, in any clause order."""
    return [one for one in found if one.columns][-1:] or found[-1:]


def _clause(clause: Tokens, table: ddl.TableName, database: str) -> list[ddl.Operation]:  # noqa: PLR0911 - one return for each kind
    if clause.take("ADD"):
        return _add(clause, table)
    if clause.take("DROP"):
        return _drop(clause, table)
    if clause.take("MODIFY"):
        _pass_column(clause)
        return list(_modify(clause, table))
    if clause.take("CHANGE"):
        _pass_column(clause)
        old, (modify, *key) = clause.name(), _modify(clause, table)
        new = modify.column.name
        return [*([ddl.RenameColumn(table, old, new)] if old != new else []), modify, *key]
    if clause.take("RENAME", "COLUMN"):
        clause.take("IF", "EXISTS")
        old = clause.name()
        clause.expect("TO")
        return [ddl.RenameColumn(table, old, clause.name())]
    if clause.word in _OF_PARTITIONS or (clause.word == "CONVERT" and clause.peek() != "TO"):
        return [ddl.LoseRows(table, clause.spelled(), _other(clause, database))]
    if clause.word in _NO_CHANGE or clause.peek() == "=":
        return []
    raise ddl.StatementError(f"a clause of ALTER TABLE expected {clause.here()}")


def _other(clause: Tokens, database: str) -> ddl.TableName | None:
    """Read the table of `EXCHANGE … WITH TABLE t`, `CONVERT … TO TABLE t` and `CONVERT TABLE t …`."""
    while not clause.at_end:
        if clause.take("TABLE"):
            first = clause.name()
            return ddl.TableName(*((first, clause.name()) if clause.take(".") else (database, first)))
        clause.skip()
    return None


def _add(clause: Tokens, table: ddl.TableName) -> list[ddl.Operation]:
    is_column = clause.take("COLUMN")
    clause.take("IF", "NOT", "EXISTS")
    if not is_column:
        key = read_key(clause)
        if key is not None:
            return [ddl.ChangeKey(table, key.columns)] if key.primary else []
        if clause.word == "PARTITION" or (clause.word, clause.peek()) == ("SYSTEM", "VERSIONING"):
            return []
    several = clause.brackets()
    operations: list[ddl.Operation] = []
    for part in [clause] if several is None else several.parts():
        key = read_key(part)
        if key is None:
            definition = read_definition(part)
            operations.append(ddl.AddColumn(table, definition.column, definition.after))
            key = Key(definition.primary, (definition.column.name,))
        if key.primary:
            operations.append(ddl.ChangeKey(table, key.columns))
    return operations


def _modify(clause: Tokens, table: ddl.TableName) -> tuple[ddl.ModifyColumn, *tuple[ddl.ChangeKey, ...]]:
    definition = read_definition(clause)
    modify = ddl.ModifyColumn(table, definition.column, definition.after)
    return (modify, ddl.ChangeKey(table, (modify.column.name,))) if definition.primary else (modify,)


def _drop(clause: Tokens, table: ddl.TableName) -> list[ddl.Operation]:
    if clause.take("PRIMARY", "KEY"):
        return [ddl.ChangeKey(table, ())]
    if clause.take_any("INDEX", "KEY", "CONSTRAINT"):
        clause.take("IF", "EXISTS")
        return [ddl.ChangeKey(table, ())] if is_primary(clause.name()) else []
    if clause.word == "PARTITION":
        return [ddl.LoseRows(table, f"DROP {clause.spelled()}")]
    if clause.word in _KEY_WORDS or (clause.word, clause.peek()) in (
        ("PERIOD", "FOR"),
        ("SYSTEM", "VERSIONING"),
    ):
        return []
    clause.take("COLUMN")
    clause.take("IF", "EXISTS")
    return [ddl.DropColumn(table, clause.name())]


def is_primary(index: str) -> bool:
    """Whether an index of this name is the primary key."""
    return index.upper() == "PRIMARY"


def _pass_column(clause: Tokens) -> None:
    clause.take("COLUMN")
    clause.take("IF", "EXISTS")


def _one_after_another(renames: list[ddl.RenameColumn]) -> list[ddl.RenameColumn]:
    """Order renames so that no column gets a name that another one still has."""
    by_name = {one.name.lower(): one for one in renames}
    ordered: list[ddl.RenameColumn] = []
    while by_name:
        # The blocker of each rename must precede it. The chain ends at a free name, or closes a cycle.
        chain = [next(iter(by_name.values()))]
        del by_name[chain[0].name.lower()]
        while (blocking := by_name.pop(chain[-1].to.lower(), None)) is not None:
            chain.append(blocking)
        first, last = chain[0], chain[-1]
        if len(chain) > 1 and last.to.lower() == first.name.lower():  # they swap names
            ordered.append(ddl.RenameColumn(first.table, first.name, _IN_BETWEEN))
            ordered += chain[:0:-1]
            ordered.append(ddl.RenameColumn(first.table, _IN_BETWEEN, first.to))
        else:
            ordered += chain[::-1]
    return ordered
