"""The tables that a statement is about, if any."""

from __future__ import annotations

import re

from worker.formats.interface import PlainRoute, Skip, UndecodableRecord, shortened

_RENAMES_OR_READS = re.compile(r"\b(?:rename|like|exchange|convert)\b", re.IGNORECASE)
_DROPS = re.compile(r"\bdrop\b", re.IGNORECASE)
_NAMES_TABLE = re.compile(r"\b(?:tables?|truncate)\b", re.IGNORECASE)

_SPACE = r"(?:\s|\*/|/\*M?!\d*|/\*(?!M?!).*?\*/|--[^\n]*(?:\n|$)|\#[^\n]*(?:\n|$))"
"""A space, a comment, or the start or end of a conditional comment: `/*!50001` and `*/`."""
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
    """A statement about a table in an unknown database."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"a statement about table {shortened(table)!r}. Canal could not parse it, so its record does "
            "not name the database: apply it to the target, then skip the record"
        )


def is_of_no_table(sql: str) -> bool:
    """Whether a statement changes no table: it is about users, rights, servers, views or programs.

    It may contain a password, or values of a table that column rules hide.

    >>> is_of_no_table("/* ops */ GRANT SELECT ON shop.* TO a IDENTIFIED BY 'x'")
    True
    >>> is_of_no_table("CREATE TABLE users (id int)")
    False
    """
    return _OF_NO_TABLE.match(sql) is not None


def tables_of(sql: str, database: str, *, only_read: bool = True) -> list[tuple[str, str]]:
    """The (database, table) of each table that the statement creates, changes, renames or reads. A rename has
    the old and the new name; with `only_read`, CREATE TABLE … LIKE also has its source. Each once, in the
    statement's order.

    `database` is the one that the record names. An empty database in the result means any: the record does
    not name the one in which the statement ran (for `ALTER TABLE a RENAME TO shop.a`, usually only `shop`).

    The list is empty if the statement names no other table or cannot be parsed. Never raises."""
    if not _may_name_others(sql):
        return []
    # Import the parser only with the first statement.
    from handlers.mysql.ddl import CreateTable, StatementError, parse  # noqa: PLC0415
    from handlers.mysql.ddl.rules import names_of  # noqa: PLC0415

    try:
        operations = parse(sql, database)
    except StatementError:
        return []
    found = dict.fromkeys(
        name
        for operation in operations
        for name in names_of(operation)
        if only_read or not isinstance(operation, CreateTable) or name == operation.table
    )
    return [(name.database, name.table) for name in found]


def place_of(sql: str, database: str) -> PlainRoute | Skip:
    """The route of a statement whose record names no table, because its tool may not have understood it.

    `database` is the one in which it ran, or empty if the record does not name it. Raises UndecodableRecord
    for a statement that changes an unknown table."""
    from handlers.mysql.ddl import CreateTable, StatementError, parse  # noqa: PLC0415

    try:
        changes = parse(sql, database) if _NAMES_TABLE.search(sql) and not is_of_no_table(sql) else []
    except StatementError:  # its message quotes the statement, which may contain values that rules hide
        raise UndecodableRecord("a statement that names a table but cannot be read") from None
    for one in changes:
        if one.table.database:
            return PlainRoute(*one.table, True)
    if all(isinstance(one, CreateTable) for one in changes):  # its first row makes the table known
        return Skip("database_ddl")
    raise UntoldDatabase(changes[0].table.table)


def _may_name_others(sql: str) -> bool:
    if _RENAMES_OR_READS.search(sql):
        return True
    drops = ((part, _DROPS.search(part)) for part in sql.split(";"))
    return any(found is not None and "," in part[found.end() :] for part, found in drops)
