"""A record's changes: images of its rows, with the columns that they leave out, and statements."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from handlers.api import Change, Operation
from worker.formats.interface import PlainRoute, Record, Skip, UndecodableRecord, shortened

Row = dict[str, Any]

NOTHING: frozenset[str] = frozenset()


class Image(NamedTuple):
    """A change's images of its row. The fields are those of `Change`."""

    op: Operation
    before: Row | None
    after: Row | None
    lacks: frozenset[str] | None = NOTHING
    before_is_whole: bool = True
    moves_key: bool = False


def changes_from(
    images: Iterable[Image],
    record: Record,
    *,
    key: tuple[str, ...] | None,
    types: Mapping[str, str] | None,
    time_ms: int,
    transaction: str | None,
    first_index: int = 0,
) -> list[Change]:
    """Make a record's changes, one for each image. The arguments are fields of `Change`.

    Raises UndecodableRecord if a row lacks a column of its key."""
    place = record.topic(), record.partition(), record.offset()
    changes = []
    for index, (op, before, after, lacks, is_whole, moves) in enumerate(images, first_index):
        row = before if after is None else after
        if key and row is not None:
            check_key(key, row)
        content = before, after, key, None, time_ms
        changes.append(Change(op, *content, *place, index, transaction, types, lacks, is_whole, moves))
    return changes


def check_key(key: Iterable[str], row: Collection[str]) -> None:
    """Raise UndecodableRecord if the row lacks a key column: all such rows would share one key."""
    for name in key:
        if name not in row:
            raise UndecodableRecord(f"key column {name!r} is not in the row")


def statement_from(
    sql: str, record: Record, *, truncates: bool, time_ms: int, transaction: str | None, index: int = 0
) -> list[Change]:
    """The change of a record's statement, with this `index`. Empty if the statement changes no table."""
    if is_of_no_table(sql):
        return []
    op: Operation = "truncate" if truncates else "ddl"
    place = record.topic(), record.partition(), record.offset()
    return [Change(op, None, None, None, sql, time_ms, *place, index, transaction, None)]


def lacking(columns: AbstractSet[str], row: Row) -> frozenset[str]:
    """The table's columns that the row lacks, as a frozenset (`columns - row.keys()` gives a set)."""
    return NOTHING if columns <= row.keys() else frozenset(columns).difference(row)


def tells_more(row: Row, key: Collection[str] | None) -> bool:
    """Whether the row has a value outside its key. If not, the source may have logged only the key."""
    if not key:
        return True
    for name, value in row.items():  # noqa: SIM110 # a generator takes twice as long
        if value is not None and name not in key:
            return True
    return False


def deleted(row: Row, key: Collection[str] | None, columns: AbstractSet[str] | None = NOTHING) -> Image:
    """The image of a deleted row. It is whole if it has all known `columns` and a value outside its key.

    `columns` is None if the record may leave columns out and the table's columns are unknown."""
    is_whole = tells_more(row, key) and (columns or NOTHING) <= row.keys()
    return Image("delete", row, None, None if columns is None else NOTHING, is_whole)


def updated(
    before: Row | None,
    after: Row,
    key: Collection[str] | None,
    *,
    lacks: frozenset[str] | None = NOTHING,
    before_is_whole: bool = True,
) -> tuple[Image, ...]:
    """The image of an update, or a delete and an insert if the key changed.

    `before` contains the key's old values. `after` contains every value that either image has."""
    for name in key or ():
        if before is not None and before.get(name) != after.get(name):
            return (
                # If the new row may lack columns, the old one may lack them too.
                Image("delete", before, None, NOTHING, before_is_whole and lacks is not None, moves_key=True),
                Image("insert", None, after, lacks, moves_key=True),
            )
    return (Image("update", before, after, lacks, before_is_whole),)


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
