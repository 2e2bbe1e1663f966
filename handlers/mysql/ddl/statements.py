"""Parser of MySQL and MariaDB DDL into the operations to apply to a replica."""

from __future__ import annotations

from collections.abc import Iterable

from handlers.mysql import ddl
from handlers.mysql.ddl.clauses import clauses_of, is_primary, new_name, read_key
from handlers.mysql.ddl.columns import Definition, read_definition
from handlers.mysql.ddl.tokens import Tokens, tokens_of
from handlers.options.matching import lowered

# First words of statements that do not change a table's columns or rows.
_NO_DDL = """
    ANALYZE BEGIN CACHE CHECK CHECKSUM COMMIT FLUSH GRANT INSTALL KILL LOCK OPTIMIZE REPAIR RESET
    REVOKE ROLLBACK SAVEPOINT SET SHOW SHUTDOWN START STOP UNINSTALL UNLOCK USE XA
"""


def read(sql: str, database: str) -> list[ddl.Operation]:
    """Parse a statement. See `handlers.mysql.ddl.parse`."""
    tokens = tokens_of(sql)
    verb = tokens.take_any("ALTER", "CREATE", "DROP", "RENAME", "TRUNCATE")
    if verb == "ALTER":
        return _alter(tokens, database)
    if verb == "CREATE":
        return _create(tokens, database)
    if verb == "DROP":
        return _drop(tokens, database)
    if verb == "RENAME":
        return _rename(tokens, database)
    if verb == "TRUNCATE":
        tokens.take("TABLE")
        return [ddl.TruncateTable(_named(_table(tokens), database))]
    if tokens.at_end or tokens.word in _NO_DDL.split():
        return []
    raise ddl.StatementError("neither ALTER, CREATE, DROP, RENAME nor TRUNCATE")


# ---- names

_Name = tuple[str | None, str]


def _table(tokens: Tokens) -> _Name:
    first = tokens.name()
    return (first, tokens.name()) if tokens.take(".") else (None, first)


def _named(name: _Name, database: str) -> ddl.TableName:
    return ddl.TableName(name[0] or database, name[1])


def _home(names: Iterable[_Name], database: str) -> str:
    """Return the database of those names without one that existed before the statement."""
    named = (lowered(name[0] or "") for name in names)
    return ddl.ANY_DATABASE if lowered(database) in named else database


# ---- statements on whole tables


def _create(tokens: Tokens, database: str) -> list[ddl.Operation]:
    replaces = tokens.take("OR", "REPLACE")
    if tokens.take("TEMPORARY") or not tokens.take("TABLE"):
        return []  # a temporary table, which only one session has, or not a table
    tokens.take("IF", "NOT", "EXISTS")
    table = _table(tokens)
    dropped: list[ddl.Operation] = [ddl.DropTable(_named(table, database))] if replaces else []
    inside = None if tokens.peek() == "LIKE" else tokens.brackets()
    if inside is None:
        if not tokens.take("LIKE") and not tokens.take("(", "LIKE"):
            return dropped  # CREATE TABLE … SELECT: its rows will show its columns
        source = _named(_table(tokens), _home([table], database))
        return [*dropped, ddl.CreateTable(_named(table, database), (), (), like=source)]
    definitions: list[Definition] = []
    keys: list[tuple[bool, tuple[str, ...]]] = []
    for part in inside.parts():
        key = read_key(part)
        if key is None:
            definitions.append(read_definition(part))
        elif key.columns:
            keys.append((key.primary, key.columns))
    for one in definitions:
        if one.primary or one.unique:
            keys.append((one.primary, (one.column.name,)))
    columns = tuple(one.column for one in definitions)
    return [*dropped, ddl.CreateTable(_named(table, database), columns, _chosen_key(columns, keys))]


def _chosen_key(columns: tuple[ddl.Column, ...], keys: list[tuple[bool, tuple[str, ...]]]) -> tuple[str, ...]:
    """Choose a key as change capture does: the primary key, or the first unique key of NOT NULL columns."""
    required = {column.name.lower() for column in columns if not column.nullable}
    for primary, names in sorted(keys, key=lambda key: not key[0]):
        if primary or required.issuperset(name.lower() for name in names):
            own = {column.name.lower(): column.name for column in columns}
            return tuple(own.get(name.lower(), name) for name in names)
    return ()


def _drop(tokens: Tokens, database: str) -> list[ddl.Operation]:
    if tokens.take("INDEX"):
        return _drop_index(tokens, database)
    if tokens.take("TEMPORARY") or not tokens.take("TABLE"):
        return []
    tokens.take("IF", "EXISTS")
    names: list[_Name] = []
    while not names or tokens.take(","):
        names.append(_table(tokens))
    home = _home(names, database)
    return [ddl.DropTable(_named(name, home)) for name in names]


def _drop_index(tokens: Tokens, database: str) -> list[ddl.Operation]:
    tokens.take("IF", "EXISTS")
    index = tokens.name()
    tokens.expect("ON")
    return [ddl.ChangeKey(_named(_table(tokens), database), ())] if is_primary(index) else []


def _rename(tokens: Tokens, database: str) -> list[ddl.Operation]:
    if not tokens.take_any("TABLE", "TABLES"):
        return []  # RENAME USER
    tokens.take("IF", "EXISTS")
    old_names: list[_Name] = []
    new_names: list[_Name] = []
    while not old_names or tokens.take(","):
        old_names.append(_table(tokens))
        _pass_wait(tokens)
        tokens.expect("TO")
        new_names.append(_table(tokens))
    home, made = _home((*old_names, *new_names), database), set[_Name]()
    renames: list[ddl.Operation] = []
    for name, new in zip(old_names, new_names, strict=True):
        # A table that an earlier pair named so is where that pair put it.
        old = _named(name, database if name in made else home)
        renames.append(ddl.RenameTable(old, _named(new, database), home != database and new[0] is None))
        made.add(new)
    return renames


def _pass_wait(tokens: Tokens) -> None:
    if tokens.take_any("WAIT", "NOWAIT") == "WAIT":
        tokens.next()


# ---- ALTER TABLE


def _alter(tokens: Tokens, database: str) -> list[ddl.Operation]:
    if not _altered(tokens):
        return []
    name = _table(tokens)
    _pass_wait(tokens)
    clauses = [clause for clause in tokens.parts() if not clause.at_end]
    moves = [new for clause in clauses if (new := new_name(clause)) is not None]
    table = _named(name, _home([name, *moves], database))
    moved = _named(moves[-1], database) if moves else table
    rename = [ddl.RenameTable(table, moved)] if moves else []
    return [*rename, *clauses_of(clauses, moved, ddl.ANY_DATABASE if name[0] else database)]


def _altered(tokens: Tokens) -> bool:
    """Pass the words up to the table's name. False if the statement does not alter a table."""
    tokens.take_any("ONLINE", "OFFLINE")
    tokens.take("IGNORE")
    if not tokens.take("TABLE"):
        return False
    tokens.take("IF", "EXISTS")
    return True


def qualify(sql: str, database: str) -> str:
    """Add the database to an ALTER TABLE. See `handlers.mysql.ddl.qualified`."""
    try:
        tokens = tokens_of(sql)
        if not (tokens.take("ALTER") and _altered(tokens)):
            return sql
        begin = tokens.start
        name = _table(tokens)
        return sql if name[0] else tokens.exchanged(begin, ddl.quoted(database, name[1]))
    except Exception:  # whatever the error, the statement stays unchanged
        return sql
