"""Which tables a statement is about, if any."""

from __future__ import annotations

import re

from worker.formats.interface import PlainRoute, Skip, UndecodableRecord, shortened

_RENAMES_OR_READS = re.compile(r"\b(?:rename|like)\b", re.IGNORECASE)
_DROPS = re.compile(r"\bdrop\b", re.IGNORECASE)
_NAMES_TABLE = re.compile(r"\b(?:tables?|truncate)\b", re.IGNORECASE)

_SPACE = r"(?:\s|\*/|/\*M?!\d*|/\*(?!M?!).*?\*/|--[^\n]*(?:\n|$)|\#[^\n]*(?:\n|$))"
"""A space, a comment, or what makes one of a part that is none: `/*!50001` and `*/`."""
_OF_NO_TABLE = re.compile(
    rf"(?:[(;]|{_SPACE})*+"
    + (
        r"(?:GRANT|REVOKE|FLUSH|SET (?:PASSWORD|DEFAULT|ROLE)|CHANGE (?:MASTER|REPLICATION)"
        r"|(?:CREATE|ALTER|DROP|RENAME) (?:OR REPLACE )?(?:USER|ROLE|SERVER)"
        r"|(?:CREATE|ALTER|DROP) "
        r"(?:(?:OR REPLACE|ALGORITHM~=~\w+|SQL SECURITY \w+|AGGREGATE"
        r"|DEFINER~=~(?:`[^`]*`|'[^']*'|[^\s`'*/])++) )*+"
        r"(?:VIEW|TRIGGER|PROCEDURE|FUNCTION|EVENT))\b"
    )
    .replace(" ", f"{_SPACE}++")
    .replace("~", f"{_SPACE}*+"),
    re.IGNORECASE | re.DOTALL,
)


class UntoldDatabase(UndecodableRecord):
    """A statement about `table`, whose database nothing tells."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"a statement on table {shortened(table)!r}, whose database its record does not tell, as Canal "
            "could not read it: apply it to the target, then pass over the record"
        )
        self.table = table


def is_of_no_table(sql: str) -> bool:
    """Whether a statement is about users, rights, servers, views or programs: it changes no table.

    It may hold a password, or what column rules hide of a table that it names.

    >>> is_of_no_table("/* ops */ GRANT SELECT ON shop.* TO a IDENTIFIED BY 'x'")
    True
    >>> is_of_no_table("CREATE TABLE users (id int)")
    False
    """
    return _OF_NO_TABLE.match(sql) is not None


def tables_of(sql: str, database: str) -> list[tuple[str, str]]:
    """The (database, table) of each table that the statement creates, changes, renames or reads: for a rename
    the old and the new names, for CREATE TABLE … LIKE the source, too. Each once, in the statement's order.

    An empty database stands for any: the statement ran in a database that its record does not name (of
    `ALTER TABLE a RENAME TO shop.a` most tools say only `shop`).

    `database`: the database that the record names. Empty where the statement is about its own table alone or
    about none, or cannot be read. Never raises."""
    if not _may_name_others(sql):
        return []
    # As its parser: with the first statement.
    from handlers.mysql.ddl import StatementError, parse  # noqa: PLC0415
    from handlers.mysql.ddl.reach import names_of  # noqa: PLC0415

    try:
        operations = parse(sql, database)
    except StatementError:
        return []
    found = dict.fromkeys(name for operation in operations for name in names_of(operation))
    return [(name.database, name.table) for name in found]


def place_of(sql: str, database: str) -> PlainRoute | Skip:
    """Where a statement belongs whose record names no table: its tool may not have understood it.

    `database`: the one in which it ran; empty: the record does not say. Raises UndecodableRecord for one that
    changes a table, if it cannot be told which."""
    from handlers.mysql.ddl import CreateTable, StatementError, parse  # noqa: PLC0415

    try:
        changes = parse(sql, database) if _NAMES_TABLE.search(sql) and not is_of_no_table(sql) else []
    except StatementError:  # what it tells is of the statement, which may hold what rules hide
        raise UndecodableRecord("a statement that names a table, and cannot be read") from None
    for one in changes:
        if one.table.database:
            return PlainRoute(*one.table, True)
    if all(isinstance(one, CreateTable) for one in changes):  # its first row tells of it
        return Skip("database_ddl")
    raise UntoldDatabase(changes[0].table.table)


def _may_name_others(sql: str) -> bool:
    if _RENAMES_OR_READS.search(sql):
        return True
    drops = ((part, _DROPS.search(part)) for part in sql.split(";"))
    return any(found is not None and "," in part[found.end() :] for part, found in drops)
